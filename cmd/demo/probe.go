package demo

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"
)

const (
	probeEvery   = 100 * time.Millisecond
	probePatient = time.Second
	// slowProbes is how many probes in a row may find nobody answering in
	// time: on a busy machine one of them says little.
	slowProbes = 3
)

// probe asks a node's /readyz a few times a second, and lets it have
// connections while that says 200.
func (b *balancer) probe(ctx context.Context, backend int, url string) {
	h := &http.Client{Transport: &http.Transport{}}
	defer h.CloseIdleConnections()
	tick := time.NewTicker(probeEvery)
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
			b.set(backend, up)
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

func ready(ctx context.Context, h *http.Client, url string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, probePatient)
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
	_, err = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // so that the connection serves again
	return resp.StatusCode == http.StatusOK, err
}
