package netio

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"penstock/internal/testkit"
	"penstock/internal/testkit/certs"
)

// endpointAt is testkit.Serve on a dedicated IP, with the states of its connections
// from /proc/net/tcp.
func endpointAt(t *testing.T, ip string, serve func(c *net.TCPConn)) (addr string, states func() []string) {
	t.Helper()
	ln := testkit.ListenOn(t, "tcp", ip+":0")
	testkit.ServeOn(t, ln, func(c net.Conn) {
		_ = c.SetDeadline(time.Now().Add(testkit.Patience))
		serve(c.(*net.TCPConn))
	})
	at := ln.Addr().(*net.TCPAddr)
	four := at.IP.To4()
	remote := strings.ToUpper(hex(four[3]) + hex(four[2]) + hex(four[1]) + hex(four[0]) + ":" + hex(byte(at.Port>>8)) + hex(byte(at.Port)))
	return at.String(), func() (list []string) {
		table, err := os.ReadFile("/proc/net/tcp")
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(table)) {
			if f := strings.Fields(line); len(f) > 3 && f[2] == remote {
				list = append(list, f[3])
			}
		}
		return list
	}
}

func hex(b byte) string { return string([]byte{"0123456789abcdef"[b>>4], "0123456789abcdef"[b&15]}) }

// If a client resets or the connection is cut, the connection to the endpoint
// is reset, whatever its state: its local port is free at once instead of in
// TIME_WAIT. So clients that give up cannot exhaust the ports towards an
// endpoint.
func TestWhoIsCutOffLeavesNoPortBehind(t *testing.T) {
	t.Parallel()
	own := certs.SelfSigned("endpoint.example")
	secure := &tls.Config{RootCAs: own.Pool(), ServerName: "endpoint.example"}
	for name, test := range map[string]struct {
		profile Profile
		cut     func(t *testing.T, r *rig, c *net.TCPConn)
		why     Reason
	}{
		"client resets": {Profile{}, func(t *testing.T, _ *rig, c *net.TCPConn) { reset(t, c) }, ClientReset},
		"client resets after its end": {Profile{}, func(t *testing.T, r *rig, c *net.TCPConn) {
			c.CloseWrite()
			testkit.WaitFor(t, "the end to be seen", func() bool {
				seen := false
				r.onConns(func(c *Conn) { seen = c.ClientEnded() })
				return seen
			})
			reset(t, c)
		}, ClientReset},
		"client resets, TLS to the endpoint": {Profile{TLS: secure}, func(t *testing.T, _ *rig, c *net.TCPConn) { reset(t, c) }, ClientReset},
		"half-closed for too long": {
			Profile{HalfClosedTimeout: 50 * time.Millisecond},
			func(_ *testing.T, _ *rig, c *net.TCPConn) { c.CloseWrite() }, HalfClosedTimeout,
		},
		"ended from here": {Profile{}, func(_ *testing.T, r *rig, c *net.TCPConn) {
			r.onConns(func(c *Conn) { c.abort(Internal) })
		}, Internal},
	} {
		t.Run(name, func(t *testing.T) {
			end := make(chan error, 1)
			addr, states := endpointAt(t, "127.77.1.1", func(c *net.TCPConn) {
				var over net.Conn = c
				if test.profile.TLS != nil {
					over = tls.Server(c, &tls.Config{Certificates: []tls.Certificate{own.TLS}})
				}
				_, _ = io.CopyN(over, over, 1)
				var err error
				for err == nil || errors.Is(err, io.EOF) { // a client's half-close comes before its reset
					if _, err = c.Write([]byte("x")); err == nil {
						_, err = c.Read(make([]byte, 1))
					}
				}
				end <- err
			})
			r := newRig(t, Config{Loops: 1}, addr, test.profile)
			c := dial(t, r.serve(t, Listener{}))
			roundTrip(t, c, "x")
			test.cut(t, r, c)
			r.wantEnd(t, test.why)
			if err := <-end; !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
				t.Errorf("the endpoint saw %v, want a reset", err)
			}
			if left := states(); len(left) > 0 {
				t.Errorf("towards the endpoint there are connections in the states %v (06 is TIME_WAIT)", left)
			}
		})
	}
}

// A session that fails because of its client's bytes ends gracefully towards
// the client, and leaves no port in TIME_WAIT either.
func TestAFaultOfASessionLeavesNoPortBehind(t *testing.T) {
	t.Parallel()
	end := make(chan error, 1)
	addr, states := endpointAt(t, "127.77.1.2", func(c *net.TCPConn) {
		_, err := io.Copy(io.Discard, c)
		end <- err
	})
	r := newRig(t, Config{Loops: 1}, "", Profile{})
	r.route = func(*Conn) (Plan, Reason) {
		return newFramed(Target{Addr: mustAddr(addr), Profile: &Profile{Meter: r.meter}}), OK
	}
	c := dial(t, r.serve(t, Listener{}))
	mustWrite(t, c, "\x00\x00\x00\x00F")
	mustEnd(t, c, "")
	r.wantEnd(t, "told")
	if err := <-end; !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the endpoint saw %v, want a reset", err)
	}
	if left := states(); len(left) > 0 {
		t.Errorf("towards the endpoint there are connections in the states %v (06 is TIME_WAIT)", left)
	}
}
