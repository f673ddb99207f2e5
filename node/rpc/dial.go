package rpc

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"penstock/node/api"
	"penstock/node/mux"
)

// DialConfig says how to connect to a node. The zero DialConfig is for a node's
// own socket, or for a node that runs with --dev.
type DialConfig struct {
	// TLS, if set, secures the connection. It must verify the identity in the
	// node's certificate, since an address identifies no node.
	TLS *tls.Config
	// Token, if set, authenticates the connection before any other request.
	Token string
}

// Dial connects to a node without TLS. addr is "host:port" of its cluster port,
// or "unix:PATH".
func Dial(ctx context.Context, addr string) (*Client, error) {
	return DialConfig{}.Dial(ctx, addr)
}

// Dial connects to a node. addr is "host:port" of its cluster port, or
// "unix:PATH".
func (d DialConfig) Dial(ctx context.Context, addr string) (*Client, error) {
	conn, err := mux.Connect(ctx, addr, d.TLS)
	if err != nil {
		return nil, d.dialError(addr, err)
	}
	if err := exchangePreambles(ctx, conn); err != nil {
		conn.Close()
		return nil, d.dialError(addr, err)
	}
	c := newClient(addr, conn)
	if d.Token == "" {
		return c, nil
	}
	self, err := Call[api.Principal](ctx, c, api.MethodAuth, api.AuthRequest{Token: d.Token})
	if err != nil {
		c.Close()
		return nil, err
	}
	c.principal = *self
	return c, nil
}

// Connect returns a client for an existing connection, such as one end of a
// pipe to a Server in this process. It closes the connection on failure. addr
// is used in messages.
func Connect(ctx context.Context, addr string, conn net.Conn) (*Client, error) {
	if err := exchangePreambles(ctx, conn); err != nil {
		conn.Close()
		return nil, fmt.Errorf("%w at %s: %w", ErrUnreachable, addr, err)
	}
	return newClient(addr, conn), nil
}

// exchangePreambles sends the client's preamble and checks the server's.
func exchangePreambles(ctx context.Context, conn net.Conn) error {
	if t, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(t)
	}
	defer func() { _ = conn.SetDeadline(time.Time{}) }()
	unhook := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer unhook()
	if _, err := conn.Write(clientPreamble(minVersion, maxVersion)); err != nil {
		return err
	}
	var p [preambleSize]byte
	if n, err := io.ReadFull(conn, p[:]); n >= 2 && p[0] == alertType && p[1] == 3 {
		return ErrWantsTLS
	} else if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("no protocol preamble: %w", unexpectedEOF(err))
	}
	return checkServerPreamble(p)
}

// dialError turns an error of a dial into one that says what to do.
func (d DialConfig) dialError(addr string, err error) error {
	var record tls.RecordHeaderError
	var network *net.OpError
	switch {
	case errors.As(err, &network) && network.Op == "remote error": // an alert
		return fmt.Errorf("%w: the node at %s rejected the TLS connection: %w", ErrUnreachable, addr, err)
	case errors.Is(err, ErrWantsTLS):
		return fmt.Errorf("%w: %w at %s: a token is required: use --token, PENSTOCK_TOKEN or the node's own socket", ErrUnreachable, err, addr)
	case errors.Is(err, ErrPreamble):
		return fmt.Errorf("%w: the server at %s is not a Penstock node: %w", ErrUnreachable, addr, err)
	case !errors.Is(err, mux.ErrTLS):
	case errors.As(err, &record) && [4]byte(record.RecordHeader[:4]) == magic:
		return fmt.Errorf("%w: %w at %s: it runs with --dev: omit --token and PENSTOCK_TOKEN", ErrUnreachable, ErrWantsPlain, addr)
	case errors.As(err, &record):
		return fmt.Errorf("%w: %s is not the cluster port of a Penstock node: %w", ErrUnreachable, addr, err)
	case errors.As(err, &network), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
	case d.Token != "":
		return fmt.Errorf("%w: the node at %s is not in the cluster that issued this token: %w: %w", ErrUnreachable, addr, ErrForeign, err)
	default:
		return fmt.Errorf("%w: the server at %s is not the expected node: %w: %w", ErrUnreachable, addr, ErrForeign, err)
	}
	return fmt.Errorf("%w at %s: %w", ErrUnreachable, addr, err)
}
