package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	encodingproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"penstock/node/xds/snapshot"
)

// clients are all clients of a server.
type clients struct {
	delta bool
	base  []byte // the fields that all requests have

	mu   sync.Mutex
	cond *sync.Cond
	// seen is when each client got its last response, and count how many it got.
	seen  []int64
	count []int
	err   error
}

// connect runs the clients, says when all of them have everything, and answers
// each line with the time of a change by the times that the clients took to see
// it.
func connect(o *options) error {
	c := &clients{delta: o.delta, seen: make([]int64, o.clients), count: make([]int, o.clients)}
	c.cond = sync.NewCond(&c.mu)
	all := make([]string, o.services)
	for i := range all {
		all[i] = serviceName(i)
	}
	if !o.delta { // each request repeats the names
		var err error
		if c.base, err = proto.Marshal(&discoveryv3.DiscoveryRequest{TypeUrl: snapshot.Endpoint.URL(), ResourceNames: all}); err != nil {
			return err
		}
	} else {
		c.base = protowire.AppendString(protowire.AppendTag(nil, 2, protowire.BytesType), snapshot.Endpoint.URL())
	}
	for i := range o.clients {
		first, err := c.first(i, all)
		if err != nil {
			return err
		}
		go c.run(i, o.connect, first)
	}
	if err := c.await(1); err != nil {
		return err
	}
	fmt.Println("connected")
	changes := 1
	for commands := bufio.NewScanner(os.Stdin); commands.Scan(); {
		at, err := strconv.ParseInt(commands.Text(), 10, 64)
		if err != nil {
			return err
		}
		changes++
		if err := c.await(changes); err != nil {
			return err
		}
		var out strings.Builder
		for _, seen := range c.seen {
			fmt.Fprint(&out, seen-at, " ")
		}
		fmt.Println(out.String())
	}
	return nil
}

// first returns a client's first request.
func (c *clients) first(i int, all []string) ([]byte, error) {
	node := &corev3.Node{Id: fmt.Sprint("client-", i), Cluster: proxyService}
	if c.delta {
		return proto.Marshal(&discoveryv3.DeltaDiscoveryRequest{Node: node, TypeUrl: snapshot.Endpoint.URL(), ResourceNamesSubscribe: all})
	}
	return proto.Marshal(&discoveryv3.DiscoveryRequest{Node: node, TypeUrl: snapshot.Endpoint.URL(), ResourceNames: all})
}

// await waits until each client has got a number of responses.
func (c *clients) await(count int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.count {
		for c.err == nil && c.count[i] < count {
			c.cond.Wait()
		}
		if c.err == nil && c.count[i] > count {
			return fmt.Errorf("client %d got %d responses, want %d", i, c.count[i], count)
		}
	}
	return c.err
}

// run is one client.
func (c *clients) run(i int, address string, first []byte) {
	err := c.follow(i, address, first)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = errors.Join(c.err, err)
	c.cond.Broadcast()
}

func (c *clients) follow(i int, address string, first []byte) error {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(raw{}), grpc.MaxCallRecvMsgSize(64<<20)))
	if err != nil {
		return err
	}
	defer conn.Close()
	method := discoveryv3.AggregatedDiscoveryService_StreamAggregatedResources_FullMethodName
	if c.delta {
		method = discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResources_FullMethodName
	}
	stream, err := conn.NewStream(context.Background(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
	if err != nil {
		return err
	}
	if err := stream.SendMsg(first); err != nil {
		return err
	}
	for {
		var r response
		if err := stream.RecvMsg(&r); err != nil {
			return err
		}
		if err := stream.SendMsg(c.accept(&r)); err != nil {
			return err
		}
		c.mu.Lock()
		c.seen[i] = r.at
		c.count[i]++
		c.cond.Signal()
		c.mu.Unlock()
	}
}

// accept returns the request that accepts a response (ACK).
func (c *clients) accept(r *response) []byte {
	nonce, b := protowire.Number(5), append(make([]byte, 0, len(c.base)+128), c.base...)
	if c.delta {
		nonce = 6
	} else {
		b = protowire.AppendString(protowire.AppendTag(b, 1, protowire.BytesType), r.version)
	}
	return protowire.AppendString(protowire.AppendTag(b, nonce, protowire.BytesType), r.nonce)
}

// response is what a client reads of a response.
type response struct {
	at             int64 // when it came, in nanoseconds
	version, nonce string
}

// raw is a codec of encoded requests, and of responses of which it reads two
// fields.
type raw struct{}

// Name implements encoding.CodecV2.
func (raw) Name() string { return encodingproto.Name }

// Marshal implements encoding.CodecV2.
func (raw) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

// Unmarshal implements encoding.CodecV2.
func (raw) Unmarshal(data mem.BufferSlice, v any) error {
	r := v.(*response)
	r.at = time.Now().UnixNano()
	buffer := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buffer.Free()
	for b := buffer.ReadOnlyData(); len(b) > 0; {
		number, wireType, n := protowire.ConsumeTag(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		size := protowire.ConsumeFieldValue(number, wireType, b[n:])
		if size < 0 {
			return protowire.ParseError(size)
		}
		if number == 1 || number == 5 {
			text, _ := protowire.ConsumeString(b[n:])
			if number == 1 {
				r.version = strings.Clone(text)
			} else {
				r.nonce = strings.Clone(text)
			}
		}
		b = b[n+size:]
	}
	return nil
}
