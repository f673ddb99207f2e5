package process

import (
	"fmt"
	"syscall"
)

// RaiseFiles raises the soft limit of open files of this process, and of
// processes that it starts later, to the hard limit.
func RaiseFiles() error {
	var lim syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &lim); err != nil {
		return fmt.Errorf("open files: %w", err)
	}
	lim.Cur = lim.Max
	return syscall.Setrlimit(syscall.RLIMIT_NOFILE, &lim)
}
