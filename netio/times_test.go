package netio

import (
	"crypto/tls"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"
	"time"
	"unsafe"

	"penstock/internal/testkit"
	"penstock/netio/clienthello"
)

// The runtime allocates 512 bytes or 576: one field more would cost 64 bytes for each
// idle connection.
func TestConnectionsAreSmall(t *testing.T) {
	if n := unsafe.Sizeof(Conn{}); n > 512 {
		t.Errorf("a connection has %d bytes, want at most 512", n)
	}
}

func TestStampsKeepTimes(t *testing.T) {
	for _, c := range []struct{ is, want time.Duration }{
		{0, time.Microsecond},
		{-time.Second, time.Microsecond},
		{999, time.Microsecond},
		{1500, time.Microsecond},
		{4095 * time.Microsecond, 4095 * time.Microsecond},
		{4097 * time.Microsecond, 4096 * time.Microsecond},
		{time.Second, time.Second - 64*time.Microsecond},
		{40 * 24 * time.Hour, 959*time.Hour + 48*time.Minute + 21189632*time.Microsecond},
		{51 * 24 * time.Hour, 4095 << 30 * time.Microsecond},
		{1<<63 - 1, 4095 << 30 * time.Microsecond},
	} {
		if got := stampOf(c.is).duration(); got != c.want {
			t.Errorf("%v is kept as %v, want %v", c.is, got, c.want)
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 100_000 {
		a := time.Duration(r.Int64N(1 << r.IntN(52)))
		b := a + time.Duration(r.Int64N(1<<r.IntN(40)))
		if stampOf(a) > stampOf(b) {
			t.Fatalf("%v has a larger stamp than %v", a, b)
		}
		us := max(a.Truncate(time.Microsecond), time.Microsecond)
		if got := stampOf(a).duration(); got > us || us-got > us/stampUnit {
			t.Fatalf("%v is kept as %v", a, got)
		}
	}
	if stamp(0).duration() != 0 {
		t.Error("never is some time")
	}
}

// inOrder reports whether all of the times are known and none is before the one ahead.
func inOrder(times ...time.Duration) bool {
	for i, d := range times {
		if d == 0 || i > 0 && d < times[i-1] {
			return false
		}
	}
	return true
}

func TestTimesOfAPlainConnection(t *testing.T) {
	r := newRig(t, Config{}, testkit.Serve(t, echo), Profile{})
	before := time.Now()
	c := dial(t, r.serve(t, Listener{}))
	r.waitPhase(t, "relaying")
	quiet := time.Now()
	roundTrip(t, c, "hello")
	c.CloseWrite()
	mustEnd(t, c, "")
	e := r.wantEnd(t, ClientFIN)
	got, wall := e.times, e.accepted
	if !inOrder(got.Identified, got.Decided, got.Connecting, got.Connected, got.FirstIn, got.FirstOut) {
		t.Errorf("times %+v are not in order", got)
	}
	if least := quiet.Sub(wall) - time.Millisecond; got.FirstIn < least-least/1000 {
		t.Errorf("the first byte came after %v, it was sent after more than %v", got.FirstIn, least)
	}
	// A turn of a loop may lie between the connection's coming and its clock.
	if wall.Before(before.Add(-time.Minute)) || wall.After(quiet) {
		t.Errorf("accepted at %v, want between %v and %v", wall, before, quiet)
	}
}

// A hello that is passed through is the first of what the client sends; one that is
// answered here is not.
func TestTimesWithTLS(t *testing.T) {
	spec, config := terminating(t, "api.example.com")
	own, _ := spec.TLSConfig(&clienthello.Hello{ServerName: "api.example.com"})
	for _, test := range []struct {
		name string
		spec Listener
		to   string
	}{
		{"passed through", Listener{Mode: ModeHello}, testkit.Serve(t, func(c *net.TCPConn) {
			over := tls.Server(c, own)
			_, _ = io.Copy(over, over)
		})},
		{"terminated", spec, testkit.Serve(t, echo)},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newRig(t, Config{}, test.to, Profile{})
			raw := dial(t, r.serve(t, test.spec))
			c := tls.Client(raw, config)
			if err := c.Handshake(); err != nil {
				t.Fatal(err)
			}
			r.waitPhase(t, "relaying")
			roundTrip(t, c, "hello")
			reset(t, raw)
			got := r.waitEndings(t, 1)[0].times
			if !inOrder(got.Identified, got.Decided, got.Connecting, got.Connected, got.FirstOut) {
				t.Errorf("times %+v are not in order", got)
			}
			if passed := test.spec.Mode == ModeHello; passed && !inOrder(got.FirstIn, got.Identified) || !passed && !inOrder(got.Connected, got.FirstIn) {
				t.Errorf("the first byte of the client is at the wrong place in %+v", got)
			}
		})
	}
}

// A PROXY header is no byte of what the client sends; what comes behind it is.
func TestTimesBehindAProxyHeader(t *testing.T) {
	for data, first := range map[string]bool{"": false, "hello": true} {
		r := newRig(t, Config{}, testkit.Serve(t, echo), Profile{})
		c := dial(t, r.serve(t, Listener{ProxyFrom: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}))
		mustWrite(t, c, "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n"+data)
		c.CloseWrite()
		mustEnd(t, c, data)
		if got := r.wantEnd(t, ClientFIN).times; got.Identified == 0 || (got.FirstIn != 0) != first || (got.FirstOut != 0) != first {
			t.Errorf("with %q behind the header: %+v", data, got)
		}
	}
}

// A Greeter knows its client when it asks for an endpoint, however long it has spoken
// with it; the last of the endpoints that it connects to is the one that has it.
func TestTimesOfAGreeter(t *testing.T) {
	r := newRig(t, Config{}, "", Profile{})
	greeted(t, r, nil, r.at(lineServer{name: "a", refuse: true}.serve(t)), r.at(lineServer{name: "b"}.serve(t)))
	c := dial(t, r.serve(t, Listener{}))
	mustRead(t, c, "hello\n")
	r.onConns(func(c *Conn) {
		if got := c.Times(); got != (Times{}) {
			t.Errorf("times %+v before the login", got)
		}
	})
	mustWrite(t, c, "login me\n")
	mustRead(t, c, "ok\n")
	ask(t, c, "b", "who")
	c.CloseWrite()
	mustEnd(t, c, "")
	if got := r.wantEnd(t, ClientFIN).times; !inOrder(got.FirstIn, got.Identified, got.Decided, got.Connecting, got.Connected) {
		t.Errorf("times %+v are not in order", got)
	}
}

// What never happened has no time.
func TestTimesOfAConnectionThatGoesNowhere(t *testing.T) {
	r := newRig(t, Config{}, testkit.FreeAddress(t), Profile{})
	mustBeTurnedAway(t, r.serve(t, Listener{}))
	got := r.wantEnd(t, ConnectRefused).times
	if !inOrder(got.Identified, got.Decided, got.Connecting) || got.Connected != 0 || got.FirstIn != 0 || got.FirstOut != 0 {
		t.Errorf("times %+v of a connection that no endpoint took", got)
	}
}
