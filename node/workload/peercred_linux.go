package workload

import (
	"net"

	"golang.org/x/sys/unix"
)

// credentialsOf returns who is at the other end of a connection.
func credentialsOf(conn net.Conn) (c credentials, err error) {
	socket, ok := conn.(*net.UnixConn)
	if !ok {
		return c, errNoSocket
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return c, err
	}
	var ucred *unix.Ucred
	cerr := raw.Control(func(fd uintptr) { ucred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if cerr != nil {
		return c, cerr
	}
	if err != nil {
		return c, err
	}
	return credentials{uid: ucred.Uid, gid: ucred.Gid, pid: ucred.Pid}, nil
}
