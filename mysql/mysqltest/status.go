package mysqltest

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
)

// statusServer is the status port: GET /status, and /metrics.
type statusServer struct {
	http     *httptest.Server
	shutting atomic.Bool
	metrics  atomic.Pointer[func() string] // nil: there are none
}

func newStatus(t testing.TB, s *Server) *statusServer {
	t.Helper()
	port := new(statusServer)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		if port.shutting.Load() {
			http.Error(w, "the server is shutting down", http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"connections": s.Conns(), "version": s.config.Version, "git_hash": "none"})
	})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		text := port.metrics.Load()
		if text == nil {
			http.NotFound(w, r)
			return
		}
		_, _ = io.WriteString(w, (*text)())
	})
	port.http = httptest.NewServer(mux)
	return port
}

func (p *statusServer) close() { p.http.Close() }

// StatusAddr is the address of the status port.
func (s *Server) StatusAddr() string { return s.status.http.Listener.Addr().String() }

// ShutDown makes the status port answer 500, as a server does while it shuts down,
// or 200 again. Connections are served as before.
func (s *Server) ShutDown(begun bool) { s.status.shutting.Store(begun) }

// SetMetrics makes the status port answer with metrics; nil: it has none.
func (s *Server) SetMetrics(text func() string) {
	if text == nil {
		s.status.metrics.Store(nil)
		return
	}
	s.status.metrics.Store(&text)
}
