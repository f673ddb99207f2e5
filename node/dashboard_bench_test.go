package node

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"penstock/node/events"
	"penstock/node/nodetest"
)

// manyEndpoints returns 1,000 services with ten endpoints each, behind one listener.
func manyEndpoints() string {
	var b strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&b, "kind: Service\nname: s%03d\nspec:\n  endpoints:\n", i)
		for j := range 10 {
			fmt.Fprintf(&b, "  - {address: \"127.0.%d.%d:9\", tags: {version: v1, zone: a}}\n", 1+i/250, (i*10+j)%250)
		}
		b.WriteString("---\n")
	}
	b.WriteString("kind: Listener\nname: edge\nspec: {address: \"127.0.0.1:0\", service: s000}\n")
	return b.String()
}

// BenchmarkTopics measures computing and encoding what a stream of /v1/events gets of each
// topic, on a node with 1,000 services and 10,000 endpoints.
func BenchmarkTopics(b *testing.B) {
	n, _ := benchNode(b, nodetest.Objects(b, manyEndpoints()))
	for _, t := range n.ops.Topics() {
		r, err := http.NewRequestWithContext(b.Context(), http.MethodGet, "/v1/events", nil)
		if err != nil {
			b.Fatal(err)
		}
		source, err := t.Source(r)
		if err != nil {
			b.Fatal(err)
		}
		if source.State == nil {
			continue
		}
		b.Run(t.Name, func(b *testing.B) {
			size := 0
			for b.Loop() {
				state, err := source.State(b.Context())
				if err != nil {
					b.Fatal(err)
				}
				text, err := json.Marshal(state)
				if err != nil {
					b.Fatal(err)
				}
				size = len(text)
			}
			b.ReportMetric(float64(size), "bytes")
		})
	}
}

var _ = events.DefaultFeeds
var _ context.Context
var _ time.Time
