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
	goleak.VerifyTestMain(m)
}
