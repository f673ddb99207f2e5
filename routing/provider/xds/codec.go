package xds

import (
	"fmt"

	"google.golang.org/grpc/encoding"
	encodingproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// messagesPerEndpoint is how many protobuf messages an endpoint may have: 8
// without metadata, and 2 more for each value in it.
const messagesPerEndpoint = 20

// maxDepth bounds messages within messages, as Envoy does.
const maxDepth = 100

// codec is gRPC's protobuf codec, with a bound on the messages in a message.
type codec struct{ limit int }

// Marshal implements encoding.CodecV2.
func (codec) Marshal(v any) (mem.BufferSlice, error) {
	return encoding.GetCodecV2(encodingproto.Name).Marshal(v)
}

// Unmarshal implements encoding.CodecV2.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	buffer := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buffer.Free()
	return unmarshal(buffer.ReadOnlyData(), v.(proto.Message), c.limit)
}

// Name implements encoding.CodecV2.
func (codec) Name() string { return encodingproto.Name }

// unmarshal decodes a message with at most limit messages in it. An empty
// message takes two bytes on the wire but about a hundred in memory: without the
// limit, a response of 16 MiB could take a gigabyte.
func unmarshal(data []byte, m proto.Message, limit int) error {
	left, err := countMessages(data, m.ProtoReflect().Descriptor(), limit, maxDepth)
	switch {
	case err != nil:
		return err
	case left < 0:
		return fmt.Errorf("%s has more than %d messages in it", m.ProtoReflect().Descriptor().Name(), limit)
	}
	return proto.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(data, m)
}

// countMessages subtracts the messages in an encoded message, at any depth, from
// left. It stops when the result is negative.
func countMessages(data []byte, of protoreflect.MessageDescriptor, left, depth int) (int, error) {
	if depth == 0 {
		return 0, fmt.Errorf("messages are nested deeper than %d", maxDepth)
	}
	fields := of.Fields()
	for len(data) > 0 && left >= 0 {
		number, wireType, n := protowire.ConsumeTag(data)
		if n < 0 {
			return 0, protowire.ParseError(n)
		}
		data = data[n:]
		size := protowire.ConsumeFieldValue(number, wireType, data)
		if size < 0 {
			return 0, protowire.ParseError(size)
		}
		field := fields.ByNumber(number)
		if wireType == protowire.BytesType && field != nil && field.Message() != nil {
			inner, _ := protowire.ConsumeBytes(data)
			var err error
			if left, err = countMessages(inner, field.Message(), left-1, depth-1); err != nil {
				return 0, err
			}
		}
		data = data[size:]
	}
	return left, nil
}
