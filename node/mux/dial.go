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
	Admin byte = 'A' // the first of the preamble of package admin, which reads it too
	Raft  byte = 'R' // consumed by the port
)

// ErrTLS wraps the errors of handshakes in Connect and Dial.
var ErrTLS = errors.New("TLS handshake")

// A dead peer is noticed after this: no answer to probes, or to what was sent.
const deadAfter = 15 * time.Second

// dialer notices peers that die without a word.
func dialer() *net.Dialer {
	return &net.Dialer{KeepAliveConfig: keepAlive, Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(userTimeout)
	}}
}

var keepAlive = net.KeepAliveConfig{Enable: true, Idle: deadAfter / 3, Interval: deadAfter / 3, Count: 2}

// userTimeout bounds how long what was sent may stay unacknowledged. A kernel
// that refuses keeps its own bound: the probes still work.
func userTimeout(fd uintptr) {
	_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(deadAfter.Milliseconds()))
}

// Connect reaches a port, "host:port" or "unix:PATH", and ends its handshake
// with it, unless config is nil. Who the peer is, is for config to check:
// addresses say nothing in a cluster, so most set InsecureSkipVerify and VerifyConnection.
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

// Dial is Connect and the first byte.
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
