package netio

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"penstock/internal/testkit"
	"penstock/netio/clienthello"
	"penstock/netio/proxyproto"
)

const (
	sslRequest    = "\x00\x00\x00\x08\x04\xd2\x16\x2f"
	gssRequest    = "\x00\x00\x00\x08\x04\xd2\x16\x30"
	cancelRequest = "\x00\x00\x00\x10\x04\xd2\x16\x2e\x00\x00\x00\x01\x00\x00\x00\x02"
	startup       = "\x00\x00\x00\x11\x00\x03\x00\x00user\x00me\x00\x00"
)

// postgresServer answers SSLRequest and echoes inside TLS; ahead is expected first.
func postgresServer(t testing.TB, config *tls.Config, ahead, answer string) string {
	return testkit.Serve(t, func(c *net.TCPConn) {
		request := make([]byte, len(ahead)+len(sslRequest))
		if n, err := io.ReadFull(c, request); err != nil || string(request) != ahead+sslRequest {
			if n > 0 {
				t.Errorf("the endpoint got %q, %v", request[:n], err)
			}
			return
		}
		_, _ = io.WriteString(c, answer)
		if answer == "S" {
			over := tls.Server(c, config)
			_, _ = io.Copy(over, over)
			_ = over.Close()
		} else {
			_, _ = io.Copy(io.Discard, c)
		}
	})
}

// postgresRig routes by SNI to the targets, with or without TLS of the node's own.
func postgresRig(t *testing.T, terminate *tls.Config, targets ...Target) (*rig, Listener) {
	r := newRig(t, Config{}, "", Profile{})
	for i := range targets {
		if targets[i].Profile == nil {
			targets[i].Profile = &Profile{}
		}
		targets[i].Profile.Meter = r.meter
	}
	r.route = func(c *Conn) (Plan, Reason) {
		if c.ServerName() != "db.example.com" {
			return nil, "no_route"
		}
		return &plan{targets: targets}, OK
	}
	spec := Listener{Mode: ModeHello, StartTLS: StartTLSPostgres}
	if terminate != nil {
		spec.Mode = ModeTerminate
		spec.TLSConfig = func(*clienthello.Hello) (*tls.Config, Reason) { return terminate, OK }
	}
	return r, spec
}

// SSLRequest is answered and asked on both sides, and a direct hello is taken as it is.
func TestPostgresBeforeTLS(t *testing.T) {
	server, client := secure("db.example.com")
	for name, test := range map[string]struct {
		ahead     string // what the client says before its hello
		answers   string
		terminate bool
		upstream  bool // TLS of the node's own
		proxy     bool
	}{
		"passthrough":        {ahead: sslRequest, answers: "S"},
		"passthrough direct": {},
		"passthrough proxy":  {ahead: sslRequest, answers: "S", proxy: true},
		"gss":                {ahead: gssRequest + sslRequest, answers: "NS"},
		"gss direct":         {ahead: gssRequest, answers: "N"},
		"terminate":          {ahead: sslRequest, answers: "S", terminate: true},
		"terminate direct":   {terminate: true},
		"both":               {ahead: sslRequest, answers: "S", terminate: true, upstream: true},
		"both proxy":         {ahead: sslRequest, answers: "S", terminate: true, upstream: true, proxy: true},
	} {
		t.Run(name, func(t *testing.T) {
			header := ""
			to := Target{Profile: &Profile{}}
			if test.proxy {
				header = "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n"
				to.Profile.SendProxy = proxyproto.V1
			}
			if test.upstream {
				to.Profile.TLS = client
			}
			to.Addr = mustAddr(postgresServer(t, server, header, "S"))
			if test.terminate && !test.upstream {
				to.Addr = mustAddr(testkit.Serve(t, echo))
			}
			var own *tls.Config
			if test.terminate {
				own = server
			}
			r, spec := postgresRig(t, own, to)
			if test.proxy {
				spec.ProxyFrom = loopback
			}
			c := dial(t, r.serve(t, spec))
			mustWrite(t, c, header)
			for i := range len(test.answers) {
				for j := range 8 { // byte by byte
					mustWrite(t, c, test.ahead[8*i+j:8*i+j+1])
				}
				mustRead(t, c, test.answers[i:i+1])
			}
			over := tls.Client(c, client)
			roundTrip(t, over, "hello")
			if err := over.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			mustEnd(t, over, "")
			c.Close()
			if e := r.waitEndings(t, 1)[0]; e.why != ClientFIN && e.why != UpstreamFIN {
				t.Errorf("ended with %q, %v", e.why, e.failure)
			}
			testkit.WaitFor(t, "no bytes to be charged", func() bool { return r.Stats().BudgetUsed == 0 })
		})
	}
}

