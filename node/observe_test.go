package node

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"penstock/internal/testkit"
	"penstock/node/api"
	"penstock/node/nodetest"
	"penstock/node/rpc"
)

// TestAccessLog: closed writes a line at the end of a connection, all writes one
// at connect too, off writes none.
func TestAccessLog(t *testing.T) {
	for mode, want := range map[string][]string{
		AccessOff:    nil,
		AccessClosed: {"connection closed"},
		AccessAll:    {"connection opened", "connection closed"},
	} {
		t.Run(mode, func(t *testing.T) {
			b := nodetest.NewBackend(t, "b")
			n := startNode(t, nodetest.OneService(b), func(c *Config) { c.AccessLog, c.AccessJSON = mode, true })
			conn, _ := nodetest.Dial(t, n.at(t, "edge"))
			nodetest.Echo(t, conn)
			conn.Close()
			testkit.WaitFor(t, "the end of the connection", func() bool {
				return n.metric(t, `penstock_connections_total{listener="edge",result="client_fin",service="apps"}`) == "1"
			})
			testkit.WaitFor(t, "the lines", func() bool { return strings.Count(n.lines.String(), "\n") == len(want) })
			var got []string
			for line := range strings.Lines(n.lines.String()) {
				var l struct {
					Msg, Listener, Client, Service, Endpoint, Reason string
					In, Out                                          int
				}
				if err := json.Unmarshal([]byte(line), &l); err != nil {
					t.Fatal(err)
				}
				got = append(got, l.Msg)
				if l.Listener != "edge" || l.Client != conn.LocalAddr().String() || l.Service != "apps" || l.Endpoint != b.At() {
					t.Errorf("line %s", line)
				}
				if l.Msg == "connection closed" && (l.Reason != "client_fin" || l.In != 5 || l.Out != 7) {
					t.Errorf("line %s", line)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("lines %q, want %q", got, want)
			}
		})
	}
}

func TestMetricsCountTraffic(t *testing.T) {
	b := nodetest.NewBackend(t, "b")
	n := startNode(t, nodetest.OneService(b))
	edge := n.at(t, "edge")
	conn, _ := nodetest.Dial(t, edge)
	nodetest.Echo(t, conn)
	const flow = `listener="edge",service="apps"`
	for series, want := range map[string]string{
		`penstock_connections{` + flow + `}`:                                      "1",
		`penstock_routed_connections_total{` + flow + `}`:                         "1",
		`penstock_bytes_total{direction="in",` + flow + `}`:                       "5",
		`penstock_bytes_total{direction="out",` + flow + `}`:                      "7",
		`penstock_connect_duration_seconds_count{service="apps"}`:                 "1",
		`penstock_accepted_connections`:                                           "1",
		`penstock_listener_up{listener="edge"}`:                                   "1",
		`penstock_endpoint_connections{endpoint="` + b.At() + `",service="apps"}`: "1",
		`penstock_resources{kind="Service"}`:                                      "1",
		`penstock_configuration_index`:                                            "1",
		`penstock_ready`:                                                          "1",
		`penstock_build_info{version="test"}`:                                     "1",
	} {
		n.waitMetric(t, series, want) // a loop counts bytes after it has written them
	}
	if err := n.apply(t, strings.Replace(nodetest.OneService(b), "service: apps}", "service: nobody}", 1)); err == nil {
		t.Fatal("a reference to nothing was applied")
	}
	n.mustApply(t, nodetest.OneService(nodetest.NewBackend(t, "c")))
	for result, want := range map[string]string{"refused": "1", "done": "1"} {
		n.waitMetric(t, `penstock_configuration_changes_total{result="`+result+`"}`, want)
	}
}

// TestSeriesOfDeletedListenersAreRemoved: a deleted listener's series are removed once its
// connections have ended.
func TestSeriesOfDeletedListenersAreRemoved(t *testing.T) {
	b := nodetest.NewBackend(t, "b")
	n := startNode(t, nodetest.OneService(b))
	conn, _ := nodetest.Dial(t, n.at(t, "edge"))
	n.mustDelete(t, "listener", "edge")
	n.mustDelete(t, "service", "apps")
	n.data.Sweep(time.Now())
	const series = `penstock_connections{listener="edge",service="apps"}`
	if got := n.metric(t, series); got != "1" {
		t.Errorf("with its connection open the series is %q", got)
	}
	conn.Close()
	testkit.WaitFor(t, "the series to go", func() bool { n.data.Sweep(time.Now()); return n.metric(t, series) == "" })
}

func TestTopReportsRates(t *testing.T) {
	b := nodetest.NewBackend(t, "b")
	n := startNode(t, nodetest.OneService(b))
	conn, _ := nodetest.Dial(t, n.at(t, "edge"))
	echoes := uint64(0)
	// On a busy machine the echo may come after the second sample.
	testkit.WaitFor(t, "a sample of the time of an echo", func() bool {
		samples, rates := 0, false
		request := api.TopRequest{Interval: 100 * time.Millisecond, Count: 2, Connections: 5}
		err := rpc.Stream(t.Context(), n.client, api.MethodTop, request, func(s *api.TopSample) error {
			samples++
			if len(s.Latest) != 1 || s.Latest[0].Service != "apps" || s.Latest[0].Endpoint != b.At() || s.Latest[0].Phase != "relaying" {
				t.Errorf("latest connections %+v", s.Latest)
			}
			if len(s.Flows) != 1 || s.Flows[0].Connections != 1 || s.Connections != 1 || s.Flows[0].Service != "apps" {
				t.Fatalf("sample %+v", s)
			}
			if samples == 1 {
				nodetest.Echo(t, conn)
				echoes++
				return nil
			}
			f := s.Flows[0]
			rates = f.InRate > 0 && f.OutRate > 0 && f.BytesIn == 5*echoes
			return nil
		})
		if err != nil || samples != 2 {
			t.Fatalf("%d samples, %v", samples, err)
		}
		return rates
	})
	err := rpc.Stream(t.Context(), n.client, api.MethodTop, api.TopRequest{Interval: time.Millisecond},
		func(*api.TopSample) error { return nil })
	if err == nil {
		t.Error("an interval of 1ms was taken")
	}
}

func TestHTTP(t *testing.T) {
	b := nodetest.NewBackend(t, "b")
	n := startNode(t, nodetest.OneService(b))
	for _, c := range []struct {
		path string
		code int
		body string
	}{
		{"/healthz", 200, "ok"},
		{"/readyz", 200, "ready"},
		{"/v1/status", 200, `"appliedIndex":1`},
		{"/v1/members", 200, `"role":"leader"`},
		{"/v1/version", 200, `"version":"test"`},
		{"/v1/services", 200, `[{"kind":"Service"`},
		{"/v1/service/apps", 200, `{"kind":"Service"`},
		{"/v1/service/nobody", 404, `there is no Service \"nobody\"`},
		{"/v1/servants", 404, `unknown kind`},
		{"/ui/", 200, "<!doctype html>"},
		{"/debug/pprof/", 404, ""},
	} {
		if code, body := n.get(t, c.path); code != c.code || !strings.Contains(body, c.body) {
			t.Errorf("%s: %d %s", c.path, code, body)
		}
	}
	for host, want := range map[string]int{
		"localhost:80": 200, "LOCALHOST": 200, "127.9.9.9:1": 200, "[::1]:80": 200, "::1": 200,
		"evil.example": 403, "127.0.0.1.evil.example:80": 403, "10.0.0.1": 403, "localhost.evil.example": 403,
	} {
		if code, _ := n.getAs(t, "/v1/status", host); code != want {
			t.Errorf("host %s: %d, want %d", host, code, want)
		}
	}
	profiled := startNode(t, "", func(c *Config) { c.Pprof = true })
	// The command line may hold a token.
	if code, _ := profiled.get(t, "/debug/pprof/cmdline"); code != 404 {
		t.Errorf("the command line: %d", code)
	}
	if code, _ := profiled.get(t, "/debug/pprof/heap"); code != 200 {
		t.Errorf("pprof where it is asked for: %d", code)
	}
}

// TestAdminPortAbuseDoesNotAffectOthers: after garbage on the admin port the node
// still serves.
func TestAdminPortAbuseDoesNotAffectOthers(t *testing.T) {
	b := nodetest.NewBackend(t, "b")
	n := startNode(t, nodetest.OneService(b))
	n.mustStatus(t) // opens a connection before the abuse
	for _, garbage := range []string{
		"GET / HTTP/1.1\r\n\r\n",
		"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
		"APSK\x01\x01\x00\x00\xff\xff\xff\xff\x01aaaaaaaa",
		strings.Repeat("\x00", 5000),
	} {
		conn, err := net.Dial("tcp", n.AdminAddr())
		if err != nil {
			t.Fatal(err)
		}
		conn.SetDeadline(time.Now().Add(time.Minute))
		io.WriteString(conn, garbage)
		io.Copy(io.Discard, conn)
		conn.Close()
	}
	if s := n.mustStatus(t); len(s.Listeners) != 1 {
		t.Errorf("status %+v", s)
	}
	if _, name := nodetest.Dial(t, n.at(t, "edge")); name != "b" {
		t.Errorf("came to %q", name)
	}
}

func TestSystemdIsNotified(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	socket.SetDeadline(time.Now().Add(time.Minute))
	t.Setenv("NOTIFY_SOCKET", path)
	n := startNode(t, "")
	n.Stop(t.Context())
	for _, want := range []string{"READY=1", "STOPPING=1"} {
		b := make([]byte, 100)
		if k, err := socket.Read(b); err != nil || string(b[:k]) != want {
			t.Errorf("told %q, %v; want %s", b[:k], err, want)
		}
	}
}

func TestExplainRefusesInvalidRequests(t *testing.T) {
	n := startNode(t, nodetest.OneService(nodetest.NewBackend(t, "b")))
	for _, r := range []api.ExplainRequest{{Listener: "nobody"}, {Listener: "edge", Client: "not an address"}} {
		_, err := rpc.Call[struct{}](t.Context(), n.client, api.MethodExplain, r)
		if err == nil || !strings.Contains(fmt.Sprint(err), "no") {
			t.Errorf("%+v: %v", r, err)
		}
	}
}
