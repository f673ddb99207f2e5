package xds

import (
	"bytes"
	"strings"
	"testing"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/structpb"
)

func TestMessagesAreBounded(t *testing.T) {
	empty := bytes.Repeat([]byte{2<<3 | 2, 0}, 1000) // of field 2, which both messages have
	for _, m := range []proto.Message{&discoveryv3.DiscoveryResponse{}, &endpointv3.ClusterLoadAssignment{}} {
		if err := unmarshal(empty, m, 1000); err != nil {
			t.Error(err)
		}
		if err := unmarshal(empty, m, 999); err == nil || !strings.Contains(err.Error(), "has more than 999 messages in it") {
			t.Errorf("%T: %v", m, err)
		}
	}
	deep := []byte{}
	for range maxDepth { // lists in lists: Value.list_value, ListValue.values
		deep = protowire.AppendBytes([]byte{6<<3 | 2}, protowire.AppendBytes([]byte{1<<3 | 2}, deep))
	}
	if err := unmarshal(deep, &structpb.Value{}, 1000); err == nil || !strings.Contains(err.Error(), "nested deeper than 100") {
		t.Error(err)
	}
}

// Messages are counted as protobuf decodes them.
func FuzzCountMessages(f *testing.F) {
	for _, m := range []proto.Message{
		assign("web", in("a", 0, 3, at("10.0.0.1:80", 2, healthy)), in("b", 1, 1, at("[::1]:80", 0, unknown))), simple("", "10.0.0.1:80"),
	} {
		data, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		const limit = 1 << 20
		m := &endpointv3.ClusterLoadAssignment{}
		left, err := countMessages(data, m.ProtoReflect().Descriptor(), limit, maxDepth)
		decoded := proto.Unmarshal(data, m)
		if err != nil || decoded != nil {
			return
		}
		// Fields that occur twice are counted twice, but decoded into one.
		if n := messagesIn(m.ProtoReflect()); limit-left < n {
			t.Fatalf("%d messages were counted, %d decoded", limit-left, n)
		}
	})
}

// messagesIn returns the number of messages in a message. Entries of maps are
// messages.
func messagesIn(m protoreflect.Message) (n int) {
	m.Range(func(field protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case field.IsMap():
			v.Map().Range(func(_ protoreflect.MapKey, value protoreflect.Value) bool {
				n++
				if field.MapValue().Message() != nil {
					n += messagesIn(value.Message())
				}
				return true
			})
		case field.Message() == nil:
		case field.IsList():
			for i := range v.List().Len() {
				n += 1 + messagesIn(v.List().Get(i).Message())
			}
		default:
			n += 1 + messagesIn(v.Message())
		}
		return true
	})
	return n
}
