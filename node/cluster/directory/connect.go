package directory

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"penstock/consensus/replica"
	"penstock/node/mux"
	"penstock/node/rpc"
	"penstock/node/trust"
)

// dialTimeout bounds the dial of one address if there are others to try.
const dialTimeout = 2 * time.Second

// errNoAddress: there is no address to dial.
var errNoAddress = errors.New("no address is known")

// streams connects Raft's servers, by ID, through the cluster port.
type streams struct {
	net.Listener
	d *Directory
}

// Streams returns how Raft's servers connect; accepted is where they call this
// node.
func (d *Directory) Streams(accepted net.Listener) replica.StreamLayer { return streams{accepted, d} }

// Dial connects to a server at its current address.
func (s streams) Dial(id string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(s.d.ctx, timeout)
	defer cancel()
	config := trust.ClientConfig(s.d.Entries.Identity, id)
	conn, err := dialAny(ctx, s.d.Addresses(id), func(ctx context.Context, addr string) (net.Conn, error) {
		return mux.Dial(ctx, addr, config, mux.Raft)
	})
	return conn, trust.Explain(err)
}

// dialNode connects to a member for admin RPC.
func (d *Directory) dialNode(ctx context.Context, id string) (*rpc.Client, error) {
	config := rpc.DialConfig{TLS: trust.ClientConfig(d.Entries.Identity, id)}
	client, err := dialAny(ctx, d.Addresses(id), config.Dial)
	if errors.Is(err, errNoAddress) {
		err = fmt.Errorf("%w %s: %w", rpc.ErrUnreachable, id, err)
	}
	return client, trust.Explain(err)
}

// dialAny tries addresses in turn. dial has to verify which node answers, since
// the addresses may be outdated.
func dialAny[T any](ctx context.Context, addrs []string, dial func(ctx context.Context, addr string) (T, error)) (conn T, err error) {
	if len(addrs) == 0 {
		return conn, errNoAddress
	}
	for i, addr := range addrs {
		one, cancel := ctx, func() {}
		if i < len(addrs)-1 {
			share := dialTimeout
			if end, ok := ctx.Deadline(); ok {
				share = min(share, time.Until(end)/2)
			}
			one, cancel = context.WithTimeout(ctx, share)
		}
		var derr error
		conn, derr = dial(one, addr)
		cancel()
		if derr == nil {
			return conn, nil
		}
		err = errors.Join(err, derr)
		if ctx.Err() != nil {
			break
		}
	}
	return conn, err
}
