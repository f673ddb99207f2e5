package kafka

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// topics asks for all topics by the version in which an answer as a whole can
// have an error (KIP-1102).
func (c *client) topics() *kmsg.MetadataResponse {
	c.t.Helper()
	req := kmsg.NewPtrMetadataRequest()
	req.Version, req.Topics = 13, nil
	c.send(req)
	resp, err := c.receive(req)
	if err != nil {
		c.t.Fatal(err)
	}
	return resp.(*kmsg.MetadataResponse)
}

// Rule 15: while a broker is taken out of a virtual cluster that goes on, those
// that are connected to it are steered away as soon as they ask, long before
// their time; who is connected to another broker is no more told of it, and
// goes on.
func TestMetadataMovesClientsOffARemovedBroker(t *testing.T) {
	k := fake(t, kfake.NumBrokers(2))
	at := k.ListenAddrs()
	const hour = "{window: 1h, transactionDeadline: 1h}\n  unmappedBrokers: hide"
	s := newStage(t, Config{})
	s.apply(twoBrokers(at[0], at[1], both, hour))
	listeners := s.listen(nil, "one", "two")
	other := dial(t, listeners["two"])
	if m := other.topics(); len(m.Brokers) != 2 || m.ErrorCode != 0 {
		t.Fatalf("%d brokers at first, error %d", len(m.Brokers), m.ErrorCode)
	}
	var going []*client
	for range 2 {
		c := dial(t, listeners["one"])
		if err := c.versions(); err != nil {
			t.Fatal(err)
		}
		going = append(going, c)
	}
	s.apply(twoBrokers(at[0], at[1], "  physicalClusterRef: big\n  brokers:\n", hour))
	// One of them is the first, whose time is at once; the other's is in half an hour.
	steered := 0
	// Each hears of it on its loop, a moment after the change.
	for _, c := range going {
		for {
			req := kmsg.NewPtrMetadataRequest()
			req.Version, req.Topics = 13, nil
			c.send(req)
			resp, err := c.receive(req)
			if err != nil {
				break
			}
			m := resp.(*kmsg.MetadataResponse)
			if m.ErrorCode == 0 {
				continue
			}
			if m.ErrorCode != 129 || len(m.Brokers)+len(m.Topics) > 0 {
				t.Errorf("error %d with %d brokers and %d topics", m.ErrorCode, len(m.Brokers), len(m.Topics))
			}
			steered++
			if !c.closed() {
				t.Error("the connection was reset, want a clean end")
			}
			break
		}
	}
	if steered == 0 {
		t.Error("no client was told to bootstrap again")
	}
	for range 2 {
		if m := other.topics(); m.ErrorCode != 0 || other.told(m) != "x" || m.Brokers[0].Port != 2 {
			t.Errorf("error %d, brokers %+v", m.ErrorCode, m.Brokers)
		}
	}
}
