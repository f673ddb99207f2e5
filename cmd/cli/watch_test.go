package cli

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"penstock/node/api"
	"penstock/node/rpc"
)

func document(name, labels string, endpoints int) api.Document {
	list := strings.TrimSuffix(strings.Repeat(`{"address":"127.0.0.1:1"},`, endpoints), ",")
	data := fmt.Sprintf(`{"kind":"Service","name":%q,"labels":{%s},"version":4,"spec":{"endpoints":[%s]}}`, name, labels, list)
	return api.Document{Kind: "Service", Name: name, Data: []byte(data)}
}

// serveChanges serves a watch of services: the initial state, a change, a
// resource that loses its label, and a deletion.
func serveChanges(s *rpc.Server) {
	rpc.HandleStream(s, api.MethodWatch, api.RoleReader, func(
		ctx context.Context,
		r *api.WatchRequest,
		send func(*api.WatchItem) error,
	) error {
		if r.Kind != "Service" || r.Name != "" {
			return api.Errorf(api.Invalid, "asked for %q %q", r.Kind, r.Name)
		}
		for _, i := range []*api.WatchItem{
			{Index: 4, Put: []api.Document{document("a", `"app":"shop"`, 1), document("b", "", 1)}},
			{Index: 5, Put: []api.Document{document("a-long-one", `"app":"shop"`, 2)}},
			{Index: 6, Put: []api.Document{document("a", `"app":"mail"`, 1)}, Deleted: []api.Document{{Kind: "Service", Name: "b"}}},
			{Index: 7, Deleted: []api.Document{{Kind: "Service", Name: "a"}}},
		} {
			if err := send(i); err != nil {
				return err
			}
		}
		return nil
	})
}

func TestWatchShowsChanges(t *testing.T) {
	serveAdmin(t, serveChanges)
	penstock("get", "services", "--watch").want(t, 0, `NAME   PROTOCOL   BALANCING    ENDPOINTS   CHECK
a      tcp        roundRobin   1           -
b      tcp        roundRobin   1           -
a-long-one   tcp        roundRobin   2           -
a            tcp        roundRobin   1           -
b            deleted
a            deleted
`, "")
	// A resource that loses the label is reported as deleted, once.
	penstock("get", "service", "-w", "-l", "app=shop", "-o", "json").want(t, 0,
		`{"index":4,"put":{"kind":"Service","name":"a","labels":{"app":"shop"},`+
			`"version":4,"spec":{"endpoints":[{"address":"127.0.0.1:1"}]}}}
{"index":5,"put":{"kind":"Service","name":"a-long-one","labels":{"app":"shop"},`+
			`"version":4,"spec":{"endpoints":[{"address":"127.0.0.1:1"},{"address":"127.0.0.1:1"}]}}}
{"index":6,"deleted":{"kind":"Service","name":"a"}}
`, "")
	r := penstock("get", "service", "-w", "-l", "app=shop", "-o", "yaml")
	if r.code != 0 || !strings.HasSuffix(r.out, "---\n# Service/a deleted\n") || strings.Count(r.out, "---\n") != 2 {
		t.Errorf("code %d, %s%s", r.code, r.out, r.err)
	}
	r = penstock("get", "service", "-w", "-o", "wide")
	if !strings.Contains(r.out, "VERSION   LABELS\n") || !strings.Contains(r.out, "4         app=shop\n") {
		t.Errorf("wide shows\n%s", r.out)
	}
}

func TestBrokenWatchIsAnError(t *testing.T) {
	serveAdmin(t, func(s *rpc.Server) {
		rpc.HandleStream(s, api.MethodWatch, api.RoleReader, func(
			ctx context.Context,
			_ *api.WatchRequest,
			send func(*api.WatchItem) error,
		) error {
			_ = send(&api.WatchItem{Index: 1})
			go s.Drop(anyPrincipal)
			<-ctx.Done()
			return ctx.Err()
		})
	})
	penstock("get", "services", "-w").want(t, 3, "NAME   PROTOCOL   BALANCING   ENDPOINTS   CHECK\n", "connection lost")
}
