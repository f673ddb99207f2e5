package brokeraddress

import (
	"fmt"
	"strings"
	"testing"

	"penstock/kafka/filter"
)

func faults(c *Config) []string {
	var all []string
	c.Validate(func(path, message string, value any) {
		all = append(all, fmt.Sprintf("%s: %s (%v)", path, message, value))
	})
	return all
}

// All faults of a mapping are reported at once, in the order of its keys.
func TestFaultsOfAMapping(t *testing.T) {
	got := strings.Join(faults(&Config{
		Unmapped: "show",
		BrokerAddressMapping: map[string]string{
			"a:1":           "x:1",
			"b:1":           "X.:1",
			"c":             "x:2",
			"d:1":           "nowhere",
			"e:0":           "x:70000",
			"unix:/run/k":   "x:3",
			"A.:1":          "x:4",
			"[::1]:1":       "[::2]:1",
			"[0:0::1]:1":    "x:5",
			"fine.local:92": "x:6",
		},
	}), "\n")
	want := strings.TrimSpace(`
unmapped: must be fail or hide (show)
brokerAddressMapping["[::1]:1"]: duplicate broker, first at [0:0::1]:1 ([::1]:1)
brokerAddressMapping["a:1"]: duplicate broker, first at A.:1 (a:1)
brokerAddressMapping["b:1"]: duplicate address, first at a:1 (X.:1)
brokerAddressMapping["c"]: the broker's address must be host:port or [v6]:port (c)
brokerAddressMapping["d:1"]: must be host:port or [v6]:port (nowhere)
brokerAddressMapping["e:0"]: the broker's address the port must be a number from 1 to 65535 (e:0)
brokerAddressMapping["e:0"]: the port must be a number from 1 to 65535 (x:70000)
brokerAddressMapping["unix:/run/k"]: the broker's address must be host:port or [v6]:port (unix:/run/k)
`)
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := faults(&Config{Unmapped: "hide", BrokerAddressMapping: map[string]string{"a:1": "b:1", "b:1": "a:1"}}); len(got) > 0 {
		t.Errorf("a valid mapping: %q", got)
	}
}

func TestMappingsAreBounded(t *testing.T) {
	c := &Config{BrokerAddressMapping: map[string]string{}}
	for i := range maxMapping + 1 {
		c.BrokerAddressMapping[fmt.Sprintf("b%d:1", i)] = fmt.Sprintf("v%d:1", i)
	}
	if got := faults(c); len(got) != 1 {
		t.Errorf("%d faults for too many brokers, want 1", len(got))
	}
}

// Connections go on with another mapping: it shows in their next Metadata.
func TestOpenConnectionsAcceptANewMapping(t *testing.T) {
	if !new(Config).Accepts(&Config{Unmapped: "hide"}) {
		t.Error("not accepted")
	}
	if new(Config).Accepts(nil) {
		t.Error("accepted from a filter of another type")
	}
}

// An answer without an address that changes is the broker's own, byte for byte.
func TestAnswersWithoutAddressesAreNotCopied(t *testing.T) {
	f := mustProvision(t, new(Config), filter.Env{})
	body := newResponse(t, "Produce", 12).AppendTo(nil)
	m := filter.NewMessage(filter.Response, 0, 12, body)
	x := filter.NewExchange(0, 12, "c", nil)
	if n := testing.AllocsPerRun(100, func() {
		if err := f.Open(filter.Info{}).Response(&x, &m); err != nil {
			t.Fatal(err)
		}
	}); n > 1 || m.Changed() {
		t.Errorf("%v allocations, changed %v", n, m.Changed())
	}
}

func TestBrokenResponseIsMalformed(t *testing.T) {
	f := mustProvision(t, new(Config), filter.Env{})
	if _, err := through(t, f, 3, 12, []byte{0, 0, 0, 0, 9}); err == nil || !strings.Contains(err.Error(), filter.ErrMalformed.Error()) {
		t.Errorf("got %v", err)
	}
}

// Metadata of 1,000 topics is not copied: its goal is 20 us, 10 allocations.
func BenchmarkMetadata(b *testing.B) {
	f := &Filter{mapping: map[endpoint]endpoint{}}
	f.mapWhole = f.mapNode
	text := `{"Brokers":[{"NodeID":0,"Host":"b0","Port":1},{"NodeID":1,"Host":"b1","Port":1},{"NodeID":2,"Host":"b2","Port":1}]}`
	for i := range 3 {
		f.mapping[endpoint{fmt.Sprintf("b%d", i), 1}] = endpoint{fmt.Sprintf("broker-%d.my-tenant1.kafka.com", i), 9092}
	}
	body := append(mustBody(b, "Metadata", 12, text), make([]byte, 500_000)...)
	x := filter.NewExchange(3, 12, "c", nil)
	b.ReportAllocs()
	for b.Loop() {
		m := filter.NewMessage(filter.Response, 3, 12, body)
		if err := f.Open(filter.Info{}).Response(&x, &m); err != nil {
			b.Fatal(err)
		}
	}
}
