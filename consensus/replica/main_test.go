package replica

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"penstock/consensus/store"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		writeUntilKilled(dir)
	}
	if os.Getenv(busyChild) != "" {
		spinUntilInputEnds()
		return
	}
	// Both create channels at first use, and channels created inside a synctest
	// bubble cannot be used outside.
	_, _ = store.Compress(nil, make([]byte, 1<<20))
	_, _ = store.Expand(nil, nil, 0, 0)
	goleak.VerifyTestMain(m)
}
