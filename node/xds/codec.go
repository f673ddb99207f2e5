package xds

import (
	"errors"
	"fmt"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	encodingproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"penstock/node/xds/snapshot"
	"penstock/node/xds/stream"
)

// maxMessage bounds a message in a request, such as the node, in bytes: in
// memory it may take 50 times that.
const maxMessage = 256 << 10

var errMessage = errors.New("xds: the codec is of requests and responses alone")

// codec is the codec of all streams: it decodes requests with bounds, and sends
// responses as they are encoded.
type codec struct{ maxNames int }

// inbound is a request as it is received.
type inbound struct {
	delta bool // set by the receiver: which variant it is

	typeURL string
	node    *corev3.Node // nil: left out
	request stream.Request
}

// Name implements encoding.CodecV2.
func (*codec) Name() string { return encodingproto.Name }

// Marshal implements encoding.CodecV2.
func (*codec) Marshal(v any) (mem.BufferSlice, error) {
	r, ok := v.(*stream.Response)
	if !ok {
		return nil, errMessage
	}
	return mem.BufferSlice{mem.SliceBuffer(r.Head), mem.SliceBuffer(r.Body)}, nil
}

// Unmarshal implements encoding.CodecV2.
func (c *codec) Unmarshal(data mem.BufferSlice, v any) error {
	in, ok := v.(*inbound)
	if !ok {
		return errMessage
	}
	buffer := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buffer.Free()
	return in.decode(buffer.ReadOnlyData(), c.maxNames)
}

// decode decodes a request.
func (in *inbound) decode(data []byte, maxNames int) error {
	if err := checkFields(data, maxNames); err != nil {
		return err
	}
	options := proto.UnmarshalOptions{DiscardUnknown: true}
	if in.delta {
		var m discoveryv3.DeltaDiscoveryRequest
		if err := options.Unmarshal(data, &m); err != nil {
			return err
		}
		if len(m.GetResourceLocatorsSubscribe())+len(m.GetResourceLocatorsUnsubscribe()) > 0 {
			return errLocators
		}
		in.typeURL, in.node = m.GetTypeUrl(), m.GetNode()
		in.request = stream.Request{
			Nonce: m.GetResponseNonce(), Rejected: m.GetErrorDetail() != nil, Detail: m.GetErrorDetail().GetMessage(),
			Subscribe: m.GetResourceNamesSubscribe(), Unsubscribe: m.GetResourceNamesUnsubscribe(),
			Known: m.GetInitialResourceVersions(),
		}
	} else {
		var m discoveryv3.DiscoveryRequest
		if err := options.Unmarshal(data, &m); err != nil {
			return err
		}
		if len(m.GetResourceLocators()) > 0 {
			return errLocators
		}
		in.typeURL, in.node = m.GetTypeUrl(), m.GetNode()
		in.request = stream.Request{
			Nonce: m.GetResponseNonce(), Rejected: m.GetErrorDetail() != nil, Detail: m.GetErrorDetail().GetMessage(),
			Version: m.GetVersionInfo(), Names: m.GetResourceNames(),
		}
	}
	in.request.Type, _ = snapshot.TypeOf(in.typeURL)
	return nil
}

var errLocators = errors.New("resource_locators are not supported: use resource_names")

// checkFields returns an error if a request has too many elements in a list, or
// too large a message: decoded, these take far more memory than the bytes on the
// wire.
func checkFields(data []byte, maxNames int) error {
	counts := map[protowire.Number]int{}
	for len(data) > 0 {
		number, wireType, n := protowire.ConsumeTag(data)
		if n < 0 {
			return protowire.ParseError(n)
		}
		size := protowire.ConsumeFieldValue(number, wireType, data[n:])
		if size < 0 {
			return protowire.ParseError(size)
		}
		data = data[n+size:]
		if counts[number]++; counts[number] > maxNames {
			return fmt.Errorf("more than %d names of resources", maxNames)
		}
		if size > maxMessage {
			return fmt.Errorf("a field has %d bytes; the maximum is %d", size, maxMessage)
		}
	}
	return nil
}
