package web

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"
)

// A Tunnel is how the endpoints of a Profile are reached through another proxy: a
// connection to it uses TLS, whose ALPN protocol is the proxy's own, and begins with a
// header that says whose requests follow. Inside, HTTP is spoken as in the clear.
type Tunnel struct {
	// TLS returns the configuration towards an endpoint's host. It is asked for each
	// connection.
	TLS func(host string) *tls.Config
	// Header is sent first inside TLS.
	Header []byte
}

// ErrLeft is ErrNoAnswer from an endpoint that ended the connection in an orderly way
// before its answer began.
var ErrLeft = errors.New("the endpoint closed the connection")

// dialTunnel connects to an endpoint through its Tunnel.
func (p *Profile) dialTunnel(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := p.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	timeout := orDefault(p.ConnectTimeout, time.Second)
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	inside := tls.Client(c, p.Tunnel.TLS(host))
	if err := inside.HandshakeContext(limited); err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("%w: %w", ErrTLS, err)
	}
	_ = c.SetWriteDeadline(time.Now().Add(timeout))
	if _, err := inside.Write(p.Tunnel.Header); err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("%w: %w", ErrConnect, err)
	}
	_ = c.SetWriteDeadline(time.Time{})
	if p.HTTP2 {
		return inside, nil
	}
	return &answers{Conn: inside}, nil
}
