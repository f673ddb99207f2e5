package session

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"penstock/internal/testkit"
	"penstock/kafka/filter"
	"penstock/netio"
)

// dialFrom connects from one of this machine's addresses.
func dialFrom(t *testing.T, from, to string) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: testkit.Patience}
	c, err := d.Dial("tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(testkit.Patience)); err != nil {
		t.Fatal(err)
	}
	return c
}

// listener tells of each connection by which something comes.
func listener(t *testing.T) (addr string, heard chan struct{}) {
	t.Helper()
	heard = make(chan struct{}, 100)
	return testkit.Serve(t, func(c net.Conn) {
		if _, err := c.Read(make([]byte, 1)); err == nil {
			heard <- struct{}{}
			_, _ = io.Copy(io.Discard, c)
		}
	}), heard
}

// Frames of one address that are never finished, more than fit, keep neither the
// hellos of other listeners out nor the frames of other addresses.
func TestFramesOfOneAddressDoNotStarveOthers(t *testing.T) {
	const budget = 2 << 20
	for name, api := range map[string]string{"before the client has logged in": "SaslAuthenticate", "of any API": "Metadata"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRoomOf(t, budget, Limits{FrameTimeout: time.Hour, FrameTimeoutEarly: time.Hour}, eager{filter.Whole})
			broker, heard := listener(t)
			addr := r.serve(t, "kafka", broker)
			frame := sent{key: keyOf(api), version: 1, id: 1, body: make([]byte, 64<<10-64)}.request()
			for range budget/(64<<10) + 8 {
				c := dialFrom(t, "127.0.0.9", addr)
				if _, err := c.Write(frame[:len(frame)-1]); err != nil {
					t.Fatal(err)
				}
			}
			testkit.WaitFor(t, "memory to be used up", func() bool { return r.Stats().BudgetUsed > budget*5/8 })

			small := dialFrom(t, "127.0.0.10", addr)
			if _, err := small.Write(frame); err != nil {
				t.Fatal(err)
			}
			testkit.Receive(t, "memory for the frame of another address", heard)
			service, heard := listener(t)
			r.mu.Lock()
			r.plain, r.targets["tls"] = true, service
			r.listeners = append(r.listeners, netio.Listener{Name: "tls", Network: "tcp", Address: "127.0.0.1:0",
				Mode: netio.ModeHello, HelloTimeout: time.Hour})
			list := append([]netio.Listener(nil), r.listeners...)
			r.mu.Unlock()
			r.SetListeners(list)
			for i := range 20 {
				c := dialFrom(t, "127.0.0.10", r.Listeners()[1].Address)
				go func() { _ = tls.Client(c, &tls.Config{ServerName: "api.example.com"}).Handshake() }()
				testkit.Receive(t, fmt.Sprintf("hello %d to be routed", i), heard)
			}
		})
	}
}

// What a client says before the broker knows it is small, and has 5 s.
func TestEarlyFramesAreBoundedInSizeAndTime(t *testing.T) {
	for name, test := range map[string]struct {
		api  string
		size int
		why  netio.Reason
		last time.Duration // still there then; 0: not at all
	}{
		"a large ApiVersions":       {"ApiVersions", maxHandshake + 100, FrameTooLarge, 0},
		"a large SaslHandshake":     {"SaslHandshake", maxHandshake + 100, FrameTooLarge, 0},
		"a large Metadata":          {"Metadata", maxFirstFrame + 100, FrameTooLarge, 0},
		"a slow ApiVersions":        {"ApiVersions", 100, FrameTimeout, 4 * time.Second},
		"a slow token":              {"SaslAuthenticate", 60 << 10, FrameTimeout, 4 * time.Second},
		"a slow Metadata":           {"Metadata", 60 << 10, FrameTimeout, 4 * time.Second},
		"a Produce, which is large": {"Produce", maxFirstFrame + 100, FrameTimeout, 29 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(Limits{}, eager{filter.Whole})
			b := sent{key: keyOf(test.api), version: 1, id: 1, body: make([]byte, test.size)}.request()
			w.receive(0, b[:len(b)-1], false)
			if test.last == 0 {
				if w.why != test.why {
					t.Errorf("ended by %q (%v)", w.why, w.err)
				}
				w.finish()
				return
			}
			if w.pass(test.last); w.over > 0 {
				t.Fatalf("ended by %q (%v)", w.why, w.err)
			}
			if w.pass(2 * time.Second); w.why != test.why {
				t.Errorf("ended by %q (%v)", w.why, w.err)
			}
			w.finish()
		})
	}
}

// A frame that has begun is charged however small it is, and so is a header with
// a long client id; what is whole at once is not.
func TestEarlyFramesAreCharged(t *testing.T) {
	w := newWorld(Limits{})
	w.budget = 1 << 20
	b := sent{key: keyOf("ApiVersions"), version: 0, id: 1}.request()
	w.receive(0, b, false)
	if w.used != 0 {
		t.Errorf("%d bytes charged for a complete frame", w.used)
	}
	b = sent{key: keyOf("SaslAuthenticate"), version: 0, id: 2, body: make([]byte, 2000)}.request()
	w.receive(0, b[:1000], false)
	if w.used == 0 {
		t.Error("nothing is charged for an incomplete token")
	}
	w.receive(0, b[1000:], false)
	if w.used != 0 {
		t.Errorf("%d bytes are still charged", w.used)
	}
	w.finish()
	w = newWorld(Limits{})
	w.budget = 1 << 20
	long := append([]byte{0, 1, 0, 0, 0, 3, 0, 1, 0, 0, 0, 1, 0x70, 0}, make([]byte, 20000)...) // a client id of 28 KiB
	w.receive(0, long, false)
	if w.used < 20000 {
		t.Errorf("%d bytes charged for a header of 28 KiB", w.used)
	}
	w.finish()
}
