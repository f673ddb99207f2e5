package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"penstock/consensus"
	"penstock/node/mux"
	"penstock/node/rpc"
	"penstock/node/trust"
)

const (
	// raftTimeout bounds each step between Raft's servers
	// (consensus.Config.Timeout).
	raftTimeout = 10 * time.Second
	// dialTimeout bounds the dial of one address if there are others to try.
	dialTimeout = 2 * time.Second
)

// errNoAddress: there is no address to dial.
var errNoAddress = errors.New("no address is known")

// streams connects Raft's servers, by ID, through the cluster port.
type streams struct {
	net.Listener
	c *Cluster
}

var _ consensus.StreamLayer = streams{}

// Dial connects to a server at its current address.
func (s streams) Dial(id string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(s.c.ctx, timeout)
	defer cancel()
	config := trust.ClientConfig(s.c.id.Load, id)
	conn, err := dialAny(ctx, s.c.addresses(id), func(ctx context.Context, addr string) (net.Conn, error) {
		return mux.Dial(ctx, addr, config, mux.Raft)
	})
	return conn, trust.Explain(err)
}

// dialNode connects to a member for admin RPC.
func (c *Cluster) dialNode(ctx context.Context, id string) (*rpc.Client, error) {
	config := rpc.DialConfig{TLS: trust.ClientConfig(c.id.Load, id)}
	client, err := dialAny(ctx, c.addresses(id), config.Dial)
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

// servers lists the servers of Raft's configuration, and returns its index.
func (c *Cluster) servers() ([]server, uint64) {
	all, index := c.Store().Servers()
	list := make([]server, len(all))
	for i, s := range all {
		list[i] = server{s.ID, s.Voter}
	}
	return list, index
}

// watchLeader records each change of the leader.
func (c *Cluster) watchLeader() {
	for {
		changes := c.Store().Changes()
		leadership := c.Store().Leadership()
		c.mu.Lock()
		if leadership.Leader != c.leader.id {
			c.leader = leader{leadership.Leader, time.Now()}
			c.beginTerm(leadership.Leader)
			close(c.changed)
			c.changed = make(chan struct{})
			c.log.Info("leader", "id", leadership.Leader, "self", leadership.Leader == c.ID(), "term", leadership.Term)
		}
		c.mu.Unlock()
		notify(c.leadWake)
		select {
		case <-changes:
		case <-c.Store().Failed():
			c.fail(c.Store().Err())
			return
		case <-c.ctx.Done():
			return
		}
	}
}
