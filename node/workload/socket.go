package workload

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	grpccreds "google.golang.org/grpc/credentials"
)

var (
	errItself    = errors.New("the node itself has connected, for a client of an endpoint")
	errBound     = errors.New("too many connections")
	errNotClient = errors.New("these credentials are for servers")
	errNoSocket  = errors.New("not a unix socket")
)

// credentials are those of a process when it connected, as the kernel has them.
type credentials struct {
	grpccreds.CommonAuthInfo
	uid, gid uint32
	pid      int32 // for logs alone: it may belong to another process by now
}

// AuthType implements credentials.AuthInfo.
func (credentials) AuthType() string { return "unix" }

// peerCredentials finds out who connects, and bounds the connections of each user.
type peerCredentials struct{ api *API }

// ServerHandshake implements credentials.TransportCredentials.
func (p peerCredentials) ServerHandshake(raw net.Conn) (net.Conn, grpccreds.AuthInfo, error) {
	c, err := credentialsOf(raw)
	if err != nil {
		return nil, nil, err
	}
	a := p.api
	if a.Self != 0 && int(c.pid) == a.Self {
		return nil, nil, errItself
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	total := 0
	for _, n := range a.conns {
		total += n
	}
	if total >= MaxConnections || a.conns[c.uid] >= MaxPerUser {
		a.stats.Refused++
		return nil, nil, errBound
	}
	a.conns[c.uid]++
	return &countedConn{Conn: raw, closed: func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.conns[c.uid]--; a.conns[c.uid] == 0 {
			delete(a.conns, c.uid)
		}
	}}, c, nil
}

// ClientHandshake implements credentials.TransportCredentials.
func (peerCredentials) ClientHandshake(context.Context, string, net.Conn) (net.Conn, grpccreds.AuthInfo, error) {
	return nil, nil, errNotClient
}

// Info implements credentials.TransportCredentials.
func (peerCredentials) Info() grpccreds.ProtocolInfo {
	return grpccreds.ProtocolInfo{SecurityProtocol: "unix"}
}

// Clone implements credentials.TransportCredentials.
func (p peerCredentials) Clone() grpccreds.TransportCredentials { return p }

// OverrideServerName implements credentials.TransportCredentials.
func (peerCredentials) OverrideServerName(string) error { return errNotClient }

// countedConn says once that it was closed.
type countedConn struct {
	net.Conn
	once   sync.Once
	closed func()
}

// Close implements net.Conn.
func (c *countedConn) Close() error {
	c.once.Do(c.closed)
	return c.Conn.Close()
}

// Listen listens on a unix socket whose file has a mode. It replaces the file that a
// killed node left behind, but neither a socket that someone serves nor another file.
func Listen(path string, mode fs.FileMode) (net.Listener, error) {
	switch info, err := os.Lstat(path); {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		return nil, err
	case info.Mode().Type() != fs.ModeSocket:
		return nil, fmt.Errorf("%s: %w: remove it, or give another path", path, errNoSocket)
	default:
		dialer := net.Dialer{Timeout: time.Second}
		if conn, err := dialer.DialContext(context.Background(), "unix", path); err == nil {
			conn.Close()
			return nil, fmt.Errorf("%s: another program serves this socket", path)
		}
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		// On Linux the mode of the socket becomes that of its file, less the umask.
		if cerr := c.Control(func(fd uintptr) { err = syscall.Fchmod(int(fd), uint32(mode)) }); cerr != nil {
			return cerr
		}
		return err
	}}
	l, err := config.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, mode); err != nil { // what the umask took away
		l.Close()
		return nil, err
	}
	return l, nil
}
