package filter

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/kafka/wire"
)

// The messages of these tests are those of SaslAuthenticate v0, whose bytes
// are a text: the number of the client's request, "|", and what happened.
const (
	testKey     = int16(kmsg.SASLAuthenticate)
	testVersion = int16(0)
)

func requestText(text string) *kmsg.SASLAuthenticateRequest {
	r := kmsg.NewPtrSASLAuthenticateRequest()
	r.SASLAuthBytes = []byte(text)
	return r
}

func responseText(text string) *kmsg.SASLAuthenticateResponse {
	r := kmsg.NewPtrSASLAuthenticateResponse()
	r.SASLAuthBytes = []byte(text)
	return r
}

// behaviour is what a filter of a test does in one direction.
type behaviour struct {
	want   Interest
	asks   int
	change bool
	answer bool // requests
	drop   bool // requests that expect no answer
	fail   bool
}

// script is a filter that does what it is told, and notes what it sees.
type script struct {
	name   string
	does   [2]behaviour
	log    func(call, event string)
	closed int
}

func (s *script) Versions(_ int16, have Range) Range { return have }
func (s *script) Wants(d Direction, key, version int16) Interest {
	if key != testKey || version != testVersion {
		return Nothing
	}
	return s.does[d].want
}
func (s *script) Open(Info) Conn                    { return s }
func (s *script) Close()                            { s.closed++ }
func (s *script) Edits(Direction, *Exchange) *Edits { return nil }

func (s *script) Request(x *Exchange, m *Message) error {
	r, err := m.DecodeRequest()
	if err != nil {
		return err
	}
	text := &r.(*kmsg.SASLAuthenticateRequest).SASLAuthBytes
	return s.see(Request, x, m, text, s.does[Request].asks)
}

func (s *script) Response(x *Exchange, m *Message) error {
	r, err := m.DecodeResponse()
	if err != nil {
		return err
	}
	text := &r.(*kmsg.SASLAuthenticateResponse).SASLAuthBytes
	return s.see(Response, x, m, text, s.does[Response].asks)
}

func (s *script) see(d Direction, x *Exchange, m *Message, text *[]byte, asks int) error {
	does := s.does[d]
	call, _, _ := strings.Cut(string(*text), "|")
	if asks > 0 {
		s.log(call, fmt.Sprint(s.name, d, " asks with ", string(*text)))
		x.Ask(requestText(fmt.Sprint(call, "|", s.name, asks, "?")), func(resp kmsg.Response, err error) error {
			if err != nil {
				s.log(call, s.name+" abandoned")
				return err
			}
			s.log(call, fmt.Sprint(s.name, d, " is told ", string(resp.(*kmsg.SASLAuthenticateResponse).SASLAuthBytes)))
			return s.see(d, x, m, text, asks-1)
		})
		return nil
	}
	s.log(call, fmt.Sprint(s.name, d, " sees ", string(*text)))
	switch {
	case does.fail:
		return ErrDenied
	case does.drop && x.NoResponse && d == Request:
		x.Drop()
	case does.answer && d == Request:
		x.Answer(responseText(call + "|answer of " + s.name))
	case does.change:
		*text = append(*text, s.name[0])
		m.MarkChanged()
	}
	return nil
}

// model says what happens to a request in a chain, in the plainest way.
type model struct {
	filters []*script
	log     func(event string)
}

func (m *model) run(call, text string, from int, noResponse bool) (answer string, ok bool) {
	at := from
	answered := false
	for ; at < len(m.filters) && !answered; at++ {
		f := m.filters[at]
		does := f.does[Request]
		if does.want != Whole {
			continue
		}
		if !m.asks(call, text, at, Request) {
			return "", false
		}
		m.log(fmt.Sprint(f.name, Request, " sees ", text))
		switch {
		case does.fail:
			m.log("failed")
			return "", false
		case does.drop && noResponse:
			m.log("dropped")
			return "", false
		case does.answer:
			text, answered = call+"|answer of "+f.name, true
			if noResponse {
				m.log("dropped")
				return "", false
			}
			at-- // the loop adds one
		case does.change:
			text += f.name[:1]
		}
	}
	if !answered {
		m.log("broker gets " + text)
		if noResponse {
			return "", true
		}
		text += "!"
		at = len(m.filters)
	}
	for at--; at >= from; at-- {
		f := m.filters[at]
		does := f.does[Response]
		if does.want != Whole {
			continue
		}
		if !m.asks(call, text, at, Response) {
			return "", false
		}
		m.log(fmt.Sprint(f.name, Response, " sees ", text))
		if does.fail {
			m.log("failed")
			return "", false
		}
		if does.change {
			text += f.name[:1]
		}
	}
	return text, true
}

