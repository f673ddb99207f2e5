package gossip

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	maxSeeds      = 64
	maxSeedIPs    = 8 // addresses per name
	joinsAtATime  = 8
	triesPerRound = 3
	// The pause between attempts doubles from half of timing.heal up to these
	// multiples of timing.heal.
	maxDeadPause = 6
	maxSeedPause = 30
)

// healer rejoins lost members. memberlist stops contacting the dead after a
// while, so the halves of a partition would stay apart.
type healer struct {
	g *Gossip

	mu    sync.Mutex
	seeds []string // host:port, the latest last

	// Used by run only.
	retries map[string]*retryState // by address
}

// retryState is the schedule of an address.
type retryState struct {
	next  time.Time
	pause time.Duration
}

func newHealer(g *Gossip) *healer { return &healer{g: g, retries: map[string]*retryState{}} }

func (h *healer) addSeeds(addrs []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, a := range addrs {
		h.seeds = slices.DeleteFunc(h.seeds, func(s string) bool { return s == a })
		h.seeds = append(h.seeds, a)
	}
	h.seeds = slices.Clone(h.seeds[max(0, len(h.seeds)-maxSeeds):])
}

// run tries to rejoin lost members until g is closed. It sends nothing while no
// member is dead and each seed is a member.
func (h *healer) run() {
	for {
		pause := h.g.timing.heal/2 + rand.N(h.g.timing.heal)
		select {
		case <-time.After(pause):
		case <-h.g.ctx.Done():
			return
		}
		addrs := h.dueAddrs()
		if len(addrs) == 0 {
			continue
		}
		ctx, cancel := context.WithTimeout(h.g.ctx, 2*h.g.timing.stream)
		if n, err := h.g.join(ctx, addrs); err != nil {
			h.g.log.Debug("gossip: lost members do not respond", "tried", len(addrs), "answered", n, "error", err)
		}
		cancel()
	}
}

// dueAddrs returns a few addresses of lost members or seeds that are due for a
// try.
func (h *healer) dueAddrs() (addrs []string) {
	most := map[string]int{} // maximum pause, as a multiple of timing.heal
	known := map[string]bool{}
	for _, m := range h.g.members.list() {
		switch m.State {
		case Alive:
			known[m.Addr] = true
		case Dead:
			most[m.Addr] = maxDeadPause
		}
	}
	h.mu.Lock()
	for _, s := range h.seeds {
		if _, dead := most[s]; !dead {
			most[s] = maxSeedPause
		}
	}
	h.mu.Unlock()
	now := time.Now()
	for a := range h.retries {
		if _, still := most[a]; !still || known[a] {
			delete(h.retries, a)
		}
	}
	for a, times := range most { // in random order
		if known[a] {
			continue
		}
		t := h.retries[a]
		if t == nil {
			t = &retryState{}
			h.retries[a] = t
		}
		if now.Before(t.next) || len(addrs) >= triesPerRound {
			continue
		}
		first := h.g.timing.heal / 2
		t.pause = min(max(first, 2*t.pause), time.Duration(times)*2*first)
		t.next = now.Add(t.pause)
		addrs = append(addrs, a)
	}
	return addrs
}

// join does a push/pull with each address, several at a time.
func (g *Gossip) join(ctx context.Context, addrs []string) (reached int, err error) {
	if len(addrs) == 0 {
		return 0, nil
	}
	type answer struct {
		ok  bool
		err error
	}
	answers := make(chan answer, len(addrs)) // buffered: late answers are not read
	slots := make(chan struct{}, joinsAtATime)
	for _, a := range addrs {
		started := g.start(func() {
			select {
			case slots <- struct{}{}:
				defer func() { <-slots }()
			case <-ctx.Done():
				answers <- answer{false, ctx.Err()}
				return
			case <-g.ctx.Done():
				answers <- answer{false, ErrClosed}
				return
			}
			err := g.joinOne(ctx, a)
			answers <- answer{err == nil, err}
		})
		if !started {
			return reached, ErrClosed
		}
	}
	var errs []error
	for range addrs {
		select {
		case a := <-answers:
			if a.ok {
				reached++
			} else {
				errs = append(errs, a.err)
			}
		case <-ctx.Done():
			if reached > 0 {
				return reached, nil
			}
			return 0, errors.Join(append(errs, ctx.Err())...)
		}
	}
	if reached > 0 {
		return reached, nil
	}
	return 0, errors.Join(errs...)
}

// joinOne tries the addresses of one host name until one responds. It resolves
// the name here, since memberlist's lookup has no deadline.
func (g *Gossip) joinOne(ctx context.Context, addr string) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("join %.100q: %w", addr, err)
	}
	ips, err := net.DefaultResolver.LookupHost(ctx, host)
	if err != nil {
		return fmt.Errorf("join %s: %w", addr, err)
	}
	var errs []error
	for _, ip := range ips[:min(maxSeedIPs, len(ips))] {
		at := net.JoinHostPort(ip, port)
		if at == g.addr {
			continue // this node itself
		}
		if ctx.Err() != nil || g.ctx.Err() != nil {
			errs = append(errs, context.Cause(ctx))
			break
		}
		if _, err = g.list.Join([]string{at}); err == nil {
			return nil
		}
		errs = append(errs, errors.New(strings.Join(strings.Fields(err.Error()), " ")))
	}
	if len(errs) == 0 {
		return fmt.Errorf("join %s: %w: it is this node's own address", addr, ErrConfig)
	}
	return fmt.Errorf("join %s: %w", addr, errors.Join(errs...))
}
