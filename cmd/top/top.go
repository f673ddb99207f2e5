// Package top is the full-screen view of a cluster in a terminal, as `penstock top`
// shows it: services, nodes, listeners, connections, virtual clusters and problems, and
// the way from a service to its endpoints, to their connections and to the decision
// behind each.
//
//	err := top.Run(ctx, top.Config{Dial: dial, Addr: "127.0.0.1:7947", Interval: time.Second})
//
// Model is pure: messages in, a picture out. A source asks one node of the cluster for
// what the model wants, and another node once that one no longer answers. The package
// keeps two minutes of rates, which the nodes' history fills at the start; it stores
// nothing, and changes nothing in the cluster.
package top

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/gdamore/tcell/v3"

	"penstock/node/rpc"
)

// Config says what to show.
type Config struct {
	// Dial connects to a node: at "host:port" or, with "", at the address that the user
	// named, which is shown as Addr.
	Dial func(ctx context.Context, addr string) (*rpc.Client, error)
	Addr string
	// Node is the name or ID of the node whose numbers are shown first; "": of all.
	Node string
	// Interval is the time between two samples, at least 100ms.
	Interval time.Duration
}

// minInterval is the shortest interval that nodes take.
const minInterval = 100 * time.Millisecond

// Usable reports whether the terminal that the environment describes can show a screen.
func Usable() bool {
	term := os.Getenv("TERM")
	return term != "" && term != "dumb"
}

// Run shows the screen until the user quits, ctx ends, or the process gets SIGTERM or
// SIGHUP. It fails at once if the first node does not answer, or knows no Config.Node.
func Run(ctx context.Context, cfg Config) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	messages := make(chan any, 64)
	s := newSource(cfg, messages)
	p, err := s.connect(ctx, "")
	if err != nil {
		return err
	}
	if cfg.Node != "" {
		if err := nodeNamed(s.members, cfg.Node); err != nil {
			p.client.Close()
			return err
		}
	}
	glyphs := asciiGlyphs
	if utf8Locale() {
		glyphs = unicodeGlyphs
	}
	t, err := openTerminal()
	if err != nil {
		p.client.Close()
		return err
	}
	defer t.Fini()
	m := newModel(glyphs, time.Local, cfg.Interval, cfg.Node)
	m.size.w, m.size.h = t.Size()
	m.members = s.members
	s.setWant(m.want())
	ctx, cancel := context.WithCancel(ctx)
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel()
	asking.Go(func() { s.run(ctx, p) })
	loop(ctx, t, m, s, messages)
	return nil
}

// loop shows the model, and takes keys and answers to it, until it is done.
func loop(ctx context.Context, t tcell.Screen, m *Model, s *source, messages <-chan any) {
	for !m.done {
		show(t, m.draw())
		select {
		case ev := <-t.EventQ():
			if _, lost := ev.(*tcell.EventError); lost || ev == nil { // the terminal is gone
				return
			}
			m.Update(message(ev))
		case msg := <-messages:
			m.Update(msg)
		case <-ctx.Done():
			return
		}
		for more := true; more && !m.done; { // draw once for all that has come
			select {
			case msg := <-messages:
				m.Update(msg)
			default:
				more = false
			}
		}
		s.setWant(m.want())
	}
}
