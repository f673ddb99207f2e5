package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	"penstock/internal/testkit"
	"penstock/internal/testkit/process"
)

// statefulSetOf renders the chart and returns its StatefulSet.
func statefulSetOf(t *testing.T, values string) (set appsv1.StatefulSet) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(file, []byte(values), 0o600); err != nil {
		t.Fatal(err)
	}
	r := command(t, "", "kubernetes", "manifests", "--name", "p", "--namespace", "shop", "--values", file)
	if r.code != 0 {
		t.Fatal(r.err)
	}
	var object map[string]any
	for key, o := range objectsOf(t, r.out) {
		if strings.HasPrefix(key, "StatefulSet/") {
			object = o
		}
	}
	d := json.NewDecoder(strings.NewReader(asJSON(object)))
	d.DisallowUnknownFields()
	if err := d.Decode(&set); err != nil {
		t.Fatalf("the StatefulSet is none: %v", err)
	}
	return set
}

// The objects are those of Kubernetes' types, whatever the values.
func TestStatefulSetHasItsType(t *testing.T) {
	for name, values := range chartValues {
		if len(statefulSetOf(t, values).Spec.Template.Spec.Containers) != 1 {
			t.Errorf("%s: want one container", name)
		}
	}
}

// pod starts the container of a pod on a host of the lab, with the command line of the
// StatefulSet. Its volume is a folder; names of pods stand for their addresses at the
// time, as with the headless Service.
func (h *testLab) pod(set appsv1.StatefulSet, ordinal, host int, token, volume string, addresses map[string]string) *member {
	h.t.Helper()
	name := fmt.Sprint("p-", ordinal)
	m := &member{node: &node{t: h.t, dir: filepath.Join(volume, "node")}, name: name, ip: h.Address(host)}
	replace := []string{"$(POD_NAME)", name, "$(POD_IP)", m.ip, "/var/lib/penstock/node", m.dir,
		"--drain-wait=10s", "--drain-wait=0s", "--drain-timeout=30s", "--drain-timeout=0s"}
	for pod, at := range addresses {
		replace = append(replace, pod+".p-peers.shop.svc", at)
	}
	argv := append(h.Inside(host), "env", "-u", "PENSTOCK_ADDR", "PENSTOCK_TOKEN="+token, quickRace, program(h.t))
	for _, arg := range set.Spec.Template.Spec.Containers[0].Args {
		argv = append(argv, strings.NewReplacer(replace...).Replace(arg))
	}
	proc, err := process.Start(name, volume, argv)
	if err != nil {
		h.t.Fatal(err)
	}
	m.proc, m.http = proc, m.ip+":"+httpPort
	h.t.Cleanup(m.finish)
	return m
}

// Pods form a cluster, come back at another address, are replaced without their volume,
// and leave and return as the set is scaled.
func TestPodsOfTheChartFormACluster(t *testing.T) {
	h := newLab(t, 5)
	set := statefulSetOf(t, "")
	token := strings.TrimSpace(command(t, "", "token", "new").out)
	f := &cluster{t: t}
	addresses, volumes := map[string]string{}, map[int]string{}
	for i := range 3 {
		addresses[fmt.Sprint("p-", i)] = h.Address(i + 1)
	}
	start := func(ordinal, host int) *member {
		if volumes[ordinal] == "" {
			dir, err := os.MkdirTemp("", "ps")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.RemoveAll(dir) })
			volumes[ordinal] = dir
		}
		m := h.pod(set, ordinal, host, token, volumes[ordinal], addresses)
		f.members = append(slices.DeleteFunc(f.members, func(old *member) bool { return old.name == m.name }), m)
		return m
	}
	ready := func(m *member) {
		t.Helper()
		testkit.WaitFor(t, m.name+" to have caught up", func() bool {
			m.mustBeRunning()
			code, _ := m.fetch(set.Spec.Template.Spec.Containers[0].StartupProbe.HTTPGet.Path)
			return code == http.StatusOK
		})
	}
	pods := []*member{start(0, 1), start(1, 2), start(2, 3)}
	for _, m := range pods {
		ready(m)
	}
	f.waitSettled(3)
	pods[0].apply("kind: Service\nname: s\nspec: {}\n")

	pods[2].stop() // deleted, and started with its volume at another address
	pods[2] = start(2, 4)
	ready(pods[2])
	f.waitSettled(3)

	pods[1].kill() // its volume is lost as well
	volumes[1] = ""
	pods[1] = start(1, 2)
	ready(pods[1])
	f.waitSettled(3)

	added := start(3, 5) // scaled up to 4, down to 3 and up again
	ready(added)
	f.waitSettled(3)
	added.must("leave")
	added.down = true
	added.wantExit(0)
	f.waitSettled(3)
	added = start(3, 5)
	ready(added)
	f.waitSettled(3)
	if out := added.must("get", "service", "s"); !strings.Contains(out, "s") {
		t.Error(out)
	}
}
