package apiversions

import (
	"reflect"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/kafka/filter"
	"penstock/kafka/wire"
)

// offer is what a broker answers, in the layout of a version.
func offer(version int16, keys map[int16]filter.Range) []byte {
	m := kmsg.NewPtrApiVersionsResponse()
	m.Version = version
	for key := range int16(200) {
		if r, ok := keys[key]; ok {
			k := kmsg.NewApiVersionsResponseApiKey()
			k.ApiKey, k.MinVersion, k.MaxVersion = key, r.Min, r.Max
			m.ApiKeys = append(m.ApiKeys, k)
		}
	}
	return m.AppendTo(nil)
}

func read(t *testing.T, version int16, body []byte) (code int16, keys map[int16]filter.Range) {
	t.Helper()
	m := kmsg.NewPtrApiVersionsResponse()
	m.Version = version
	if err := m.ReadFrom(body); err != nil {
		t.Fatal(err)
	}
	keys = map[int16]filter.Range{}
	for _, k := range m.ApiKeys {
		keys[k.ApiKey] = filter.Range{Min: k.MinVersion, Max: k.MaxVersion}
	}
	return m.ErrorCode, keys
}

// narrowing is a filter that carries less of some APIs.
type narrowing map[int16]filter.Range

func (n narrowing) Versions(key int16, have filter.Range) filter.Range {
	if r, ok := n[key]; ok {
		return r
	}
	return have
}
func (narrowing) Wants(filter.Direction, int16, int16) filter.Interest { return filter.Nothing }
func (narrowing) Open(filter.Info) filter.Conn                         { return nil }
func (narrowing) Close()                                               {}

// chain has the filter in front of others.
func chain(t *testing.T, others ...filter.Filter) *filter.Chain {
	t.Helper()
	f, err := Type().Config().Provision(filter.Env{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := filter.NewChain(append([]filter.Filter{f}, others...))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A broker of Kafka 4 and of the future, as clients see it through a proxy
// with a filter that carries Fetch to v12 and hides regex subscriptions.
func TestRule5ClientsSeeTheIntersection(t *testing.T) {
	chain := chain(t, narrowing{1: {Min: 0, Max: 12}, 88: filter.Hidden})
	body := offer(4, map[int16]filter.Range{
		0:  {Min: 0, Max: 13}, // Produce
		1:  {Min: 4, Max: 18}, // Fetch
		3:  {Min: 0, Max: 99}, // Metadata of the future
		17: {Min: 0, Max: 1},  // SaslHandshake
		18: {Min: 0, Max: 4},  // ApiVersions
		52: {Min: 0, Max: 2},  // Vote
		80: {Min: 0, Max: 1},  // AddRaftVoter
		88: {Min: 0, Max: 1},  // StreamsGroupHeartbeat
		99: {Min: 0, Max: 0},  // nobody knows it yet
	})
	out, err := chain.NarrowVersions(nil, 4, body)
	if err != nil {
		t.Fatal(err)
	}
	want := map[int16]filter.Range{
		0:  {Min: 0, Max: 13},
		1:  {Min: 4, Max: 12},
		3:  {Min: 0, Max: chain.Offered(3).Max},
		17: {Min: 1, Max: 1},
		18: {Min: 0, Max: 4},
	}
	if _, got := read(t, 4, out); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// Rule 5: a version that the proxy does not know is answered in the layout of
// v0 with error 35 and its own range, under a header without tags.
func TestRule5ProxyAnswersUnknownVersions(t *testing.T) {
	offered := chain(t).Offered(18)
	body := wire.AppendUnsupportedApiVersions(nil, offered.Min, offered.Max)
	code, keys := read(t, 0, body)
	if code != 35 || !reflect.DeepEqual(keys, map[int16]filter.Range{18: offered}) {
		t.Errorf("error %d, %v", code, keys)
	}
	if wire.ResponseTags(18, 99) {
		t.Error("its header has tags")
	}
	// The header of such a request can be read, so that the answer has its id.
	frame := kmsg.NewRequestFormatter(kmsg.FormatterClientID("c")).AppendRequest(nil, &kmsg.ApiVersionsRequest{Version: 5}, 77)
	frame[7] = 99
	if h, need, err := wire.PeekRequest(frame); err != nil || need != 0 || h.Version != 99 || h.Correlation != 77 {
		t.Errorf("parsed as %+v, need %d, %v", h, need, err)
	}
}

// Rule 15: what KIP-1242 adds to requests is the broker's to judge.
func TestRule15VersionFiveIsSupported(t *testing.T) {
	if r := chain(t).Offered(18); r.Max < 5 {
		t.Errorf("ApiVersions is supported up to v%d", r.Max)
	}
}

func TestFilterSeesNoMessages(t *testing.T) {
	config := Type().Config()
	config.Validate(func(path, message string, value any) { t.Error(path, message, value) })
	f, err := config.Provision(filter.Env{})
	if err != nil {
		t.Fatal(err)
	}
	bare, err := filter.NewChain(nil)
	if err != nil {
		t.Fatal(err)
	}
	for key := range int16(wire.MaxKey + 1) {
		r := bare.Offered(key)
		for _, d := range []filter.Direction{filter.Request, filter.Response} {
			if f.Wants(d, key, r.Max) != filter.Nothing {
				t.Errorf("the filter wants %s", wire.Name(key))
			}
		}
		if f.Versions(key, r) != r {
			t.Errorf("the filter narrows %s", wire.Name(key))
		}
	}
	if !config.Accepts(config) {
		t.Error("open connections are not accepted")
	}
}
