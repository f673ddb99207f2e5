package consensus

import (
	"os"
	"testing"

	"go.uber.org/goleak"
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
	_, _ = Compress(nil, make([]byte, 1<<20))
	_, _ = Expand(nil, nil, 0, 0)
	goleak.VerifyTestMain(m)
}
