package reactor

import (
	"fmt"
	"syscall"
)

// RaiseFileLimit raises the soft limit of open descriptors to the hard limit
// and returns it.
func RaiseFileLimit() (uint64, error) {
	var r syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r); err != nil {
		return 0, fmt.Errorf("limit of open files: %w", err)
	}
	if r.Cur == r.Max {
		return r.Cur, nil
	}
	soft := r.Cur
	r.Cur = r.Max
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &r); err != nil {
		return soft, fmt.Errorf("raise the limit of open files from %d to %d: %w", soft, r.Max, err)
	}
	return r.Cur, nil
}
