package cli

import (
	"bytes"
	"context"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"penstock/node/api"
	"penstock/node/rpc"
)

// serveAdmin runs a real admin server with the given methods, and points the
// commands at it.
func serveAdmin(t *testing.T, methods func(*rpc.Server)) {
	t.Helper()
	s := rpc.NewServer(rpc.Config{})
	methods(s)
	path := filepath.Join(t.TempDir(), "s")
	var lc net.ListenConfig
	ln, err := lc.Listen(context.Background(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Serve(ln, api.Principal{Name: "local", Role: api.RoleAdmin}) })
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		wg.Wait()
	})
	t.Setenv("PENSTOCK_ADDR", "unix:"+path)
	t.Setenv("PENSTOCK_TOKEN", "")
}

// result is the result of a command.
type result struct {
	code     int
	out, err string
}

func penstock(args ...string) result {
	var out, err bytes.Buffer
	code := Run(args, Streams{In: strings.NewReader(""), Out: &out, Err: &err})
	return result{code, out.String(), err.String()}
}

// want fails unless the exit code is code, out equals stdout and stderr
// contains err; "" matches anything.
func (s result) want(t *testing.T, code int, out, err string) {
	t.Helper()
	if s.code != code || out != "" && s.out != out || err != "" && !strings.Contains(s.err, err) {
		t.Errorf("code %d, out %q, err %q; want %d, %q, %q", s.code, s.out, s.err, code, out, err)
	}
}

// anyPrincipal matches all connections.
func anyPrincipal(api.Principal) bool { return true }
