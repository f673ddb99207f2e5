package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// each runs n workers for d and sums up their results.
func (e *env) each(n int, d time.Duration, work func(over func() bool) (float64, error)) (float64, error) {
	var over atomic.Bool
	timer := time.AfterFunc(d, func() { over.Store(true) })
	defer timer.Stop()
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		sum  float64
		errs []error
	)
	for range n {
		wg.Go(func() {
			units, err := work(over.Load)
			mu.Lock()
			defer mu.Unlock()
			sum += units
			if err != nil {
				errs = append(errs, err)
				over.Store(true)
			}
		})
	}
	wg.Wait()
	return sum, errors.Join(errs...)
}

// produce writes at full speed with five requests in flight, and returns the
// acknowledged GB.
func produce(p *proxy, over func() bool) (float64, error) { return produceTo(p, writeTopic, over) }

func produceTo(p *proxy, topic string, over func() bool) (float64, error) {
	c, err := p.dial()
	if err != nil {
		return 0, err
	}
	defer c.Close()
	f := &frames{Conn: c}
	frame := produceFrame(topic, partitions, perPartition)
	const inFlight = 5
	room, failed := make(chan struct{}, inFlight), make(chan error, 1)
	ended := make(chan struct{})
	sent := make(chan uint32, inFlight)
	acknowledged := 0.0
	go func() {
		defer close(ended)
		for correlation := range sent {
			if err := f.answered(correlation); err != nil {
				failed <- err
				c.Close()
				for range sent {
					continue
				}
				return
			}
			acknowledged++
			<-room
		}
	}()
	var correlation uint32
	for err == nil && (!over() || correlation == 0) { // at least once
		select {
		case room <- struct{}{}:
		case <-ended:
			err = <-failed
			continue
		}
		correlation++
		binary.BigEndian.PutUint32(frame[8:], correlation)
		if _, err = c.Write(frame); err == nil {
			sent <- correlation
		}
	}
	close(sent)
	<-ended
	select {
	case read := <-failed:
		err = errors.Join(err, read)
	default:
	}
	return acknowledged * partitions * perPartition * recordSize / 1e9, err
}

// consume reads the topic from its beginning in a loop, and returns GB.
func consume(p *proxy, over func() bool) (float64, error) {
	c, err := p.dial()
	if err != nil {
		return 0, err
	}
	defer c.Close()
	f := &frames{Conn: c}
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.SessionEpoch, req.MaxWaitMillis, req.MinBytes, req.MaxBytes = 12, -1, 100, 1, 50<<20
	t := kmsg.NewFetchRequestTopic()
	t.Topic = readTopic
	for i := range partitions {
		one := kmsg.NewFetchRequestTopicPartition()
		one.Partition, one.PartitionMaxBytes = int32(i), 1<<20
		t.Partitions = append(t.Partitions, one)
	}
	req.Topics = append(req.Topics, t)
	var out []byte
	got := 0.0
	resp := kmsg.NewPtrFetchResponse()
	for got == 0 || !over() {
		out = format.AppendRequest(out[:0], req, 1)
		if _, err := c.Write(out); err != nil {
			return got, err
		}
		frame, err := f.next()
		if err != nil {
			return got, err
		}
		*resp = kmsg.FetchResponse{Version: 12}
		if err := resp.ReadFrom(frame[5:]); err != nil {
			return got, err
		}
		n, err := advance(req, resp)
		if err != nil {
			return got, err
		}
		got += float64(n) / 1e9
	}
	return got, nil
}

// advance moves the offset of each partition past the batches received, or back
// to the beginning, and returns their size in bytes.
func advance(req *kmsg.FetchRequest, resp *kmsg.FetchResponse) (int, error) {
	bytes := 0
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if p.ErrorCode != 0 {
				return 0, fmt.Errorf("fetch of %s/%d: error %d", t.Topic, p.Partition, p.ErrorCode)
			}
			at := &req.Topics[0].Partitions[p.Partition].FetchOffset
			batches := p.RecordBatches
			bytes += len(batches)
			for len(batches) >= 61 {
				size := int(binary.BigEndian.Uint32(batches[8:])) + 12
				if size > len(batches) {
					break // the last batch may be truncated
				}
				*at = int64(binary.BigEndian.Uint64(batches)) + int64(binary.BigEndian.Uint32(batches[23:])) + 1
				batches = batches[size:]
			}
			if *at >= p.HighWatermark {
				*at = 0
			}
		}
	}
	return bytes, nil
}

// times are the latencies of one window.
type times []time.Duration

func (t times) median() float64 {
	if len(t) == 0 {
		return 0
	}
	s := slices.Clone(t)
	slices.Sort(s)
	return float64(s[len(s)/2])
}

// oneByOne produces single records, each after the previous one is
// acknowledged.
func oneByOne(p *proxy, over func() bool) (times, error) {
	c, err := p.dial()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	f := &frames{Conn: c}
	frame := produceFrame(writeTopic, 1, 1)
	var all times
	for correlation := uint32(1); !over(); correlation++ {
		began := time.Now()
		binary.BigEndian.PutUint32(frame[8:], correlation)
		if _, err := c.Write(frame); err != nil {
			return all, err
		}
		if err := f.answered(correlation); err != nil {
			return all, err
		}
		all = append(all, time.Since(began))
	}
	return all, nil
}

// connect performs a client's first requests: ApiVersions and the metadata of
// one topic.
func connect(p *proxy) (time.Duration, error) {
	began := time.Now()
	c, err := p.dial()
	if err != nil {
		return 0, err
	}
	defer c.Close()
	f := &frames{Conn: c}
	if _, err := c.Write(greeting); err != nil {
		return 0, err
	}
	if _, err := f.next(); err != nil {
		return 0, err
	}
	if _, err := c.Write(question); err != nil {
		return 0, err
	}
	_, err = f.next()
	return time.Since(began), err
}

var greeting, question = func() ([]byte, []byte) {
	versions := kmsg.NewPtrApiVersionsRequest()
	versions.Version, versions.ClientSoftwareName, versions.ClientSoftwareVersion = 3, "bench", "1"
	meta := kmsg.NewPtrMetadataRequest()
	meta.Version = 12
	t := kmsg.NewMetadataRequestTopic()
	topic := readTopic
	t.Topic = &topic
	meta.Topics = append(meta.Topics, t)
	return format.AppendRequest(nil, versions, 1), format.AppendRequest(nil, meta, 2)
}()

// connections opens connections one after the other.
func connections(p *proxy, over func() bool) (times, error) {
	var all times
	for !over() {
		took, err := connect(p)
		if err != nil {
			return all, err
		}
		all = append(all, took)
	}
	return all, nil
}