func (m *model) asks(call, text string, at int, d Direction) bool {
	f := m.filters[at]
	for n := f.does[d].asks; n > 0; n-- {
		m.log(fmt.Sprint(f.name, d, " asks with ", text))
		got, ok := m.run(call, fmt.Sprint(call, "|", f.name, n, "?"), at+1, false)
		if !ok {
			return false
		}
		m.log(fmt.Sprint(f.name, d, " is told ", got))
	}
	return true
}

// world is a session and a broker that answers when it likes.
type world struct {
	log     map[string][]string
	pending []*Call
	done    map[string]string
}

func (w *world) note(call, event string) { w.log[call] = append(w.log[call], event) }

func (w *world) ToBroker(c *Call) error {
	text := decodeText(c.Message())
	call, _, _ := strings.Cut(text, "|")
	w.note(call, "broker gets "+text)
	if c.NoResponse() {
		c.Done()
		return nil
	}
	w.pending = append(w.pending, c)
	return nil
}

func (w *world) ToClient(c *Call) error {
	text := decodeText(c.Message())
	call, _, _ := strings.Cut(text, "|")
	w.done[call] = text
	c.Done()
	return nil
}

func (w *world) Dropped(c *Call) error {
	call, _, _ := strings.Cut(decodeText(c.Message()), "|")
	w.note(call, "dropped")
	c.Done()
	return nil
}

func decodeText(m *Message) string {
	again := NewMessage(m.Direction, m.Key, m.Version, m.Body())
	if m.Direction == Request {
		r, err := again.DecodeRequest()
		if err != nil {
			panic(err)
		}
		return string(r.(*kmsg.SASLAuthenticateRequest).SASLAuthBytes)
	}
	r, err := again.DecodeResponse()
	if err != nil {
		panic(err)
	}
	return string(r.(*kmsg.SASLAuthenticateResponse).SASLAuthBytes)
}

// TestChainMatchesReferenceModel drives chains of chance, several requests
// at once, with a broker that answers in any order.
func TestChainMatchesReferenceModel(t *testing.T) {
	for seed := range uint64(800) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		w := &world{log: map[string][]string{}, done: map[string]string{}}
		var scripts []*script
		var filters []Filter
		for i := range rnd.IntN(5) {
			s := &script{name: string(rune('A' + i)), log: w.note}
			for d := range s.does {
				b := &s.does[d]
				if rnd.IntN(3) > 0 {
					b.want = Whole
				}
				b.asks = max(0, rnd.IntN(6)-3)
				b.change = rnd.IntN(2) == 0
				b.answer, b.drop, b.fail = rnd.IntN(8) == 0, rnd.IntN(3) == 0, rnd.IntN(25) == 0
			}
			scripts, filters = append(scripts, s), append(filters, s)
		}
		chain, err := NewChain(filters)
		if err != nil {
			t.Fatal(err)
		}
		conns := chain.Open(Info{}, w)
		fail := func(call string, err error) {
			if err != nil {
				if !errors.Is(err, ErrDenied) {
					t.Fatalf("seed %d: %v", seed, err)
				}
				w.note(call, "failed")
			}
		}
		const calls = 4
		for left := calls; left > 0 || len(w.pending) > 0; {
			if left > 0 && (len(w.pending) == 0 || rnd.IntN(2) == 0) {
				call := fmt.Sprint(left)
				left--
				c := conns.Begin(testKey, testVersion, "client", left == 0)
				fail(call, c.Request(requestText(call+"|").AppendTo(nil)))
				continue
			}
			i := rnd.IntN(len(w.pending))
			c := w.pending[i]
			w.pending = append(w.pending[:i], w.pending[i+1:]...)
			text := decodeText(c.Message()) + "!"
			call, _, _ := strings.Cut(text, "|")
			fail(call, c.Respond(responseText(text).AppendTo(nil)))
		}
		failed := false
		for i := range calls {
			call := fmt.Sprint(i + 1)
			var want []string
			m := model{scripts, func(e string) { want = append(want, e) }}
			answer, _ := m.run(call, call+"|", 0, i == 0)
			if got := w.log[call]; !reflect.DeepEqual(got, want) || w.done[call] != answer {
				t.Fatalf("seed %d, request %s: %+v\ngot  %q, %q\nwant %q, %q", seed, call, scripts, got, w.done[call], want, answer)
			}
			failed = failed || len(want) > 0 && want[len(want)-1] == "failed"
		}
		retired := false
		conns.Retire(func() { retired = true })
		if retired == failed { // those that failed end with their connection, undone
			t.Fatalf("seed %d: retired %v, failed %v", seed, retired, failed)
		}
		for _, s := range scripts {
			if retired && s.closed != 1 {
				t.Fatalf("seed %d: %s closed %d times", seed, s.name, s.closed)
			}
		}
	}
}

