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
	maxSeedIPs    = 8 // addresses of one name
	joinsAtATime  = 8
	triesPerRound = 3
	// A node that does not answer is tried less and less often: up to so many
	// times the first pause.
	maxDeadPause = 6
	maxSeedPause = 30
)

// healer finds members again that were lost. memberlist stops to look for the
// dead after a while, so two halves of a partition would stay apart.
type healer struct {
	g *Gossip

	mu    sync.Mutex
	seeds []string // host:port, the latest last

	// Only run touches these.
	tries map[string]*try // by address
}

// try is when an address is tried again.
type try struct {
	next  time.Time
	pause time.Duration
}

func newHealer(g *Gossip) *healer { return &healer{g: g, tries: map[string]*try{}} }

func (h *healer) remember(addrs []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, a := range addrs {
		h.seeds = slices.DeleteFunc(h.seeds, func(s string) bool { return s == a })
		h.seeds = append(h.seeds, a)
	}
	h.seeds = slices.Clone(h.seeds[max(0, len(h.seeds)-maxSeeds):])
}

// run looks for lost members until the end. While none is lost and each seed
// is a member it sends nothing.
func (h *healer) run() {
	for {
		pause := h.g.timing.heal/2 + rand.N(h.g.timing.heal)
		select {
		case <-time.After(pause):
		case <-h.g.ctx.Done():
			return
		}
		lost := h.lost()
		if len(lost) == 0 {
			continue
		}
		ctx, cancel := context.WithTimeout(h.g.ctx, 2*h.g.timing.stream)
		if n, err := h.g.join(ctx, lost); err != nil {
			h.g.log.Debug("gossip: lost members do not answer", "tried", len(lost), "answered", n, "error", err)
		}
		cancel()
	}
}

// lost are a few addresses at which a lost member may be, whose turn it is.
func (h *healer) lost() (addrs []string) {
	most := map[string]int{} // times the first pause
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
	for a := range h.tries {
		if _, still := most[a]; !still || known[a] {
			delete(h.tries, a)
		}
	}
	for a, times := range most { // in random order
		if known[a] {
			continue
		}
		t := h.tries[a]
		if t == nil {
			t = &try{}
			h.tries[a] = t
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
	answers := make(chan answer, len(addrs)) // nobody waits for a late one
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

// joinOne asks at the addresses of one name until one answers. The names are
// looked up here, since memberlist's own way knows no deadline.
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
			continue // this is the node itself
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
		return fmt.Errorf("join %s: %w: it is this node's own", addr, ErrConfig)
	}
	return fmt.Errorf("join %s: %w", addr, errors.Join(errs...))
}
