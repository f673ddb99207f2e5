package relay

import "testing"

// A stream that replaces another one is neither ended nor full, and bytes go on counting.
func TestASideIsRenewed(t *testing.T) {
	var r Relay
	r.Moved(Upstream, 5)
	r.NoteEnded(Upstream)
	r.full[Upstream] = true
	if r.Renew(Upstream); r.HasEnded(Upstream) || r.HalfClosed() || !r.Idle() || r.Bytes(Upstream) != 5 {
		t.Errorf("the new side is %+v", r)
	}
}
