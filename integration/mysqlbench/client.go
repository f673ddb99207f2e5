package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"penstock/mysql/wire"
)

// client is a session that is logged in.
type client struct {
	net.Conn
	buf []byte // for answers
}

// open opens a session through a path and logs in, without a password.
func (p *path) open() (*client, error) {
	d := net.Dialer{Timeout: 10 * time.Second}
	c, err := d.DialContext(context.Background(), "tcp", p.address)
	if err != nil {
		return nil, err
	}
	if err = c.SetDeadline(time.Now().Add(30 * time.Second)); err == nil {
		c, err = p.logIn(c)
	}
	if err == nil {
		err = c.SetDeadline(time.Time{})
	}
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("%s: %w", p.name, err)
	}
	return &client{Conn: c}, nil
}

// logIn does what a driver does, with TLS where the path has it.
func (p *path) logIn(c net.Conn) (net.Conn, error) {
	if p.tls == tlsFirst {
		t := tls.Client(c, p.config)
		if err := t.Handshake(); err != nil { //nolint:noctx // the connection has a deadline
			return c, err
		}
		c = t
	}
	// 512 bytes hold every packet of the login; nothing follows one unasked.
	in := bufio.NewReaderSize(c, 512)
	payload, seq, err := readPacket(in)
	if err != nil {
		return c, err
	}
	if _, err := wire.ParseGreeting(payload); err != nil {
		return c, err
	}
	login := wire.Login{Capabilities: capabilities, MaxPacket: wire.MaxPayload, Collation: 45, User: "bench", Plugin: nativePlugin}
	if p.tls == tlsAsked {
		login.Capabilities |= wire.SSL
		seq++
		if _, err := c.Write(wire.AppendPacket(nil, seq, wire.AppendSSLRequest(nil, &login))); err != nil {
			return c, err
		}
		t := tls.Client(c, p.config)
		if err := t.Handshake(); err != nil { //nolint:noctx // the connection has a deadline
			return c, err
		}
		c, in = t, bufio.NewReaderSize(t, 512)
	}
	_, err = c.Write(wire.AppendPacket(nil, seq+1, wire.AppendLogin(nil, &login)))
	for err == nil {
		if payload, seq, err = readPacket(in); err != nil {
			break
		}
		switch {
		case wire.IsOK(payload):
			return c, nil
		case len(payload) > 0 && payload[0] == 0xfe: // another plugin; without a password it wants nothing
			_, err = c.Write(wire.AppendPacket(nil, seq+1, nil))
		case wire.IsError(payload):
			e, parse := wire.ParseError(payload)
			err = errors.Join(e, parse)
		default:
			err = errors.New("an unexpected packet in the login")
		}
	}
	return c, err
}

// ask sends a query and reads the answer.
func (c *client) ask(query, want []byte) error {
	if cap(c.buf) < len(want) {
		c.buf = make([]byte, len(want))
	}
	if _, err := c.Write(query); err != nil {
		return err
	}
	return answered(c, c.buf, want)
}

// leave ends the session as a driver does.
func (c *client) leave() error {
	_, err := c.Write(quit)
	return errors.Join(err, c.Close())
}

// each runs n workers until the time is over and sums up what they did.
func each(n int, d time.Duration, work func(over *atomic.Bool) (float64, error)) (float64, error) {
	var over atomic.Bool
	timer := time.AfterFunc(d, func() { over.Store(true) })
	defer timer.Stop()
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		sum  float64
		errs []error
	)
	for range n {
		wg.Go(func() {
			units, err := work(&over)
			mu.Lock()
			defer mu.Unlock()
			sum += units
			if err != nil {
				errs = append(errs, err)
				over.Store(true)
			}
		})
	}
	wg.Wait()
	return sum, errors.Join(errs...)
}
