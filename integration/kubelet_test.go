package integration

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"penstock/internal/testkit"
	"penstock/internal/testkit/apiserver"
	"penstock/internal/testkit/process"
)

// kubelet runs the pods of an API server as a kubelet would, on hosts of the lab: in a root
// file system that has the image and is read-only, as the user of the pod, with the pod's
// arguments, environment, volumes, hooks and probes. Names of pods are in a DNS server.
type kubelet struct {
	t       *testing.T
	s       *apiserver.Server
	lab     *testLab
	program string
	hosts   string // file of the DNS server
	dns     *process.Process

	mu      sync.Mutex
	pods    map[string]*runningPod // by UID
	gone    map[string]bool        // UIDs of pods that ended, which an older list may still have
	volumes map[string]string      // by claim
	last    int                    // host that was taken last
	// fewest is the least number of other pods that were ready when one was told to end.
	fewest int
	hooks  []string // output of the hooks
	exits  []int
}

type runningPod struct {
	corev1.Pod
	host  int
	root  string
	env   []string
	proc  *process.Process
	ready bool
	ends  bool
}

// imageProgram builds the program with the command of the Dockerfile.
func imageProgram(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root(t), "deploy/Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "penstock")
	for line := range strings.Lines(string(text)) {
		if build, ok := strings.CutPrefix(line, "RUN go build "); ok {
			cmd := exec.Command("sh", "-c", "go build "+strings.Replace(build, "/out/usr/local/bin/penstock", out, 1))
			cmd.Dir, cmd.Env = root(t), append(os.Environ(), "CGO_ENABLED=0")
			if !strings.Contains(string(text), "ENV CGO_ENABLED=0\n") {
				t.Fatal("the image is built with cgo")
			}
			if text, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
		}
	}
	file, err := elf.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if slices.ContainsFunc(file.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		t.Fatal("the program of the image is not static")
	}
	return out
}

func startKubelet(t *testing.T, s *apiserver.Server, h *testLab) *kubelet {
	t.Helper()
	k := &kubelet{
		t: t, s: s, lab: h, program: imageProgram(t), hosts: filepath.Join(t.TempDir(), "hosts"),
		pods: map[string]*runningPod{}, gone: map[string]bool{}, volumes: map[string]string{}, fewest: 1 << 10,
	}
	k.writeHosts()
	config := filepath.Join(t.TempDir(), "dnsmasq.conf")
	text := fmt.Sprintf("no-resolv\nno-hosts\nbind-interfaces\nlisten-address=%s\npid-file=\nuser=root\nlocal=/local/\nlocal-ttl=1\naddn-hosts=%s\n", h.Outside(), k.hosts)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var err error
	if k.dns, err = process.Start("dnsmasq", t.TempDir(), []string{requirePeer(t, "dnsmasq"), "--keep-in-foreground", "--conf-file=" + config}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.dns.Kill)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for tick := time.NewTicker(200 * time.Millisecond); ctx.Err() == nil; <-tick.C {
			k.sync()
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		for _, p := range k.pods {
			p.proc.Kill()
			if t.Failed() {
				t.Logf("%s:\n%s", p.Name, p.proc.Output())
			}
			os.RemoveAll(p.root)
		}
	})
	return k
}

// writeHosts gives the DNS server the pods.
func (k *kubelet) writeHosts() {
	text := ""
	for _, p := range k.pods {
		text += fmt.Sprintf("%s %s.p-peers.shop.svc.cluster.local\n", k.lab.Address(p.host), p.Name)
	}
	if err := os.WriteFile(k.hosts, []byte(text), 0o644); err != nil {
		k.t.Error(err)
	}
	if k.dns != nil {
		_ = k.dns.Signal(syscall.SIGHUP)
	}
}

const podPath = "/api/v1/namespaces/shop/pods"

// sync does what is to be done for each pod.
func (k *kubelet) sync() {
	_, text := k.s.Request(http.MethodGet, podPath, "")
	var list corev1.PodList
	if json.Unmarshal([]byte(text), &list) != nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, pod := range list.Items {
		p := k.pods[string(pod.UID)]
		switch {
		case k.gone[string(pod.UID)]:
		case p == nil && pod.DeletionTimestamp == nil:
			k.start(pod)
		case p == nil, p.ends:
		case pod.DeletionTimestamp != nil:
			p.ends = true
			go k.stop(p)
		default:
			k.probe(p)
		}
	}
}

