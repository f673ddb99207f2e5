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
		busyUntilInputEnds()
		return
	}
	// Both make channels at first use, and what is made in a bubble of synctest
	// cannot be used outside of it.
	_, _ = compress(nil, make([]byte, 1<<10))
	_, _ = zstdDecoder()
	goleak.VerifyTestMain(m)
}
