package process

import (
	"fmt"
	"syscall"
)

// RaiseFiles lifts this process's limit of open files to the hard one, and with
// it that of the processes that it starts from then on.
func RaiseFiles() error {
	var lim syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &lim); err != nil {
		return fmt.Errorf("open files: %w", err)
	}
	lim.Cur = lim.Max
	return syscall.Setrlimit(syscall.RLIMIT_NOFILE, &lim)
}
