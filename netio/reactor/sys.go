package reactor

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The calls below never block: the descriptors are non-blocking, or the call
// is one that does not wait. So they go to the kernel without telling the
// scheduler, which saves about a microsecond and a half per round trip of a
// relayed message. Waiting is done by the poller, through the ordinary call,
// because a raw one that blocks would hold up the garbage collector.

func recv(fd int32, p []byte, flags uintptr) (int, syscall.Errno) {
	for {
		n, _, e := syscall.RawSyscall6(syscall.SYS_RECVFROM, uintptr(fd),
			uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), flags, 0, 0)
		if e == 0 {
			return int(n), 0
		}
		if e != syscall.EINTR {
			return 0, e
		}
	}
}

// send asks for no SIGPIPE: the runtime would swallow the signal, but not for
// nothing.
func send(fd int32, p []byte, flags uintptr) (int, syscall.Errno) {
	for {
		n, _, e := syscall.RawSyscall6(syscall.SYS_SENDTO, uintptr(fd),
			uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), unix.MSG_NOSIGNAL|flags, 0, 0)
		if e == 0 {
			return int(n), 0
		}
		if e != syscall.EINTR {
			return 0, e
		}
	}
}

func splice(from, to int32, n int) (int, syscall.Errno) {
	for {
		n, _, e := syscall.RawSyscall6(syscall.SYS_SPLICE, uintptr(from), 0, uintptr(to), 0,
			uintptr(n), unix.SPLICE_F_MOVE|unix.SPLICE_F_NONBLOCK)
		if e == 0 {
			return int(n), 0
		}
		if e != syscall.EINTR {
			return 0, e
		}
	}
}

// closeFD does not repeat on EINTR: Linux has released the descriptor then.
func closeFD(fd int32) {
	_, _, _ = syscall.RawSyscall(syscall.SYS_CLOSE, uintptr(fd), 0, 0)
}

func shutdownWrite(fd int32) syscall.Errno {
	_, _, e := syscall.RawSyscall(syscall.SYS_SHUTDOWN, uintptr(fd), syscall.SHUT_WR, 0)
	return e
}

func setInt(fd int32, level, opt int, v int32) syscall.Errno {
	_, _, e := syscall.RawSyscall6(syscall.SYS_SETSOCKOPT, uintptr(fd), uintptr(level), uintptr(opt),
		uintptr(unsafe.Pointer(&v)), unsafe.Sizeof(v), 0)
	return e
}

// resetOnClose makes close send RST instead of FIN and drop what is unsent.
func resetOnClose(fd int32) {
	l := syscall.Linger{Onoff: 1}
	_, _, _ = syscall.RawSyscall6(syscall.SYS_SETSOCKOPT, uintptr(fd), syscall.SOL_SOCKET, syscall.SO_LINGER,
		uintptr(unsafe.Pointer(&l)), unsafe.Sizeof(l), 0)
}

// socketError takes the error that the kernel keeps for the socket.
func socketError(fd int32) syscall.Errno {
	var v int32
	n := uint32(unsafe.Sizeof(v))
	_, _, e := syscall.RawSyscall6(syscall.SYS_GETSOCKOPT, uintptr(fd), syscall.SOL_SOCKET, syscall.SO_ERROR,
		uintptr(unsafe.Pointer(&v)), uintptr(unsafe.Pointer(&n)), 0)
	if e != 0 {
		return e
	}
	return syscall.Errno(v)
}

// unread is how many bytes the kernel holds for reading.
func unread(fd int32) int { return queued(fd, unix.SIOCINQ) }

// queued is the length of one of the kernel's queues.
func queued(fd int32, of uint) int {
	n, err := unix.IoctlGetInt(int(fd), of)
	if err != nil {
		return 0
	}
	return n
}

func newSocket(family int) (int32, syscall.Errno) {
	fd, _, e := syscall.RawSyscall(syscall.SYS_SOCKET, uintptr(family),
		syscall.SOCK_STREAM|syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC, 0)
	return int32(fd), e
}

func connect(fd int32, a *sockaddr) syscall.Errno {
	_, _, e := syscall.RawSyscall(syscall.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&a.raw)), uintptr(a.len))
	return e
}

func bind(fd int32, a *sockaddr) syscall.Errno {
	_, _, e := syscall.RawSyscall(syscall.SYS_BIND, uintptr(fd), uintptr(unsafe.Pointer(&a.raw)), uintptr(a.len))
	return e
}

func accept(fd int32, a *sockaddr) (int32, syscall.Errno) {
	a.len = uint32(unsafe.Sizeof(a.raw))
	n, _, e := syscall.RawSyscall6(syscall.SYS_ACCEPT4, uintptr(fd), uintptr(unsafe.Pointer(&a.raw)),
		uintptr(unsafe.Pointer(&a.len)), syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC, 0, 0)
	return int32(n), e
}

// name fills a with the local (SYS_GETSOCKNAME) or the peer's address
// (SYS_GETPEERNAME).
func name(call uintptr, fd int32, a *sockaddr) syscall.Errno {
	a.len = uint32(unsafe.Sizeof(a.raw))
	_, _, e := syscall.RawSyscall(call, uintptr(fd), uintptr(unsafe.Pointer(&a.raw)), uintptr(unsafe.Pointer(&a.len)))
	return e
}