// start places a pod on the next host, so that it comes back at another address, and
// starts its container.
func (k *kubelet) start(pod corev1.Pod) {
	taken := map[int]bool{}
	for _, p := range k.pods {
		taken[p.host] = true
	}
	for k.last = k.last%k.lab.Hosts() + 1; taken[k.last]; k.last = k.last%k.lab.Hosts() + 1 {
	}
	dir, err := os.MkdirTemp("", "pk")
	if err != nil {
		k.t.Error(err)
		return
	}
	p := &runningPod{Pod: pod, host: k.last, root: dir}
	k.s.Request(http.MethodPost, podPath+"/"+p.Name+"/binding",
		fmt.Sprintf(`{"apiVersion": "v1", "kind": "Binding", "metadata": {"name": %q}, "target": {"apiVersion": "v1", "kind": "Node", "name": "node-%d"}}`, p.Name, p.host))
	if err := k.image(p); err != nil {
		if k.t.Context().Err() == nil { // else the test is over
			k.t.Error(err)
		}
		return
	}
	c := &p.Spec.Containers[0]
	p.env = k.environment(p)
	script := `mount --bind "$1" "$1" && mount --bind "$2" "$1/var/lib/penstock" && mount -o remount,ro,bind "$1" && shift 2 && exec env -i "$@"`
	argv := append(k.lab.Inside(p.host), "unshare", "--mount", "sh", "-c", script, "sh", p.root, k.volume(p))
	argv = append(append(argv, p.env...), "setpriv", "--no-new-privs", "chroot", "--userspec=65532:65532", "--groups=65532", p.root, "/usr/local/bin/penstock")
	for _, arg := range c.Args {
		argv = append(argv, expand(arg, p.env))
	}
	if p.proc, err = process.Start(p.Name, k.t.TempDir(), argv); err != nil {
		k.t.Error(err)
		return
	}
	k.pods[string(p.UID)] = p
	k.writeHosts()
	k.report(p)
}

// image makes the root file system of a pod: that of the image, and what a kubelet adds.
func (k *kubelet) image(p *runningPod) error {
	secrets := "var/run/secrets/kubernetes.io/serviceaccount"
	for _, dir := range []string{"usr/local/bin", "var/lib/penstock", secrets, "etc"} {
		if err := os.MkdirAll(filepath.Join(p.root, dir), 0o755); err != nil {
			return err
		}
	}
	program, err := os.ReadFile(k.program)
	if err != nil {
		return err
	}
	authority, err := os.ReadFile(k.s.Authority())
	if err != nil {
		return err
	}
	token, err := k.s.RequestToken("shop", p.Spec.ServiceAccountName)
	if err != nil {
		return err
	}
	files := map[string]string{
		"usr/local/bin/penstock": string(program), secrets + "/token": token,
		secrets + "/ca.crt": string(authority), secrets + "/namespace": "shop",
		"etc/resolv.conf": "nameserver " + k.lab.Outside() + "\nsearch shop.svc.cluster.local svc.cluster.local cluster.local\noptions ndots:5\n",
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(p.root, name), []byte(text), 0o755); err != nil {
			return err
		}
	}
	return os.Chmod(p.root, 0o755)
}

// volume returns the folder of the pod's claim, which the pod's group may write.
func (k *kubelet) volume(p *runningPod) string {
	claim := "data-" + p.Name
	if k.volumes[claim] == "" {
		dir, err := os.MkdirTemp("", "pv")
		if err != nil || os.Chown(dir, 0, 65532) != nil || os.Chmod(dir, 0o770|os.ModeSetgid) != nil {
			k.t.Error("no volume: ", err)
		}
		k.t.Cleanup(func() { os.RemoveAll(dir) })
		k.volumes[claim] = dir
	}
	return k.volumes[claim]
}

