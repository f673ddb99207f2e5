// A browser beside the other tests would take the time that these count on.

//go:build !race

package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"penstock/internal/testkit"
	"penstock/node/api"
)

// bigFlow is the flow of a cluster with 1,000 services of 10 endpoints each. Connections
// differ from one turn to the next.
func bigFlow(turn int) *api.FlowResult {
	r := &api.FlowResult{At: time.Now()}
	for s := range 1000 {
		name := fmt.Sprintf("service-%03d", s)
		for e := range 10 {
			r.Streams = append(r.Streams, api.Stream{
				Listener: fmt.Sprintf("edge-%d", s%8), Route: map[bool]string{true: "MeshTCPRoute/split-" + name}[s%3 == 0],
				Destination: name, Service: name, Subset: map[bool]string{true: fmt.Sprintf("version=v%d", e%2+1)}[s%3 == 0],
				Endpoint:    fmt.Sprintf("10.%d.%d.%d:8080", s/250, s%250, e+1),
				Connections: int64(1 + (s*7+e*3+turn*(s%13))%97), InRate: float64(s * e), OutRate: float64(s * (turn + e)),
			})
		}
	}
	return r
}

// serveBigFlow serves the bundle and, twice a second, another flow.
func serveBigFlow(t *testing.T) (address string) {
	t.Helper()
	var turns [4][]byte
	for i := range turns {
		b, err := json.Marshal(bigFlow(i))
		if err != nil {
			t.Fatal(err)
		}
		turns[i] = b
	}
	dist := filepath.FromSlash("../node/ui/dist")
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ui/session", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"name":"dev","role":"admin","csrf":"","node":"n1","version":"test","dev":true}`)
	})
	mux.HandleFunc("GET /v1/events", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_ = http.NewResponseController(w).Flush()
		if r.URL.Query().Get("topics") != "flow" {
			<-r.Context().Done()
			return
		}
		tick := time.NewTicker(time.Second / 2)
		defer tick.Stop()
		for i := 0; ; i++ {
			fmt.Fprintf(w, "event: flow\ndata: %s\n\n", turns[i%len(turns)])
			_ = http.NewResponseController(w).Flush()
			select {
			case <-tick.C:
			case <-r.Context().Done():
				return
			}
		}
	})
	mux.Handle("GET /ui/assets/", http.StripPrefix("/ui", http.FileServer(http.Dir(dist))))
	mux.HandleFunc("GET /ui/", func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, filepath.Join(dist, "index.html")) })
	return testkit.ServeHTTP(t, mux.ServeHTTP)
}

// frames counts the frames of six seconds, in which the picture moves again and again.
const frames = `new Promise(resolve => {
	const at = [];
	const begin = performance.now(), spent = [], long = [];
	new PerformanceObserver(list => list.getEntries().forEach(e => long.push(e.duration))).observe({type: "longtask"});
	const ask = requestAnimationFrame;
	window.requestAnimationFrame = act => ask(now => {
		const t = performance.now();
		act(now);
		spent.push(performance.now() - t);
	});
	const frame = now => {
		if (now > begin + 2000) at.push(now); // programs are compiled by then
		if (now < begin + 8000) ask(frame);
		else {
			const gaps = at.slice(1).map((t, i) => t - at[i]).sort((a, b) => a - b);
			const layouts = performance.getEntriesByName("flow-layout").map(m => m.duration);
			resolve({frames: gaps.length, seconds: (at.at(-1) - at[0]) / 1000, p95: gaps[Math.floor(gaps.length * 0.95)],
				max: gaps.at(-1), draw: spent.sort((a, b) => a - b)[Math.floor(spent.length * 0.95)] ?? 0, long: Math.max(0, ...long), layouts: layouts.length, layout: Math.max(...layouts)});
		}
	};
	ask(frame);
})`

// 1,000 services with 10,000 endpoints are a picture of a bounded size, that moves with
// every reading; how smoothly is printed.
func TestDashboardDrawsALargeFlow(t *testing.T) {
	t.Parallel()
	p := newPage(t, serveBigFlow(t))
	p.open("/flow")
	p.wait("the picture", `document.querySelector("canvas[aria-label*=service]")`)
	p.waitText(".note", "10\u2009000 streams")
	r := evaluate[struct {
		Frames, Layouts                       int
		Seconds, P95, Max, Draw, Long, Layout float64
	}](p, frames)
	if r.Layouts < 5 {
		t.Errorf("the picture was laid out %d times, want one for each reading", r.Layouts)
	}
	t.Logf("%d streams, another reading every 500 ms: %.1f frames a second, 95%% within %.1f ms, the longest %.1f ms; drawing takes up to %.1f ms (95%%), the longest layout %.1f ms, the longest task %.1f ms",
		10_000, float64(r.Frames)/r.Seconds, r.P95, r.Max, r.Draw, r.Layout, r.Long)
	p.open("/flow?as=table")
	p.waitText("#main", "the largest 1\u2009000 of 10\u2009000")
	if rows := evaluate[int](p, `document.querySelectorAll("tbody tr").length`); rows > 100 {
		t.Errorf("the table has %d rows at once", rows)
	}
	p.open("/flow?service=service-042")
	p.waitText(".note", "10 streams")
}
