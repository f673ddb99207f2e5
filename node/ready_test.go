package node

import (
	"testing"

	"penstock/internal/testkit"
)

// /readyz?leader=DURATION is 200 once the node has caught up with its cluster.
func TestReadyOnceCaughtUp(t *testing.T) {
	t.Parallel()
	n := startNode(t, "")
	testkit.WaitFor(t, "the node to have caught up with itself", func() bool {
		code, _ := n.get(t, "/readyz?leader=24h")
		return code == 200
	})
	n.caughtUp.Store(false)
	for path, want := range map[string]int{
		"/readyz": 200, "/readyz?leader=0s": 200, "/readyz?leader=1ns": 200, "/readyz?leader=24h": 503,
		"/readyz?leader=soon": 400, "/readyz?leader=-1s": 400,
	} {
		if code, body := n.get(t, path); code != want {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
}
