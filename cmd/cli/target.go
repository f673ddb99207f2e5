package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"penstock/cmd/progress"
	"penstock/node/api"
	"penstock/node/rpc"
	"penstock/node/trust"
)

// target is the node that a command connects to.
type target struct {
	addr, token string
	timeout     time.Duration
}

const defaultAddr = "127.0.0.1:7947"

func (t *target) flags(f *pflag.FlagSet) {
	f.StringVar(&t.addr, "addr", "", "node to contact: host:port of its cluster port, or unix:PATH (PENSTOCK_ADDR; default "+defaultAddr+")")
	f.StringVar(&t.token, "token", "", "token to authenticate with; set it in PENSTOCK_TOKEN to hide it from process lists")
	f.DurationVar(&t.timeout, "timeout", 30*time.Second, "how long to wait for an answer")
}

// address is the address that was asked for.
func (t *target) address() string {
	return orElse(t.addr, orElse(os.Getenv("PENSTOCK_ADDR"), defaultAddr))
}

// dial connects to the node: in plain text to its unix socket, which grants its
// owner all permissions, and to a loopback address if there is no token;
// otherwise with TLS, to nodes of the token's cluster only.
func (t *target) dial(ctx context.Context) (*rpc.Client, error) {
	addr := t.address()
	if t.timeout <= 0 {
		return nil, usagef("--timeout %v: want more than 0s", t.timeout)
	}
	if !strings.HasPrefix(addr, "unix:") && !strings.Contains(addr, ":") {
		return nil, usagef("--addr %s: want host:port or unix:PATH", addr)
	}
	text := strings.TrimSpace(orElse(t.token, os.Getenv("PENSTOCK_TOKEN")))
	switch {
	case strings.HasPrefix(addr, "unix:"):
		return rpc.Dial(ctx, addr)
	case text == "" && !onThisMachine(addr):
		return nil, usagef("--addr %s: a node on another machine needs a token: --token or PENSTOCK_TOKEN; without one the "+
			"connection would not be encrypted", addr)
	case text == "":
		return rpc.Dial(ctx, addr)
	}
	token, err := trust.ParseToken(text)
	switch {
	case err != nil:
		return nil, usagef("--token or PENSTOCK_TOKEN: %v", err)
	case token.Kind == trust.Join:
		return nil, usagef("--token or PENSTOCK_TOKEN: this token is for nodes that join, not for commands; `penstock token create " +
			"--role reader` creates one for commands")
	case token.Kind == trust.Expect:
		return nil, usagef("--token or PENSTOCK_TOKEN: this token is for `penstock start --expect`, not for commands")
	}
	return rpc.DialConfig{TLS: trust.TokenConfig(token), Token: text}.Dial(ctx, addr)
}

// onThisMachine reports whether traffic to addr stays on this machine.
// Plain-text nodes listen on loopback addresses only.
func onThisMachine(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	ip, perr := netip.ParseAddr(host)
	return err != nil || host == "" || host == "localhost" || perr == nil && ip.Unmap().IsLoopback()
}

// ask makes one request, without retries.
func ask[Resp any](cmd *cobra.Command, t *target, method string, req any) (*Resp, error) {
	ctx, cancel := context.WithTimeout(cmd.Context(), t.timeout)
	defer cancel()
	c, err := t.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return rpc.Call[Resp](ctx, c, method, req)
}

// newID returns a change ID, under which a repeated request acts once.
func newID() []byte {
	id := make([]byte, 16)
	_, _ = rand.Read(id) // crypto/rand never fails
	return id
}

// Bounds of the pauses between retries.
const minBackoff, maxBackoff = 100 * time.Millisecond, time.Second

// askWithRetries makes a request that carries an ID, and repeats it under that
// ID while its outcome is unknown, for at most --timeout plus longer, the
// request's own wait. It does not retry a node that was never reached.
func askWithRetries[Resp any](cmd *cobra.Command, t *target, longer time.Duration, method string, req any) (*Resp, error) {
	ctx, cancel := context.WithTimeout(cmd.Context(), t.timeout+longer)
	defer cancel()
	bar := progress.Start(cmd.ErrOrStderr(), "waiting for the nodes to act on it", progress.Ends)
	defer bar.Stop()
	var last error // why the outcome is unknown; nil: nothing was sent yet
	for pause := minBackoff; ; pause = min(2*pause, maxBackoff) {
		r, sent, err := askOnce[Resp](ctx, t, method, req)
		switch {
		case err == nil:
			return r, nil
		case sent && mayHaveActed(err):
			last = err
		case last != nil && retryable(err): // retry: the first attempt may still have acted
		case sent || last == nil: // refused, or never reached
			return nil, err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, &unknownOutcomeError{last}
		}
	}
}

// askOnce makes a request, and reports whether it may have reached a node.
func askOnce[Resp any](ctx context.Context, t *target, method string, req any) (r *Resp, sent bool, err error) {
	c, err := t.dial(ctx)
	if err != nil {
		return nil, false, err
	}
	defer c.Close()
	r, err = rpc.Call[Resp](ctx, c, method, req)
	return r, true, err
}

// mayHaveActed reports whether a request that failed with err may have acted, or
// may still act.
func mayHaveActed(err error) bool {
	var refusal *api.Error
	if errors.As(err, &refusal) {
		return refusal.Code == api.UnknownOutcome || refusal.Code == api.Deadline
	}
	return errors.Is(err, rpc.ErrUnreachable) || errors.Is(err, context.DeadlineExceeded)
}

// retryable reports whether a request did not act, for a reason that says
// nothing about an earlier one under the same ID.
func retryable(err error) bool {
	var refusal *api.Error
	return errors.As(err, &refusal) && (refusal.Code == api.NoLeader || refusal.Code == api.Unavailable || refusal.Code == api.Busy)
}

// unknownOutcomeError ends a command whose change may or may not have been made.
type unknownOutcomeError struct{ cause error }

func (e *unknownOutcomeError) Error() string {
	why := e.cause.Error()
	if errors.Is(e.cause, context.DeadlineExceeded) {
		why = "no answer in time"
	}
	return fmt.Sprintf("outcome unknown: the change may have been made, or may still be made: %s; `penstock history` shows whether "+
		"it was", why)
}

func (e *unknownOutcomeError) Unwrap() error { return e.cause }

// follow makes a streaming request and calls show for each item until the
// stream ends. Ctrl-C and SIGTERM end it without an error.
func follow[Item any](ctx context.Context, t *target, method string, req any, show func(*Item) error) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	dialing, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	c, err := t.dial(dialing)
	if err != nil {
		return err
	}
	defer c.Close()
	err = rpc.Stream(ctx, c, method, req, show)
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
