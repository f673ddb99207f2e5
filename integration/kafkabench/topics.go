package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/integration/realkafka"
)

const (
	recordSize = 1024
	// perPartition is the number of records per partition and request: 768 KB
	// per request in all.
	perPartition = 128
	readTopic    = "read"
	writeTopic   = "write"
	// readMB is the size of the topic to consume from.
	readMB = 512
)

var format = kmsg.NewRequestFormatter(kmsg.FormatterClientID("bench"))

// prepare creates the topics, with and without the tenant's prefix, warms up
// the broker and fills the topic to read.
func (e *env) prepare(ctx context.Context) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(e.broker()))
	if err != nil {
		return err
	}
	defer client.Close()
	adm := kadm.NewClient(client)
	small := map[string]*string{"retention.bytes": kadm.StringPtr("67108864"), "segment.bytes": kadm.StringPtr("33554432")}
	for _, prefix := range []string{"", tenantPrefix} {
		for topic, configs := range map[string]map[string]*string{writeTopic: small, readTopic: nil} {
			resp, err := adm.CreateTopic(ctx, partitions, 1, configs, prefix+topic)
			if err != nil || resp.Err != nil {
				return fmt.Errorf("topic %s%s: %w, %w", prefix, topic, err, resp.Err)
			}
		}
	}
	d := &proxy{name: "direct", address: e.broker()}
	for _, topic := range []string{writeTopic, readTopic, tenantPrefix + writeTopic, tenantPrefix + readTopic} {
		if err := e.waitLed(d, topic); err != nil {
			return fmt.Errorf("topic %s: %w", topic, err)
		}
	}
	if err := e.fill(d, writeTopic, e.o.warm); err != nil {
		return fmt.Errorf("warming up: %w", err)
	}
	for _, prefix := range []string{"", tenantPrefix} {
		if err := e.fill(d, prefix+readTopic, min(readMB, e.o.warm)); err != nil {
			return fmt.Errorf("filling %s%s: %w", prefix, readTopic, err)
		}
	}
	// Warm up reading as well.
	_, err = e.each(2, time.Duration(min(e.o.warm, 2500))*time.Millisecond, func(over func() bool) (float64, error) {
		return consume(d, over)
	})
	return err
}

// waitLed produces until the topic's partitions have a leader.
func (e *env) waitLed(p *proxy, topic string) error {
	var err error
	for range 100 {
		if err = e.fill(p, topic, 1); err == nil {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return err
}

// fill produces that many MB.
func (e *env) fill(p *proxy, topic string, mb int) error {
	sent := 0.0
	_, err := e.each(1, time.Hour, func(over func() bool) (float64, error) {
		return produceTo(p, topic, func() bool { sent++; return over() || sent*partitions*perPartition*recordSize > float64(mb)*1e6 })
	})
	return err
}

// produceFrame returns a request for all partitions, with its correlation ID at
// byte 8.
func produceFrame(topic string, partitions, records int) []byte {
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks, req.TimeoutMillis = 9, -1, 30_000
	t := kmsg.NewProduceRequestTopic()
	t.Topic = topic
	value := bytes.Repeat([]byte("0123456789abcdef"), recordSize/16)
	var values [][]byte
	for range records {
		values = append(values, value)
	}
	batch := realkafka.Batch(time.Now(), values...)
	for p := range partitions {
		one := kmsg.NewProduceRequestTopicPartition()
		one.Partition, one.Records = int32(p), batch
		t.Partitions = append(t.Partitions, one)
	}
	req.Topics = append(req.Topics, t)
	return format.AppendRequest(nil, req, 0)
}

// frames reads responses into a reused buffer.
type frames struct {
	net.Conn
	buf []byte
}

func (f *frames) next() ([]byte, error) {
	var head [4]byte
	if err := f.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		return nil, err
	}
	if _, err := io.ReadFull(f, head[:]); err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint32(head[:]))
	if n < 4 || n > 128<<20 {
		return nil, fmt.Errorf("an answer of %d bytes", n)
	}
	if cap(f.buf) < n {
		f.buf = make([]byte, n)
	}
	_, err := io.ReadFull(f, f.buf[:n])
	return f.buf[:n], err
}

// answered reads a response to Produce and checks that it has no error.
func (f *frames) answered(correlation uint32) error {
	frame, err := f.next()
	if err != nil {
		return err
	}
	if got := binary.BigEndian.Uint32(frame); got != correlation {
		return fmt.Errorf("answer %d came, %d was due", got, correlation)
	}
	resp := kmsg.NewPtrProduceResponse()
	resp.Version = 9
	if err := resp.ReadFrom(frame[5:]); err != nil {
		return err
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if p.ErrorCode != 0 {
				return fmt.Errorf("produce to %s/%d: error %d", t.Topic, p.Partition, p.ErrorCode)
			}
		}
	}
	return nil
}
