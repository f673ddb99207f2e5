package mux

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The first byte inside the port's TLS.
const (
	Admin byte = 'A' // the first byte of package admin's preamble; admin reads it again
	Raft  byte = 'R' // consumed by mux
)

// ErrTLS wraps the errors of handshakes in Connect and Dial.
var ErrTLS = errors.New("TLS handshake")

// deadAfter is when a peer counts as dead that acknowledges neither keep-alive
// probes nor data.
const deadAfter = 15 * time.Second

// dialer returns a dialer whose connections detect a dead peer.
func dialer() *net.Dialer {
	return &net.Dialer{KeepAliveConfig: keepAlive, Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(userTimeout)
	}}
}

var keepAlive = net.KeepAliveConfig{Enable: true, Idle: deadAfter / 3, Interval: deadAfter / 3, Count: 2}

// userTimeout bounds how long sent data may stay unacknowledged. If the kernel
// refuses, its own bound remains; keep-alive probes still work.
func userTimeout(fd uintptr) {
	_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(deadAfter.Milliseconds()))
}

// Connect connects to a Mux at "host:port" or "unix:PATH", and completes the TLS
// handshake unless config is nil. config must authenticate the peer. Addresses
// identify nobody in a cluster, so most callers set InsecureSkipVerify and
// VerifyConnection.
func Connect(ctx context.Context, addr string, config *tls.Config) (net.Conn, error) {
	network, address := "tcp", addr
	d := dialer()
	if path, ok := strings.CutPrefix(addr, "unix:"); ok {
		network, address = "unix", path
		d.Control = nil
	}
	conn, err := d.DialContext(ctx, network, address)
	if err != nil || config == nil {
		return conn, err
	}
	if config.ServerName == "" && !config.InsecureSkipVerify {
		config = config.Clone()
		config.ServerName, _, _ = net.SplitHostPort(addr) // as tls.Dial does
	}
	c := tls.Client(conn, config)
	if err := c.HandshakeContext(ctx); err != nil {
		conn.Close()
		if ctx.Err() != nil {
			return nil, fmt.Errorf("%w: %w", ErrTLS, ctx.Err())
		}
		return nil, fmt.Errorf("%w: %w", ErrTLS, err)
	}
	return c, nil
}

// Dial is Connect, and sends the first byte.
func Dial(ctx context.Context, addr string, config *tls.Config, first byte) (net.Conn, error) {
	conn, err := Connect(ctx, addr, config)
	if err != nil {
		return nil, err
	}
	if t, ok := ctx.Deadline(); ok {
		_ = conn.SetWriteDeadline(t)
	}
	if _, err := conn.Write([]byte{first}); err != nil {
		conn.Close()
		return nil, err
	}
	_ = conn.SetWriteDeadline(time.Time{})
	return conn, nil
}
