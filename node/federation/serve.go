package federation

import (
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"

	"penstock/node/trust"
)

// Endpoint serves the cluster's own bundle, with certificates alone and to everyone
// (SPIFFE Federation, sections 5.2.1.3 and 5.2.2.3). It is an http.Handler.
type Endpoint struct {
	// Bundle returns the certificates (DER) of the trust bundle and a number that grows
	// with each change of it. Required.
	Bundle func() (roots [][]byte, sequence uint64, err error)
	Log    *slog.Logger // required

	served atomic.Uint64

	mu       sync.Mutex
	text     []byte // of sequence; nil: not made yet
	sequence uint64
}

// Served returns how many times the bundle was served.
func (e *Endpoint) Served() uint64 { return e.served.Load() }

// ServeHTTP implements http.Handler.
func (e *Endpoint) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	text, err := e.encoded()
	if err != nil {
		e.Log.Warn("cannot serve the trust bundle", "error", err)
		http.Error(w, "this node does not have the trust bundle yet", http.StatusServiceUnavailable)
		return
	}
	e.served.Add(1)
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(text)))
	h.Set("Cache-Control", "max-age=60")
	_, _ = w.Write(text)
}

// encoded returns the bundle as JSON.
func (e *Endpoint) encoded() ([]byte, error) {
	roots, sequence, err := e.Bundle()
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.text == nil || e.sequence != sequence {
		text, err := trust.SPIFFEBundle(roots, sequence)
		if err != nil {
			return nil, err
		}
		e.text, e.sequence = append(text, '\n'), sequence
	}
	return e.text, nil
}