// narrow is a filter that narrows one API and hides another.
type narrow struct{ script }

func (*narrow) Versions(key int16, have Range) Range {
	switch key {
	case int16(kmsg.Fetch):
		return Range{have.Min - 3, 12} // more than there is does not count
	case int16(kmsg.DescribeQuorum):
		return Hidden
	}
	return have
}

// Rule 5, rule 14: what is offered is what the proxy and every filter can carry.
func TestOfferedVersionsAreTheIntersection(t *testing.T) {
	chain, err := NewChain([]Filter{&script{}, &narrow{}})
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[int16]Range{
		int16(kmsg.Fetch): {0, 12}, int16(kmsg.DescribeQuorum): Hidden, int16(kmsg.Vote): Hidden,
		int16(kmsg.SASLHandshake): {1, 1}, -1: Hidden, 1000: Hidden,
	} {
		if got := chain.Offered(key); got != want {
			t.Errorf("%s: %+v, want %+v", wire.Name(key), got, want)
		}
		if chain.Offers(key, want.Min-1) || chain.Offers(key, want.Max+1) || want != Hidden &&
			(!chain.Offers(key, want.Min) || !chain.Offers(key, want.Max)) {
			t.Errorf("%s: offers other than %+v", wire.Name(key), want)
		}
	}
	r := kmsg.NewPtrApiVersionsResponse()
	r.Version = 3
	for _, key := range []kmsg.Key{kmsg.Fetch, kmsg.Metadata, kmsg.DescribeQuorum, kmsg.Vote} {
		k := kmsg.NewApiVersionsResponseApiKey()
		k.ApiKey, k.MaxVersion = int16(key), 100
		r.ApiKeys = append(r.ApiKeys, k)
	}
	w := &clientEnd{}
	c := chain.Open(Info{}, w).Begin(int16(kmsg.ApiVersions), 3, "", false)
	if err := c.Respond(r.AppendTo(nil)); err != nil {
		t.Fatal(err)
	}
	got := kmsg.NewPtrApiVersionsResponse()
	got.Version = 3
	if err := got.ReadFrom(w.body); err != nil || len(got.ApiKeys) != 2 || got.ApiKeys[0].MaxVersion != 12 {
		t.Errorf("%+v, %v", got.ApiKeys, err)
	}
}

// clientEnd keeps what comes to the client.
type clientEnd struct{ body []byte }

func (w *clientEnd) ToBroker(*Call) error { return nil }
func (w *clientEnd) ToClient(c *Call) error {
	w.body = c.Message().Body()
	return nil
}
func (w *clientEnd) Dropped(*Call) error { return nil }

// misuser does one thing that it must not.
type misuser struct {
	script
	do func(x *Exchange, m *Message)
}

func (f *misuser) Open(Info) Conn                         { return f }
func (f *misuser) Request(x *Exchange, m *Message) error  { f.do(x, m); return nil }
func (f *misuser) Response(x *Exchange, m *Message) error { return nil }

