package node

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"penstock/node/api"
	"penstock/node/nodetest"
	"penstock/node/ops"
	"penstock/node/rpc"
)

// debug asks the node for its state, and returns the parts by name with the errors of
// those that have one.
func (n *testNode) debug(t *testing.T, c *rpc.Client, r api.DebugRequest) (parts map[string][]byte, faults map[string]string, err error) {
	t.Helper()
	parts, faults = map[string][]byte{}, map[string]string{}
	err = rpc.Stream(t.Context(), c, api.MethodDebug, r, func(p *api.DebugPart) error {
		parts[p.Name] = append(parts[p.Name], p.Data...)
		if p.Error != "" {
			faults[p.Name] = p.Error
		}
		return nil
	})
	return parts, faults, err
}

// A node sends what is needed to find a fault in it.
func TestDebugSendsTheStateOfTheNode(t *testing.T) {
	n := startNode(t, nodetest.OneService(nodetest.NewBackend(t, "b")))
	parts, faults, err := n.debug(t, n.client, api.DebugRequest{CPU: 10 * time.Millisecond})
	if err != nil || len(faults) > 0 {
		t.Fatal(err, faults)
	}
	for name, want := range map[string]string{
		api.DebugAbout: `"name": "n1"`, api.DebugSettings: `"name": "history-budget"`, api.DebugMetrics: "\npenstock_listener_up{listener=\"edge\"} 1\n",
		api.DebugGoroutines: "goroutine profile: total ", api.DebugHeap: "\x1f\x8b", api.DebugCPU: "\x1f\x8b",
	} {
		if !strings.Contains(string(parts[name]), want) {
			t.Errorf("%s lacks %q: %.300s", name, want, parts[name])
		}
	}
	var about api.AboutNode
	if err := json.Unmarshal(parts[api.DebugAbout], &about); err != nil || about.CPUs < 1 || about.Files < 1 || about.GCPercent < 1 || about.Started.IsZero() {
		t.Errorf("%+v, %v", about, err)
	}
	parts, _, err = n.debug(t, n.client, api.DebugRequest{Node: "n1"})
	if _, has := parts[api.DebugCPU]; err != nil || has || len(parts) != 5 {
		t.Errorf("without a CPU profile: %d parts, %v", len(parts), err)
	}
	for want, r := range map[api.Code]api.DebugRequest{api.Invalid: {CPU: time.Hour}, api.NotFound: {Node: "nobody"}} {
		if _, _, err := n.debug(t, n.client, r); !isRefusal(err, want) {
			t.Errorf("%+v: %v, want %s", r, err, want)
		}
	}
}

func isRefusal(err error, code api.Code) bool {
	var refusal *api.Error
	return errors.As(err, &refusal) && refusal.Code == code
}

// It is for admins, and one at a time.
func TestDebugIsForOneAdmin(t *testing.T) {
	n := startNode(t, "")
	for _, role := range []api.Role{api.RoleReader, api.RoleOperator, api.RoleIssuer} {
		c, err := ops.ConnectLocal(t.Context(), n.admin, api.Principal{Name: "test", Role: role})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if parts, _, err := n.debug(t, c, api.DebugRequest{}); !isRefusal(err, api.Forbidden) || len(parts) > 0 {
			t.Errorf("%s: %v", role, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	began, ended := make(chan struct{}), make(chan error, 1)
	go func() { // it takes the profile for as long as the test needs
		first := true
		ended <- rpc.Stream(ctx, n.client, api.MethodDebug, api.DebugRequest{CPU: api.MaxDebugProfile}, func(*api.DebugPart) error {
			if first {
				close(began)
			}
			first = false
			return nil
		})
	}()
	<-began
	if _, _, err := n.debug(t, n.client, api.DebugRequest{}); !isRefusal(err, api.Busy) {
		t.Errorf("a second one: %v", err)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// Each field of Config is shown, or there is a reason why it is not.
func TestSettingsAreShownWithoutSecrets(t *testing.T) {
	var shown []string
	for _, s := range shownSettings {
		shown = append(shown, s.field)
	}
	for f := range reflect.TypeFor[Config]().Fields() {
		if _, hidden := hiddenSettings[f.Name]; hidden == slices.Contains(shown, f.Name) {
			t.Errorf("%s has to be in one of shownSettings and hiddenSettings", f.Name)
		}
	}
	all := Config{Name: "n1", Token: "pst1.secret", Join: []string{"a:1", "b:2"}, MemoryBudget: 64 << 20, DrainWait: 5 * time.Second,
		Kubernetes: KubernetesResources{Enabled: true, Selector: "a=b"}, ResourceFiles: &ResourceFiles{Paths: []string{"/r"}, Sync: true},
		AccessJSON: true}.shown()
	got := map[string]string{}
	for _, s := range all {
		if strings.Contains(s.Value, "secret") {
			t.Errorf("%s shows %s", s.Name, s.Value)
		}
		got[s.Name] = s.Value
	}
	for name, want := range map[string]string{
		"name": "n1", "token": api.HiddenSetting, "join": "[a:1 b:2]", "memory-budget": "64", "drain-wait": "5s", "kubernetes-selector": "a=b",
		"resources": "/r", "resources-mode": "sync", "log-format": "json",
	} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
}
