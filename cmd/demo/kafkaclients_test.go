package demo

import (
	"context"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// If a node is killed with a producer's first request, no record is lost: the
// client retries through another node.
func TestProducerSurvivesNodeOfItsFirstRequest(t *testing.T) {
	t.Parallel()
	broker, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(demoPartitions, demoTopic))
	if err != nil {
		t.Fatal(err)
	}
	defer broker.Close()
	killed := make(chan struct{})
	broker.ControlKey(kmsg.InitProducerID.Int16(), func(kmsg.Request) (kmsg.Response, error, bool) {
		close(killed)
		return nil, context.Canceled, true // closes the connection
	})
	k := &kafkaTraffic{cluster: &cluster{plain: broker.ListenAddrs()[0], balancer: &balancer{}}}
	c, err := k.client("blue", kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DefaultProduceTopic(demoTopic))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		k.produce(ctx, "blue", c, 0)
	}()
	for <-killed; k.produced.Load() == 0 && k.misplaced.Load() == 0; {
		pause(ctx, recordInterval)
	}
	cancel()
	<-done
	if k.misplaced.Load() != 0 {
		t.Error(k.faults)
	}
}
