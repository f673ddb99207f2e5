package mysqltest

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
)

// statusServer is the status port: GET /status.
type statusServer struct {
	http     *httptest.Server
	shutting atomic.Bool
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
	port.http = httptest.NewServer(mux)
	return port
}

func (p *statusServer) close() { p.http.Close() }

// StatusAddr is the address of the status port.
func (s *Server) StatusAddr() string { return s.status.http.Listener.Addr().String() }

// ShutDown makes the status port answer 500, as a server does while it shuts down,
// or 200 again. Connections are served as before.
func (s *Server) ShutDown(begun bool) { s.status.shutting.Store(begun) }