func TestFiltersThatBreakTheRulesFail(t *testing.T) {
	none := func(kmsg.Response, error) error { return nil }
	for name, do := range map[string]func(*Exchange, *Message){
		"drop what expects an answer": func(x *Exchange, _ *Message) { x.Drop() },
		"answer nothing":              func(x *Exchange, _ *Message) { x.Answer(nil) },
		"answer something else":       func(x *Exchange, _ *Message) { x.Answer(kmsg.NewPtrFetchResponse()) },
		"answer another version": func(x *Exchange, _ *Message) {
			r := responseText("")
			r.Version = 2
			x.Answer(r)
		},
		"ask twice":        func(x *Exchange, _ *Message) { x.Ask(requestText("a"), none); x.Ask(requestText("b"), none) },
		"act for another":  func(x *Exchange, _ *Message) { other := *x; other.Answer(responseText("")) },
		"ask without then": func(x *Exchange, _ *Message) { x.Ask(requestText("a"), nil) },
	} {
		f := &misuser{do: do}
		f.does[Request].want = Whole
		chain, err := NewChain([]Filter{f})
		if err != nil {
			t.Fatal(err)
		}
		c := chain.Open(Info{}, &clientEnd{}).Begin(testKey, testVersion, "", false)
		if err := c.Request(requestText("1|").AppendTo(nil)); !errors.Is(err, ErrMisuse) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestAskReportsTheEndOfTheConnection: a filter that has asked gets ErrEnded.
func TestAskReportsTheEndOfTheConnection(t *testing.T) {
	w := &world{log: map[string][]string{}, done: map[string]string{}}
	s := &script{name: "A", log: w.note}
	s.does[Request] = behaviour{want: Whole, asks: 1}
	chain, _ := NewChain([]Filter{s})
	conns := chain.Open(Info{}, w)
	c := conns.Begin(testKey, testVersion, "", false)
	if err := c.Request(requestText("1|").AppendTo(nil)); err != nil || !c.Waiting() || len(w.pending) != 1 || !w.pending[0].Own() {
		t.Fatalf("%v, waiting %v", err, c.Waiting())
	}
	retired := false
	conns.Retire(func() { retired = true })
	w.pending[0].Abandon()
	if log := w.log["1"]; log[len(log)-1] != "A abandoned" || !retired || s.closed != 1 {
		t.Errorf("%q, retired %v", log, retired)
	}
}

// TestEditsOfSeveralFiltersAreOne, in the order of requests one way and in
// reverse the other.
func TestEditsOfSeveralFiltersAreOne(t *testing.T) {
	name := func(suffix string) *Edits {
		return &Edits{
			TopicGrowth: len(suffix),
			Topic:       func(dst, name []byte) ([]byte, error) { return append(append(dst, name...), suffix...), nil },
			TopicID:     func(id *[16]byte) error { id[0] = id[0]*10 + suffix[0]; return nil },
			Node: func(_ int32, host string, port int32) (string, int32, bool, error) {
				return host + suffix, port, suffix != "no", nil
			},
		}
	}
	e := mergeEdits([]*Edits{name("a"), name("bc"), {}})
	got, err := e.Topic([]byte("x"), []byte("t"))
	if string(got) != "xtabc" || err != nil || e.TopicGrowth != 3 {
		t.Errorf("%q, %v, growth %d", got, err, e.TopicGrowth)
	}
	if host, _, ok, _ := e.Node(1, "h", 1); host != "habc" || !ok {
		t.Errorf("%q, %v", host, ok)
	}
	if host, _, ok, _ := mergeEdits([]*Edits{name("no"), name("b")}).Node(1, "h", 1); ok || host != "" {
		t.Errorf("a hidden node is shown as %q", host)
	}
	var told []int32
	tell := func(number int32) { told = append(told, number) }
	mergeEdits([]*Edits{{FetchSession: tell}, {}, {FetchSession: tell}}).FetchSession(7)
	if !slices.Equal(told, []int32{7, 7}) {
		t.Errorf("the sessions reported were %v", told)
	}
	if mergeEdits(nil) != nil {
		t.Error("merging nothing returned edits")
	}
}

func TestChainLengthIsBounded(t *testing.T) {
	if _, err := NewChain(make([]Filter, MaxFilters+1)); !errors.Is(err, ErrChain) {
		t.Errorf("%v", err)
	}
}
