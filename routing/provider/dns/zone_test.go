package dns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"
	"go.uber.org/goleak"

	"penstock/routing/provider"
	"penstock/routing/provider/providertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// soa says that what a zone does not have counts for 20 s.
const soa = "example.com. 300 IN SOA ns.example.com. admin.example.com. 1 3600 600 86400 20"

// zone answers questions from a text of records.
type zone struct {
	mu      sync.Mutex
	records []dns.RR
	rcode   int  // of all answers, unless 0
	noSOA   bool // in answers without records
	bare    bool // CNAMEs come without what they lead to
}

func newZone(t testing.TB, text string) *zone {
	t.Helper()
	z := &zone{}
	z.set(t, text)
	return z
}

// set replaces the records.
func (z *zone) set(t testing.TB, text string) {
	t.Helper()
	parser := dns.NewZoneParser(strings.NewReader(text+"\n"), "example.com.", "")
	var list []dns.RR
	for rr, ok := parser.Next(); ok; rr, ok = parser.Next() {
		list = append(list, rr)
	}
	if err := parser.Err(); err != nil {
		t.Fatal(err)
	}
	z.mu.Lock()
	defer z.mu.Unlock()
	z.records = list
}

// answer answers a question as a resolver does.
func (z *zone) answer(question *dns.Msg) *dns.Msg {
	z.mu.Lock()
	defer z.mu.Unlock()
	m := new(dns.Msg).SetReply(question)
	m.RecursionAvailable = true
	if z.rcode != 0 {
		m.Rcode = z.rcode
		return m
	}
	q := question.Question[0]
	name, exists := q.Name, false
	for links := 0; links < 20; links++ {
		alias := ""
		exists = false
		for _, rr := range z.records {
			h := rr.Header()
			if !strings.EqualFold(h.Name, name) {
				continue
			}
			exists = true
			if cname, ok := rr.(*dns.CNAME); ok {
				alias = cname.Target
			}
			if h.Rrtype == q.Qtype || h.Rrtype == dns.TypeCNAME {
				m.Answer = append(m.Answer, dns.Copy(rr))
			}
		}
		if alias == "" || z.bare {
			break
		}
		name = alias
	}
	if !exists {
		m.Rcode = dns.RcodeNameError
	}
	if !z.noSOA && (!z.bare || len(m.Answer) == 0) {
		rr, _ := dns.NewRR(soa)
		m.Ns = append(m.Ns, rr)
	}
	return m
}

// errSilent makes a server give no answer.
var errSilent = errors.New("silent")

// server answers in memory. Network is "udp" or "tcp".
type server func(network string, question *dns.Msg) (*dns.Msg, error)

func (z *zone) server(_ string, question *dns.Msg) (*dns.Msg, error) { return z.answer(question), nil }

func silent(string, *dns.Msg) (*dns.Msg, error) { return nil, errSilent }

func answering(rcode int) server { return (&zone{rcode: rcode}).server }

// world is a source in virtual time. Its servers are 192.0.2.1, .2 and so on.
type world struct {
	*testing.T
	sink  *providertest.Sink
	begun time.Time

	mu    sync.Mutex
	asked []string // "1.5s 192.0.2.1 udp web.example.com. A"
}

func serverAddr(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(i + 1)}), 53)
}

// inBubble runs a source with these servers and queries.
func inBubble(t *testing.T, cfg Config, servers []server, queries []provider.Query, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, sink: providertest.NewSink(queries...), begun: time.Now()}
		if cfg.ResolvConf == "" {
			for i := range servers {
				cfg.Servers = append(cfg.Servers, serverAddr(i).String())
			}
		}
		source, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		source.exchange = func(ctx context.Context, network string, to netip.AddrPort, m *dns.Msg) (*dns.Msg, error) {
			q := m.Question[0]
			w.mu.Lock()
			w.asked = append(w.asked, fmt.Sprintf("%s %s %s %s %s",
				time.Since(w.begun), to.Addr(), network, q.Name, dns.TypeToString[q.Qtype]))
			w.mu.Unlock()
			for i, s := range servers {
				if serverAddr(i) == to {
					answer, err := s(network, m)
					if errors.Is(err, errSilent) {
						<-ctx.Done()
						return nil, ctx.Err()
					}
					return answer, err
				}
			}
			return nil, &net.OpError{Op: "dial", Err: errors.New("no route to host")}
		}
		w.sink.Start(t, source)
		synctest.Wait()
		test(w)
	})
}

// after lets time pass.
func (w *world) after(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// questions returns what was asked since the last call.
func (w *world) questions() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer func() { w.asked = nil }()
	return w.asked
}

// names returns the names of questions, each once, in order.
func names(questions []string) string {
	var list []string
	for _, q := range questions {
		if name := strings.Fields(q)[3]; !slices.Contains(list, name) {
			list = append(list, name)
		}
	}
	return strings.Join(list, " ")
}

func (w *world) expect(q provider.Query, want string) {
	w.Helper()
	if got := w.sink.Text(q); got != want {
		w.Errorf("%v is %q (failure: %v), want %q", q, got, w.sink.Err(q), want)
	}
}

func (w *world) expectFailure(q provider.Query, want string) {
	w.Helper()
	if err := w.sink.Err(q); err == nil || !strings.Contains(err.Error(), want) {
		w.Errorf("%v: error %v, want %q in it", q, err, want)
	}
}
