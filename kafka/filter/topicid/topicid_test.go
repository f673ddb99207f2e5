package topicid

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/kafka/wire"
)

func idOf(i int) (t ID) {
	binary.BigEndian.PutUint64(t[:], uint64(i)+1)
	return t
}

// However many ids pass by, memory is bounded, and those that are in use stay.
func TestNamesInUseStayWhenOthersFlood(t *testing.T) {
	var n Names
	n.Learn(idOf(0), "in use")
	for i := 1; i <= 5*maxIDs; i++ {
		n.Learn(idOf(i), "t")
		if i%(maxIDs/2) == 0 {
			if got, ok := n.Get(idOf(0)); !ok || got != "in use" {
				t.Fatalf("after %d others it is %q, %v", i, got, ok)
			}
		}
	}
	if kept := len(n.newer) + len(n.older); kept > 2*maxIDs || kept < maxIDs {
		t.Errorf("%d names are kept, want %d to %d", kept, maxIDs, 2*maxIDs)
	}
	if _, ok := n.Get(idOf(1)); ok {
		t.Error("a name that nobody used is still there")
	}
}

// An id has one name for ever, and no id at all is none.
func TestAnIDKeepsItsName(t *testing.T) {
	var n Names
	n.Learn(idOf(1), "first")
	n.Learn(idOf(1), "second")
	if got, _ := n.Get(idOf(1)); got != "first" {
		t.Errorf("it is %q", got)
	}
	n.Learn(ID{}, "nobody")
	if _, ok := n.Get(ID{}); ok {
		t.Error("the zero id has a name")
	}
}

// Every version of Metadata tells of its topics, but of those with an error; a body that is
// cut short anywhere is an error, and tells of no topic that is not whole.
func TestEachTellsOfTopicsThatExist(t *testing.T) {
	lowest, highest, _ := wire.Known(int16(kmsg.Metadata))
	for v := lowest; v <= highest; v++ {
		m := kmsg.NewPtrMetadataResponse()
		m.Version = v
		for i, name := range []string{"orders", "absent", "bills"} {
			one := kmsg.NewMetadataResponseTopic()
			one.Topic, one.TopicID = &name, idOf(i)
			if name == "absent" {
				one.ErrorCode = 3
			}
			m.Topics = append(m.Topics, one)
		}
		body := m.AppendTo(nil)
		told := func(b []byte) (list []string, err error) {
			err = Each(v, b, func(name []byte, id ID) {
				if v < 10 && id != (ID{}) || v >= 10 && id == (ID{}) {
					t.Errorf("v%d: %s has the id %x", v, name, id)
				}
				list = append(list, string(name))
			})
			return list, err
		}
		if list, err := told(body); err != nil || !slices.Equal(list, []string{"orders", "bills"}) {
			t.Errorf("v%d: %q, %v", v, list, err)
		}
		for cut := range body {
			list, err := told(body[:cut])
			for _, name := range list {
				if name != "orders" && name != "bills" {
					t.Errorf("v%d cut at %d: %q", v, cut, list)
				}
			}
			// Behind the topics there may be what nobody reads here.
			if err == nil && len(list) < 2 {
				t.Errorf("v%d cut at %d: %q and no error", v, cut, list)
			}
		}
	}
}

func ExampleNames() {
	var n Names
	n.Learn(idOf(7), "orders")
	fmt.Println(n.Get(idOf(7)))
	// Output: orders true
}
