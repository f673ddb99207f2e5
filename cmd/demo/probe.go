package demo

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"
)

const (
	probeInterval = 100 * time.Millisecond
	probeTimeout  = time.Second
	// slowProbes is the number of consecutive probes that must time out before a
	// node counts as not ready: on a busy machine a single one means little.
	slowProbes = 3
)

// probe polls a node's /readyz, and marks the node as ready while the answer is
// 200.
func (b *balancer) probe(ctx context.Context, backend int, url string) {
	h := &http.Client{Transport: &http.Transport{}}
	defer h.CloseIdleConnections()
	tick := time.NewTicker(probeInterval)
	defer tick.Stop()
	for slow := 0; ; {
		up, err := ready(ctx, h, url)
		if ctx.Err() != nil {
			return
		}
		if slow++; !errors.Is(err, context.DeadlineExceeded) {
			slow = 0
		}
		if slow == 0 || slow >= slowProbes {
			b.setReady(backend, up)
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

func ready(ctx context.Context, h *http.Client, url string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return false, err
	}
	resp, err := h.Do(req)
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // lets the connection be reused
	return resp.StatusCode == http.StatusOK, err
}
