package dataplane

import (
	"testing"

	"penstock/kafka/model"
)

// A physical cluster whose CA is not there yet, or not any more, trusts no broker; the
// system's CAs are for those that name none.
func TestMissingCAsAreNotTheSystems(t *testing.T) {
	p := startKafka(t, "", "t")
	for name, settings := range map[string]*model.PhysicalTLS{"caFile": {CAFile: "/nonexistent"}, "caRef": {CARef: "a"}} {
		if config := p.reconciler.kafkaTLS.client("big", "broker", settings); config.RootCAs == nil {
			t.Errorf("%s: the system's CAs verify brokers", name)
		}
	}
	if config := p.reconciler.kafkaTLS.client("big", "broker", &model.PhysicalTLS{}); config.RootCAs != nil {
		t.Error("without a CA the system's do not verify brokers")
	}
}
