package ops

import (
	"errors"
	"strings"
	"testing"

	"penstock/node/api"
)

func TestTooLargeRestoreExplainsTheLimit(t *testing.T) {
	err := explainTooLarge(api.Errorf(api.TooLarge, "batch: too large: 70000000 bytes, the limit is 67108864"))
	var refusal *api.Error
	if !errors.As(err, &refusal) || refusal.Code != api.TooLarge {
		t.Fatalf("%v", err)
	}
	for _, want := range []string{"the limit is 67108864", "nothing was changed", "penstock apply -f"} {
		if !strings.Contains(refusal.Message, want) {
			t.Errorf("%q does not say %q", refusal.Message, want)
		}
	}
	if other := errors.New("disk"); !errors.Is(explainTooLarge(other), other) {
		t.Error("another error is not itself any more")
	}
}
