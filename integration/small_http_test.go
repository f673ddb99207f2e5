package integration

import (
	"net/http"
	"strings"
	"sync"
	"testing"
)

// A client that tries wrong tokens at /v1 is throttled and counted, but does
// not lock out clients from its address that have been admitted.
func TestWrongTokensAtV1AreBounded(t *testing.T) {
	t.Parallel()
	m := startCluster(t, 1).members[0]
	good := strings.TrimSpace(m.run("token", "create", "--role", "reader").out)
	ask := func(token string) int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+m.http+"/v1/status", nil)
		if err != nil {
			t.Error(err)
			return 0
		}
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Error(err)
			return 0
		}
		defer resp.Body.Close()
		if resp.StatusCode == http.StatusTooManyRequests && resp.Header.Get("Retry-After") == "" {
			t.Error("too many requests, and not a word on when to try again")
		}
		return resp.StatusCode
	}
	if code := ask(good); code != http.StatusOK {
		t.Fatalf("a good token: %d", code)
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	seen := map[int]int{}
	for range 100 {
		all.Go(func() {
			code := ask(good + "x")
			mu.Lock()
			defer mu.Unlock()
			seen[code]++
		})
	}
	all.Wait()
	if seen[http.StatusUnauthorized] > 40 || seen[http.StatusTooManyRequests] < 60 {
		t.Errorf("100 wrong tokens were answered with %v", seen)
	}
	if code := ask(good); code != http.StatusOK {
		t.Errorf("the good token from the same address: %d", code)
	}
	if m.metric("admin_tokens_total", `result="wrong"`) == 0 || m.metric("admin_tokens_total", `result="not_looked_at"`) == 0 {
		t.Error("the metrics do not tell of them")
	}
}
