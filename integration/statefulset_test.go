package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	"penstock/internal/testkit/apiserver"
	"penstock/node/api"
)

const setPath = "/apis/apps/v1/namespaces/shop/statefulsets/p"

// set returns the StatefulSet as the API server has it.
func (k *kubelet) set() (set appsv1.StatefulSet) {
	_, text := k.s.Request(http.MethodGet, setPath, "")
	_ = json.Unmarshal([]byte(text), &set)
	return set
}

// awaitSet waits until n pods are ready and of one revision, and are the serving members
// of the cluster.
func (k *kubelet) awaitSet(what string, n int) {
	k.t.Helper()
	k.await(what, func() bool {
		set := k.set()
		if set.Status.ObservedGeneration != set.Generation || int(set.Status.ReadyReplicas) != n || int(set.Status.Replicas) != n ||
			set.Status.CurrentRevision != set.Status.UpdateRevision || int(set.Status.CurrentReplicas) != n {
			return false
		}
		p := k.pod("p-0")
		if p == nil {
			return false
		}
		out, _, err := k.exec(k.t.Context(), p, "/usr/local/bin/penstock", "members", "-o", "json")
		var members api.Members
		if err != nil || json.Unmarshal([]byte(out), &members) != nil || len(members) != n {
			return false
		}
		for _, m := range members {
			if m.State != "serving" || m.Role != "leader" && m.Role != "voter" {
				return false
			}
		}
		return true
	})
}

// The StatefulSet of the chart under Kubernetes' own controllers: its pods form a cluster by
// the names of the headless Service, a rolling update and evictions never take a
// majority, pods join and leave as the set is scaled, and a lost one is replaced.
func TestStatefulSetUnderItsControllers(t *testing.T) {
	h := newLab(t, 8)
	controllers := apiserver.Program(t, "kube-controller-manager")
	s := apiserver.StartAt(t, h.Outside())
	s.Do(http.MethodPost, "/api/v1/namespaces", `{"metadata": {"name": "shop", "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}`)
	values := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(values, []byte("drain: {waitSeconds: 1, timeoutSeconds: 5, majorityWaitSeconds: 300}\nminReadySeconds: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := command(t, "", "kubernetes", "manifests", "--name", "p", "--namespace", "shop", "--new-token", "--values", values)
	if r.code != 0 {
		t.Fatal(r.err)
	}
	for _, o := range documentsOf(t, r.out) {
		s.Do(http.MethodPost, pathOf(t, o), asJSON(o))
	}
	k := startKubelet(t, s, h)
	_, port, _ := strings.Cut(apiserver.FreeAddress(t), ":")
	s.Run(controllers, "--kubeconfig="+s.Kubeconfig(apiserver.Admin, ""), "--controllers=statefulset-controller,disruption-controller",
		"--leader-elect=false", "--bind-address=127.0.0.1", "--secure-port="+port)
	k.awaitSet("three pods to form a cluster", 3)

	k.evict(t)
	s.Do(http.MethodPatch, setPath, `{"spec": {"template": {"metadata": {"annotations": {"a": "b"}}}}}`)
	k.awaitSet("the rolling update", 3)
	if k.fewest < 2 {
		t.Errorf("a pod was told to end while %d others were ready", k.fewest)
	}
	scale := func(n int) {
		t.Helper()
		s.Do(http.MethodPatch, setPath, fmt.Sprintf(`{"spec": {"replicas": %d}}`, n))
		k.awaitSet(fmt.Sprint("the set of ", n), n)
	}
	scale(5)
	scale(3)
	scale(5) // with volumes of members that left
	scale(3)

	s.Do(http.MethodPatch, "/api/v1/namespaces/shop/persistentvolumeclaims/data-p-1", `{"metadata": {"finalizers": null}}`)
	s.Do(http.MethodDelete, "/api/v1/namespaces/shop/persistentvolumeclaims/data-p-1", "")
	k.lose("p-1")
	k.awaitSet("the lost pod to be replaced", 3)
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, code := range k.exits {
		if code != 0 {
			t.Errorf("pods ended with %v; hooks %q", k.exits, k.hooks)
			break
		}
	}
}

// evict evicts a pod, and a second one while the first is away, which the budget forbids.
func (k *kubelet) evict(t *testing.T) {
	t.Helper()
	eviction := func(pod string) int {
		code, _ := k.s.Request(http.MethodPost, podPath+"/"+pod+"/eviction",
			fmt.Sprintf(`{"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": %q, "namespace": "shop"}}`, pod))
		return code
	}
	k.await("the budget to allow an eviction", func() bool { return eviction("p-2") == http.StatusCreated })
	if code := eviction("p-1"); code != http.StatusTooManyRequests {
		t.Errorf("a second eviction: %d, want %d", code, http.StatusTooManyRequests)
	}
	k.awaitSet("the evicted pod", 3)
}