// Clients that do not use TLS are told so; those that say too much, or what no client
// says, are closed.
func TestPostgresClientsThatAreRefused(t *testing.T) {
	hello := string(clientHello(t, "db.example.com"))
	for name, test := range map[string]struct {
		says string
		why  Reason
		gets string // a part of it; "": the reset that it ends with is all
	}{
		"startup":           {startup, TLSRequired, "C28000\x00M"},
		"after gss":         {gssRequest, TLSRequired, "sslmode=require"},
		"cancel":            {cancelRequest, TLSRequired, "sslmode=require"},
		"HTTP":              {"GET / HTTP/1.1\r\n", BadHello, ""},
		"hello too early":   {sslRequest + hello, BadHello, ""},
		"startup too early": {sslRequest + startup, BadHello, ""},
		"gss too early":     {gssRequest + sslRequest, BadHello, ""},
		"silent":            {"", HelloTimeout, ""},
		"half":              {sslRequest[:5], HelloTimeout, ""},
		"asked and silent":  {sslRequest, HelloTimeout, ""},
		"asked, in clear":   {sslRequest, BadHello, ""},
		"asked twice":       {sslRequest, BadHello, ""},
		"gss twice":         {gssRequest, BadHello, ""},
		"no route":          {sslRequest, "no_route", ""},
	} {
		t.Run(name, func(t *testing.T) {
			r, spec := postgresRig(t, nil, Target{Addr: mustAddr(testkit.FreeAddress(t))})
			if test.why == HelloTimeout {
				spec.HelloTimeout = 150 * time.Millisecond
			}
			c := dial(t, r.serve(t, spec))
			mustWrite(t, c, test.says)
			then := map[string]string{
				"after gss": startup, "asked, in clear": startup, "asked twice": sslRequest, "gss twice": gssRequest,
				"no route": string(clientHello(t, "other.example.com")),
			}[name]
			switch {
			case name == "asked and silent":
				mustRead(t, c, "S")
			case then != "":
				mustRead(t, c, map[string]string{sslRequest: "S", gssRequest: "N"}[test.says])
				mustWrite(t, c, then)
			}
			got, err := io.ReadAll(c)
			if test.why == TLSRequired {
				if err != nil || len(got) < 5 || got[0] != 'E' || !strings.Contains(string(got), test.gets) {
					t.Errorf("read %q, %v", got, err)
				}
			} else if test.why != "no_route" && (err == nil || len(got) > 0) {
				t.Errorf("read %q, %v, want a reset", got, err)
			} else if test.why == "no_route" && !bytes.Equal(got, alertNoRoute) {
				t.Errorf("read %q, want an alert", got)
			}
			r.wantEnd(t, test.why)
		})
	}
}

// An endpoint that does not answer by S is a failed attempt, and the next one is tried.
func TestPostgresEndpointsWithoutTLS(t *testing.T) {
	server, client := secure("db.example.com")
	for name, test := range map[string]struct {
		answer string
		why    Reason
		text   string
	}{
		"no TLS":     {"N", UpstreamTLS, "has no TLS"},
		"an error":   {"E\x00\x00", UpstreamTLS, `answers SSLRequest by "E`},
		"too much":   {"Sx", UpstreamTLS, "1 bytes behind its answer"},
		"no answer":  {"", ConnectTimeout, "connect timeout"},
		"it is gone": {"gone", UpstreamTLS, "instead of answering"},
		"it resets":  {"reset", ConnectError, "reset by peer"},
	} {
		for _, terminate := range []bool{false, true} {
			t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
				addr := postgresServer(t, server, "", test.answer)
				if len(test.answer) > 3 {
					addr = testkit.Serve(t, func(c *net.TCPConn) {
						_, _ = io.ReadFull(c, make([]byte, len(sslRequest)))
						if test.answer == "reset" {
							_ = c.SetLinger(0)
						}
					})
				}
				profile := &Profile{ConnectTimeout: time.Minute}
				if test.why == ConnectTimeout {
					profile.ConnectTimeout = 100 * time.Millisecond
				}
				var own *tls.Config
				if terminate {
					own, profile.TLS = server, client
				}
				good := Target{Addr: mustAddr(postgresServer(t, server, "", "S")), Profile: profile}
				r, spec := postgresRig(t, own, Target{Addr: mustAddr(addr), Profile: profile}, good)
				var p *plan
				route := r.route
				r.route = func(c *Conn) (Plan, Reason) {
					made, why := route(c)
					p, _ = made.(*plan)
					return made, why
				}
				c := dial(t, r.serve(t, spec))
				mustWrite(t, c, sslRequest)
				mustRead(t, c, "S")
				over := tls.Client(c, client)
				roundTrip(t, over, "hello")
				c.Close()
				r.waitEndings(t, 1)
				if len(p.errs) != 1 || ConnectReason(p.errs[0]) != test.why || !strings.Contains(p.errs[0].Error(), test.text) {
					t.Errorf("the plan got %v, want %q", p.errs, test.text)
				}
			})
		}
	}
}

// A hello that is passed through does not go into the mesh: nobody would ask the
// endpoint behind it for TLS.
func TestPostgresIntoTheMesh(t *testing.T) {
	server, client := secure("db.example.com")
	to := Target{Addr: mustAddr(testkit.Serve(t, echo)), Profile: &Profile{
		Preface: func(_ *Conn, dst []byte) ([]byte, error) { return dst, nil },
	}}
	r, spec := postgresRig(t, nil, to)
	c := dial(t, r.serve(t, spec))
	mustWrite(t, c, sslRequest)
	mustRead(t, c, "S")
	if err := tls.Client(c, client).Handshake(); err == nil {
		t.Error("it was let through")
	}
	if e := r.wantEnd(t, UpstreamTLS); !errors.Is(e.failure, ErrUpstreamTLS) {
		t.Errorf("failure %v", e.failure)
	}
	r, spec = postgresRig(t, server, to)
	roundTrip(t, tls.Client(dial(t, r.serve(t, spec)), client), "hello")
}
