package translate

import (
	"crypto/sha256"
	"encoding/hex"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"penstock/node/xds/snapshot"
	"penstock/routing/resource"
)

// versionBytes is the length of a version before it is written in hex.
const versionBytes = 8

var deterministic = proto.MarshalOptions{Deterministic: true}

// encode returns a message as a resource.
func encode(t snapshot.Type, name string, m proto.Message) *snapshot.Resource {
	value := mustMarshal(m)
	digest := sha256.Sum256(value)
	return &snapshot.Resource{
		Name: name, Version: hex.EncodeToString(digest[:versionBytes]),
		Any: mustMarshal(&anypb.Any{TypeUrl: t.URL(), Value: value}),
	}
}

// packed returns a message as a part of another.
func packed(m proto.Message) *anypb.Any {
	return &anypb.Any{TypeUrl: typePrefix + string(m.ProtoReflect().Descriptor().FullName()), Value: mustMarshal(m)}
}

const typePrefix = "type.googleapis.com/"

func mustMarshal(m proto.Message) []byte {
	data, err := deterministic.Marshal(m)
	if err != nil {
		panic(err) // a text that is not UTF-8, which no resource has
	}
	return data
}

func duration(d resource.Duration) *durationpb.Duration { return durationpb.New(time.Duration(d)) }

func number[N int | uint32](n N) *wrapperspb.UInt32Value { return wrapperspb.UInt32(uint32(n)) }

// overADS says that a resource comes by the proxy's aggregated stream.
func overADS() *corev3.ConfigSource {
	return &corev3.ConfigSource{
		ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
		ResourceApiVersion:    corev3.ApiVersion_V3,
	}
}

// inline returns PEM as bytes: what surrounds its blocks need not be UTF-8.
func inline(pem string) *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: []byte(pem)}}
}
