package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"penstock/internal/testkit/process"
)

const patience = 20 * time.Second

type counts struct {
	open, long, done, exchanges, broken int
}

// load runs the clients.
type load struct {
	w *fixtures
	n int

	mu     sync.Mutex
	c      counts
	faults []string
}

func newLoad(w *fixtures, n int) *load { return &load{w: w, n: n} }

// start opens the connections; stop waits for them to end with ctx.
func (l *load) start(ctx context.Context) (stop func()) {
	var wg sync.WaitGroup
	for i := range l.n {
		wg.Go(func() {
			if i%2 == 0 {
				l.one(ctx, i/2, true)
				return
			}
			for ctx.Err() == nil {
				l.one(ctx, i/2, false)
			}
		})
	}
	return wg.Wait
}

// one opens a connection of kind i and makes exchanges on it: until ctx ends if
// it is long, otherwise up to 20.
func (l *load) one(ctx context.Context, i int, long bool) {
	c, err := l.dial(ctx, i)
	if err != nil {
		if ctx.Err() == nil {
			l.fault(fmt.Errorf("connect, kind %d: %w", i%4, err))
		}
		return
	}
	defer c.Close()
	l.add(func(n *counts) {
		n.open++
		if long {
			n.long++
		}
	})
	defer l.add(func(n *counts) { n.open-- })
	exchanges := 1 + rand.IntN(20)
	for k := 0; (long || k < exchanges) && ctx.Err() == nil; k++ {
		if err := exchange(c, 1+rand.IntN(32<<10)); err != nil {
			l.fault(fmt.Errorf("exchange %d, kind %d, long %v: %w", k, i%4, long, err))
			return
		}
		l.add(func(n *counts) { n.exchanges++ })
		pause(ctx, time.Duration(100+rand.IntN(900))*time.Millisecond)
	}
	if !long {
		l.add(func(n *counts) { n.done++ })
	}
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

func (l *load) dial(ctx context.Context, i int) (net.Conn, error) {
	port, conf := l.w.plainPort, (*tls.Config)(nil)
	switch i % 4 {
	case 2:
		port, conf = l.w.sniPort, l.w.clientTLS(passName)
	case 3:
		port, conf = l.w.tlsPort, l.w.clientTLS(endName)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	d := net.Dialer{}
	if conf == nil {
		return d.DialContext(ctx, "tcp", process.Loopback(port))
	}
	t := tls.Dialer{NetDialer: &d, Config: conf}
	return t.DialContext(ctx, "tcp", process.Loopback(port))
}

// exchange sends n bytes and expects their echo.
func exchange(c net.Conn, n int) error {
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	out, in := make([]byte, n), make([]byte, n)
	seed := byte(rand.IntN(256))
	for i := range out {
		out[i] = seed + byte(i)
	}
	wrote := make(chan error, 1)
	go func() {
		_, err := c.Write(out)
		wrote <- err
	}()
	_, err := io.ReadFull(c, in)
	if err := errors.Join(err, <-wrote); err != nil {
		return err
	}
	if string(in) != string(out) {
		return errors.New("what came back differs from what was sent")
	}
	return nil
}

func (l *load) add(f func(*counts)) {
	l.mu.Lock()
	f(&l.c)
	l.mu.Unlock()
}

func (l *load) fault(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.c.broken++
	if len(l.faults) < 20 {
		l.faults = append(l.faults, err.Error())
	}
}

func (l *load) counts() counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.c
}

func (l *load) verdict() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.c.broken == 0 && l.c.exchanges > 0 {
		return nil
	}
	err := fmt.Errorf("%d connections broke, %d exchanges were made", l.c.broken, l.c.exchanges)
	for _, f := range l.faults {
		err = errors.Join(err, errors.New(f))
	}
	return err
}
