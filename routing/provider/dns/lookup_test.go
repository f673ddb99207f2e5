package dns

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"penstock/routing/provider"
)

var (
	web    = provider.Query{Service: "web.example.com", Port: "80"}
	webSRV = provider.Query{Service: "_http._tcp.example.com"}
)

func TestAnswers(t *testing.T) {
	many := ""
	for i := range maxTargets + 1 {
		many += fmt.Sprintf("_http._tcp 60 IN SRV 1 1 80 t%d\n", i)
	}
	chain := ""
	for i := range maxChain {
		chain += fmt.Sprintf("c%d 60 IN CNAME c%d\n", i, i+1)
	}
	const both = "a 60 IN A 10.0.0.1\nb 60 IN A 10.0.0.2"
	tests := []struct {
		name, zone string
		bare       bool
		query      provider.Query
		want, err  string
	}{
		{"both families", "web 60 IN A 10.0.0.1\nweb 60 IN A 10.0.0.2\nweb 60 IN AAAA 2001:db8::1", false, web,
			"10.0.0.1:80; 10.0.0.2:80; [2001:db8::1]:80", ""},
		{"an address twice", "web 60 IN A 10.0.0.1\nweb 60 IN AAAA ::ffff:10.0.0.1", false, web, "10.0.0.1:80", ""},
		{"case", "WEB.Example.COM. 60 IN A 10.0.0.1", false, web, "10.0.0.1:80", ""},
		{"absent", "other 60 IN A 10.0.0.1", false, web, "none", ""},
		{"without addresses", "web 60 IN TXT text", false, web, "none", ""},
		{"an alias", "web 60 IN CNAME a\na 60 IN CNAME b\nb 60 IN A 10.0.0.1", false, web, "10.0.0.1:80", ""},
		{"an alias whose end has to be asked for", "web 60 IN CNAME a\na 60 IN CNAME b\nb 60 IN A 10.0.0.1", true, web, "10.0.0.1:80", ""},
		{"an alias of nothing", "web 60 IN CNAME a", false, web, "none", ""},
		{"an alias of nothing, to be asked for", "web 60 IN CNAME a", true, web, "none", ""},
		{"an alias of itself", "web 60 IN CNAME web", false, web, "", "web.example.com. leads to more than 16 CNAMEs"},
		{"aliases of each other, to be asked for", "web 60 IN CNAME a\na 60 IN CNAME web", true, web, "", "more than 16 CNAMEs"},
		{"the longest chain", chain + "c16 60 IN A 10.0.0.1", false, provider.Query{Service: "c0.example.com", Port: "80"}, "10.0.0.1:80", ""},

		{"services", "_http._tcp 60 IN SRV 1 10 8080 a\n_http._tcp 60 IN SRV 1 30 8081 b\n" + both, false, webSRV,
			"10.0.0.1:8080*10; 10.0.0.2:8081*30", ""},
		{"two ports of one host", "_http._tcp 60 IN SRV 1 1 81 a\n_http._tcp 60 IN SRV 1 1 82 a\na 60 IN A 10.0.0.1", false, webSRV,
			"10.0.0.1:81; 10.0.0.1:82", ""},
		{"a target of two addresses", "_http._tcp 60 IN SRV 1 3 80 a\n_http._tcp 60 IN SRV 1 3 80 b\n" +
			"a 60 IN A 10.0.0.1\na 60 IN AAAA 2001:db8::1\nb 60 IN A 10.0.0.2", false, webSRV,
			"10.0.0.1:80*3; 10.0.0.2:80*6; [2001:db8::1]:80*3", ""},
		{"weights of 0", "_http._tcp 60 IN SRV 1 0 80 a\n_http._tcp 60 IN SRV 1 0 80 b\n" + both, false, webSRV,
			"10.0.0.1:80; 10.0.0.2:80", ""},
		{"a weight of 0 beside others", "_http._tcp 60 IN SRV 1 0 80 a\n_http._tcp 60 IN SRV 1 2 80 b\n" + both, false, webSRV,
			"10.0.0.1:80; 10.0.0.2:80*200", ""},
		{"two priorities", "_http._tcp 60 IN SRV 20 3 80 a\n_http._tcp 60 IN SRV 10 1 80 b\n" + both, false, webSRV,
			"10.0.0.1:80*3 priority 1; 10.0.0.2:80", ""},
		{"a lowest priority without addresses", "_http._tcp 60 IN SRV 2 1 80 a\n_http._tcp 60 IN SRV 1 1 80 b\na 60 IN A 10.0.0.1", false,
			webSRV, "10.0.0.1:80", ""},
		{"targets without addresses", "_http._tcp 60 IN SRV 1 1 80 a", false, webSRV, "none", ""},
		{"not available", "_http._tcp 60 IN SRV 0 0 0 .", false, webSRV, "none", ""},
		{"an alias of services", "_http._tcp 60 IN CNAME _x._tcp\n_x._tcp 60 IN SRV 1 1 80 a\na 60 IN CNAME b\nb 60 IN A 10.0.0.1", false, webSRV,
			"10.0.0.1:80", ""},
		{"too many services", many, false, webSRV, "", "_http._tcp.example.com. has 257 SRV records; the maximum is 256"},
		{"too many endpoints", "web 60 IN A 10.0.0.1\nweb 60 IN A 10.0.0.2\nweb 60 IN A 10.0.0.3\n" +
			"web 60 IN AAAA ::1\nweb 60 IN AAAA ::2", false, web,
			"", "web.example.com. has 5 endpoints; maxEndpoints is 4: raise it"},

		{"no port", "", false, provider.Query{Service: "web.example.com"}, "", `port "" of web.example.com: A and AAAA records have no port`},
		{"a large port", "", false, provider.Query{Service: "web", Port: "65536"}, "", "from 1 to 65535"},
		{"a port of services", "", false, provider.Query{Service: "_http._tcp", Port: "80"}, "", "leave port out"},
		{"odd characters", "", false, provider.Query{Service: "web\x00.example.com", Port: "80"},
			"", `"web\x00.example.com" is not a name of DNS`},
		{"an international name", "", false, provider.Query{Service: "bücher.example", Port: "80"}, "", "xn--"},
		{"an empty label", "", false, provider.Query{Service: "web..example.com", Port: "80"}, "", "is not a name"},
		{"no name", "", false, provider.Query{Port: "80"}, "", "is not a name"},
		{"a long name", "", false, provider.Query{Service: strings.Repeat("a234567890.", 24), Port: "80"}, "", "is not a name"},
		{"an address", "", false, provider.Query{Service: "10.0.0.1", Port: "80"}, "", "is an IP address"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			z := newZone(t, test.zone)
			z.bare = test.bare
			cfg := Config{MaxEndpoints: 4}
			inBubble(t, cfg, []server{z.server}, []provider.Query{test.query}, func(w *world) {
				w.expect(test.query, test.want)
				if test.err != "" {
					w.expectFailure(test.query, test.err)
				} else if err := w.sink.Err(test.query); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestOtherRecordsAreIgnored checks that records of other names and classes, which
// nobody asked for, are not used.
func TestOtherRecordsAreIgnored(t *testing.T) {
	z := newZone(t, "web 60 IN A 10.0.0.1")
	poisoned := func(_ string, question *dns.Msg) (*dns.Msg, error) {
		m := z.answer(question)
		for _, text := range []string{
			"evil.example. 1 IN A 10.6.6.6", "web.example.com. 1 CH A 10.6.6.7", "evil.example. 1 IN CNAME web.example.com.",
		} {
			rr, err := dns.NewRR(text)
			if err != nil {
				return nil, err
			}
			m.Answer = append(m.Answer, rr)
		}
		return m, nil
	}
	inBubble(t, Config{}, []server{poisoned}, []provider.Query{web}, func(w *world) {
		w.expect(web, "10.0.0.1:80")
		w.questions()
		w.after(50 * time.Second)
		if list := w.questions(); len(list) > 0 {
			t.Errorf("the TTL of other records counted: %v", list)
		}
	})
}

// TestTargetThatFails checks that an answer is complete or none.
func TestTargetThatFails(t *testing.T) {
	z := newZone(t, "_http._tcp 60 IN SRV 1 1 80 a\n_http._tcp 60 IN SRV 1 1 80 b\na 60 IN A 10.0.0.1\nb 60 IN A 10.0.0.2")
	partly := func(_ string, question *dns.Msg) (*dns.Msg, error) {
		if q := question.Question[0]; q.Name == "b.example.com." && q.Qtype == dns.TypeAAAA {
			return new(dns.Msg).SetRcode(question, dns.RcodeServerFailure), nil
		}
		return z.answer(question), nil
	}
	inBubble(t, Config{}, []server{partly}, []provider.Query{webSRV}, func(w *world) {
		w.expect(webSRV, "")
		w.expectFailure(webSRV, "no DNS server answers for the AAAA records of b.example.com. (192.0.2.1:53: answers SERVFAIL)")
	})
}

func TestSearch(t *testing.T) {
	here, there := "web.a.example. 60 IN A 10.0.0.1", "web.b.example. 60 IN A 10.0.0.2"
	dotted := "web.x.b.example. 60 IN A 10.0.0.3\nweb.x. 60 IN A 10.0.0.4"
	tests := []struct {
		name, zone, service string
		ndots               int
		want, asked         string
	}{
		{"first domain", here + "\n" + there, "web", 0, "10.0.0.1:80", "web.a.example."},
		{"next domain", there, "web", 0, "10.0.0.2:80", "web.a.example. web.b.example."},
		{"nowhere", "x 60 IN A 10.0.0.1", "web", 0, "none", "web.a.example. web.b.example. web."},
		{"enough dots", dotted, "web.x", 0, "10.0.0.4:80", "web.x."},
		{"too few dots", dotted, "web.x", 2, "10.0.0.3:80", "web.x.a.example. web.x.b.example."},
		{"complete", here, "web.", 0, "none", "web."},
		{"no address of the first", "web.a.example. 60 IN TXT text\n" + there, "web", 0, "10.0.0.2:80", "web.a.example. web.b.example."},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			cfg := Config{Search: []string{"a.example", "b.example."}, NDots: test.ndots}
			q := provider.Query{Service: test.service, Port: "80"}
			inBubble(t, cfg, []server{newZone(t, test.zone).server}, []provider.Query{q}, func(w *world) {
				w.expect(q, test.want)
				if got := names(w.questions()); got != test.asked {
					t.Errorf("asked for %s, want %s", got, test.asked)
				}
			})
		})
	}
}

// TestSearchStopsAtAFailure checks that a name that cannot be looked up is not
// taken for one that does not exist.
func TestSearchStopsAtAFailure(t *testing.T) {
	z := newZone(t, "web.b.example. 60 IN A 10.6.6.6")
	failing := func(_ string, question *dns.Msg) (*dns.Msg, error) {
		if question.Question[0].Name == "web.a.example." {
			return new(dns.Msg).SetRcode(question, dns.RcodeServerFailure), nil
		}
		return z.answer(question), nil
	}
	q := provider.Query{Service: "web", Port: "80"}
	inBubble(t, Config{Search: []string{"a.example", "b.example"}}, []server{failing}, []provider.Query{q}, func(w *world) {
		w.expect(q, "")
		w.expectFailure(q, "web.a.example.")
	})
}

func TestResolvConfIsReadAgain(t *testing.T) {
	file := filepath.Join(t.TempDir(), "resolv.conf")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	write("# a comment\nnameserver 192.0.2.1\nsearch a.example b.example\noptions ndots:2\n")
	q := provider.Query{Service: "web.x", Port: "80"}
	first, second := newZone(t, "web.x.b.example. 30 IN A 10.0.0.1"), newZone(t, "web.x.c.example. 30 IN A 10.0.0.2")
	inBubble(t, Config{ResolvConf: file}, []server{first.server, second.server}, []provider.Query{q}, func(w *world) {
		w.expect(q, "10.0.0.1:80")
		write("nameserver 192.0.2.2\ndomain c.example\noptions ndots:2\n")
		w.after(30 * time.Second)
		w.expect(q, "10.0.0.2:80")

		write("nameserver ns.example.com\n")
		w.after(30 * time.Second)
		w.expectFailure(q, file+`: server "ns.example.com": write IP:port, or IP for port 53: correct it, or list servers in the provider`)
		w.expect(q, "10.0.0.2:80")
		write(strings.Repeat("#", maxResolvConf+1))
		w.after(30 * time.Second)
		w.expectFailure(q, "is larger than 65536 bytes")

		write("nameserver 192.0.2.1\nsearch b.example\noptions ndots:2\n")
		w.after(30 * time.Second)
		w.expect(q, "10.0.0.1:80")
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		w.after(30 * time.Second)
		if err := w.sink.Err(q); err != nil {
			t.Errorf("without the file, its last content does not stay: %v", err)
		}
	})
}

// TestConfigBesideResolvConf checks that search and ndots of the configuration
// replace the file's.
func TestConfigBesideResolvConf(t *testing.T) {
	file := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(file, []byte("nameserver 192.0.2.1\nsearch a.example\noptions ndots:1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	q := provider.Query{Service: "web.x", Port: "80"}
	cfg := Config{ResolvConf: file, Search: []string{"b.example"}, NDots: 2}
	inBubble(t, cfg, []server{newZone(t, "x 60 IN A 10.0.0.1").server}, []provider.Query{q}, func(w *world) {
		if got, want := names(w.questions()), "web.x.b.example. web.x."; got != want {
			t.Errorf("asked for %s, want %s", got, want)
		}
	})
}

func TestNoResolvConf(t *testing.T) {
	file := filepath.Join(t.TempDir(), "resolv.conf")
	inBubble(t, Config{ResolvConf: file}, nil, []provider.Query{web}, func(w *world) {
		w.expectFailure(web, file+": no such file or directory: list servers in the provider")
	})
}

func TestParseResolvConf(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"", "[127.0.0.1:53 [::1]:53] [] 1"},
		{"nameserver 10.0.0.1\nnameserver fe80::1%eth0\nsearch a b.\noptions ndots:5 rotate", "[10.0.0.1:53 [fe80::1%eth0]:53] [a b.] 5"},
		{"search .\nnameserver 10.0.0.1", "[10.0.0.1:53] [] 1"},
		{"search a b c\ndomain d\nnameserver 10.0.0.1 # comment", "[10.0.0.1:53] [d] 1"},
		{"options ndots:99\nnameserver 10.0.0.1", "[10.0.0.1:53] [] 15"},
		{"search a/b\nnameserver 10.0.0.1", `search: "a/b" is not a name of DNS: ` +
			"write letters, digits, - and _ in labels of 1 to 63 bytes, international names as xn--"},
		{strings.Repeat("nameserver 10.0.0.1\n", 17), "has 17 servers and 0 search domains; the maximum is 16 and 32"},
	} {
		s, err := parseResolvConf(test.text)
		got := fmt.Sprintf("%v %v %d", s.servers, s.search, s.ndots)
		if err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%.60q: %s, want %s", test.text, got, test.want)
		}
	}
}

func TestConfigIsChecked(t *testing.T) {
	_, err := New(Config{
		Servers: []string{"ns.example.com:53", "10.0.0.1:0", "10.0.0.1", "[::1]:53", "::1", "[::1]"}, Search: []string{"a b"},
		NDots: 16, Timeout: time.Hour, MinTTL: time.Millisecond, MaxTTL: 48 * time.Hour, NegativeTTL: 50 * time.Hour,
		UDPSize: 100, MaxEndpoints: -1,
	})
	want := `server "ns.example.com:53": write IP:port, or IP for port 53
server "10.0.0.1:0": write IP:port, or IP for port 53
search: "a b" is not a name of DNS: write letters, digits, - and _ in labels of 1 to 63 bytes, international names as xn--
ndots 16 must be 0 to 15
timeout 1h0m0s must be 100ms to 30s
minTTL 1ms must be 1s to 1h0m0s
maxTTL 48h0m0s must be 1ms to 24h0m0s
negativeTTL 50h0m0s must be 1ms to 48h0m0s
udpSize 100 must be 512 to 4096
maxEndpoints -1 must be 1 to 100000`
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
	if _, err := New(Config{}); err != nil {
		t.Error(err)
	}
	if _, err := New(Config{MinTTL: time.Hour}); err != nil {
		t.Error(err)
	}
}