// environment returns the variables of the container.
func (k *kubelet) environment(p *runningPod) (env []string) {
	host, port, _ := strings.Cut(k.s.Address, ":")
	env = []string{"PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "KUBERNETES_SERVICE_HOST=" + host, "KUBERNETES_SERVICE_PORT=" + port}
	for _, v := range p.Spec.Containers[0].Env {
		value := v.Value
		switch from := v.ValueFrom; {
		case from != nil && from.FieldRef != nil:
			value = map[string]string{"metadata.name": p.Name, "metadata.namespace": p.Namespace, "status.podIP": k.lab.Address(p.host)}[from.FieldRef.FieldPath]
		case from != nil && from.SecretKeyRef != nil:
			var secret corev1.Secret
			_, text := k.s.Request(http.MethodGet, "/api/v1/namespaces/shop/secrets/"+from.SecretKeyRef.Name, "")
			_ = json.Unmarshal([]byte(text), &secret)
			value = string(secret.Data[from.SecretKeyRef.Key])
		}
		if value == "" {
			k.t.Errorf("the variable %s is empty", v.Name)
		}
		env = append(env, v.Name+"="+value)
	}
	return env
}

// expand replaces $(NAME) as Kubernetes does.
func expand(arg string, env []string) string {
	for _, v := range env {
		name, value, _ := strings.Cut(v, "=")
		arg = strings.ReplaceAll(arg, "$("+name+")", value)
	}
	return arg
}

// exec runs a command in the container, as kubectl exec does.
func (k *kubelet) exec(ctx context.Context, p *runningPod, command ...string) (out, errs string, err error) {
	pid := fmt.Sprint(p.proc.Pid())
	argv := append([]string{"--target", pid, "--mount", "--net", "env", "-i"}, p.env...)
	argv = append(append(argv, "chroot", "--userspec=65532:65532", "--groups=65532", p.root), command...)
	cmd := exec.CommandContext(ctx, "nsenter", argv...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	return stdout.String(), stderr.String(), err
}

// probe asks the startup probe until it has succeeded, and then the readiness probe.
func (k *kubelet) probe(p *runningPod) {
	c := &p.Spec.Containers[0]
	path := c.StartupProbe.HTTPGet.Path
	if p.ready {
		path = c.ReadinessProbe.HTTPGet.Path
	}
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	ready := false
	if r, err := client.Get("http://" + k.lab.Address(p.host) + ":7948" + path); err == nil {
		r.Body.Close()
		ready = r.StatusCode == http.StatusOK
	}
	if ready != p.ready {
		p.ready = ready
		k.report(p)
	}
}

// report writes the status of a pod.
func (k *kubelet) report(p *runningPod) {
	status, now := "False", time.Now().UTC().Format(time.RFC3339)
	if p.ready {
		status = "True"
	}
	k.s.Request(http.MethodPatch, podPath+"/"+p.Name+"/status", fmt.Sprintf(`{"metadata": {"uid": %q}, "status": {"phase": "Running", "podIP": %q, "conditions": [
		{"type": "Ready", "status": %q, "lastTransitionTime": %q}]}}`, p.UID, k.lab.Address(p.host), status, now))
}

// stop ends a pod: its hook, SIGTERM, and the deletion once the process has ended, all
// within the grace period.
func (k *kubelet) stop(p *runningPod) {
	grace := time.Duration(*p.Spec.TerminationGracePeriodSeconds) * time.Second
	ctx, cancel := context.WithTimeout(k.t.Context(), grace)
	defer cancel()
	_, errs, err := k.exec(ctx, p, p.Spec.Containers[0].Lifecycle.PreStop.Exec.Command...)
	k.mu.Lock()
	k.hooks = append(k.hooks, fmt.Sprintf("%s: %v %s", p.Name, err, errs))
	others := 0
	for _, other := range k.pods {
		if other != p && other.ready && !other.ends {
			others++
		}
	}
	k.fewest = min(k.fewest, others)
	k.mu.Unlock()
	_ = p.proc.Signal(syscall.SIGTERM)
	code, err := p.proc.ExitCode(grace)
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		code = -1
	}
	k.exits = append(k.exits, code)
	k.forget(p)
}

// forget removes what is left of a pod.
func (k *kubelet) forget(p *runningPod) {
	delete(k.pods, string(p.UID))
	k.gone[string(p.UID)] = true
	os.RemoveAll(p.root)
	k.writeHosts()
	k.s.Request(http.MethodDelete, podPath+"/"+p.Name, fmt.Sprintf(`{"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0, "preconditions": {"uid": %q}}`, p.UID))
}

// pod returns the running pod of a name.
func (k *kubelet) pod(name string) *runningPod {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range k.pods {
		if p.Name == name && !p.ends {
			return p
		}
	}
	return nil
}

// lose takes a pod away with its machine and its volume.
func (k *kubelet) lose(name string) {
	p := k.pod(name)
	k.mu.Lock()
	defer k.mu.Unlock()
	p.ends = true
	p.proc.Kill()
	delete(k.volumes, "data-"+name)
	k.forget(p)
}

// await waits for a condition, and shows the pods if it does not come.
func (k *kubelet) await(what string, met func() bool) {
	k.t.Helper()
	if !testkit.Poll(testkit.Patience, met) {
		k.mu.Lock()
		defer k.mu.Unlock()
		for _, p := range k.pods {
			k.t.Logf("%s ready=%v ends=%v at %s", p.Name, p.ready, p.ends, k.lab.Address(p.host))
		}
		k.t.Fatalf("not in time: %s; hooks %q", what, k.hooks)
	}
}
