package node

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"penstock/internal/testkit"
	"penstock/node/api"
	"penstock/node/nodetest"
	"penstock/node/ops"
	"penstock/node/rpc"
	"penstock/routing/resource/codec"
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
	for _, query := range []string{"", "?brief"} {
		for _, t := range n.ops.Topics() {
			r, err := http.NewRequestWithContext(b.Context(), http.MethodGet, "/v1/events"+query, nil)
			if err != nil {
				b.Fatal(err)
			}
			source, err := t.Source(r)
			if err != nil {
				b.Fatal(err)
			}
			if source.State == nil || query != "" && t.Name != "status" {
				continue
			}
			b.Run(t.Name+query, func(b *testing.B) {
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
}

// BenchmarkOpenDashboard measures the CPU of five nodes in this process while one stream of
// the dashboard's overview is open, beside none, in percent of a core.
func BenchmarkOpenDashboard(b *testing.B) {
	first := benchMember(b, Config{Name: "n1", Init: true})
	testkit.WaitFor(b, "a leader", func() bool { return first.cluster.Store().Leadership().Ready })
	local, err := ops.ConnectLocal(b.Context(), first.admin, api.Principal{Name: "bench", Role: api.RoleAdmin})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { local.Close() })
	token := func(role api.Role) string {
		made, err := rpc.Call[api.TokenCreated](b.Context(), local, api.MethodTokenNew, &api.TokenCreateRequest{Name: string(role), Role: role})
		if err != nil {
			b.Fatal(err)
		}
		return made.Token
	}
	join := token(api.RoleJoin)
	for i := range 4 {
		benchMember(b, Config{Name: fmt.Sprintf("n%d", i+2), Join: []string{first.AdminAddr()}, Token: join})
	}
	var req api.ApplyRequest
	for _, o := range nodetest.Objects(b, manyEndpoints()) {
		req.Documents = append(req.Documents, codec.EncodeWithSecrets(o))
	}
	if _, err := rpc.Call[api.ApplyResult](b.Context(), local, api.MethodApply, req); err != nil {
		b.Fatal(err)
	}
	reader := token(api.RoleReader)
	const span = 20 * time.Second
	busy := func() float64 {
		var before, after syscall.Rusage
		_ = syscall.Getrusage(syscall.RUSAGE_SELF, &before)
		<-time.After(span)
		_ = syscall.Getrusage(syscall.RUSAGE_SELF, &after)
		used := after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()
		return 100 * float64(used) / float64(span)
	}
	for b.Loop() {
		without := busy()
		r, err := http.NewRequestWithContext(b.Context(), http.MethodGet,
			"http://"+first.HTTPAddr()+"/v1/events?topics=status,problems,traffic,progress,changes&brief", nil)
		if err != nil {
			b.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+reader)
		resp, err := (&http.Transport{}).RoundTrip(r) //nolint:bodyclose // closed when it has been measured
		if err != nil {
			b.Fatal(err)
		}
		read := make(chan int64, 1)
		go func() {
			n, _ := io.Copy(io.Discard, resp.Body)
			read <- n
		}()
		with := busy()
		resp.Body.Close()
		b.ReportMetric(without, "%without")
		b.ReportMetric(with, "%with")
		b.ReportMetric(float64(<-read)/span.Seconds(), "bytes/s")
	}
}

// benchMember starts a node of a cluster.
func benchMember(b *testing.B, cfg Config) *Node {
	b.Helper()
	cfg.DataDir, cfg.Loops, cfg.Version = b.TempDir(), 1, "bench"
	cfg.Cluster, cfg.Gossip, cfg.HTTP = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	n, err := Start(b.Context(), cfg)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = n.Stop(ctx)
	})
	return n
}
