package model

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"penstock/routing/resource"
)

// The scenarios read as stories: a command with its input, a line of dashes,
// and what comes of it (go test -update writes that).
//
//	apply            puts the documents in force; says what became other
//	delete KIND/NAME takes one away
//	brokers NAME ID=HOST:PORT,...   what a physical cluster says it has
//	connect LISTENER [NAME]         where a connection goes
//	address CLUSTER ID HOST:PORT    what clients are told of a broker
//	explain LISTENER [NAME]         how a connection is led
//	listeners                       ports of the clusters' own
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/scenarios/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) { runScenario(t, file) })
	}
}

func runScenario(t *testing.T, file string) {
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	var out strings.Builder
	lines := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	for i := 0; i < len(lines); {
		if lines[i] == "" || strings.HasPrefix(lines[i], "#") {
			out.WriteString(lines[i] + "\n")
			i++
			continue
		}
		at := i
		for i < len(lines) && lines[i] != "----" {
			i++
		}
		if i == len(lines) {
			t.Fatalf("%s:%d: a command without ----", file, at+1)
		}
		got := w.do(strings.Fields(lines[at]), strings.Join(lines[at+1:i], "\n"))
		out.WriteString(strings.Join(lines[at:i+1], "\n") + "\n")
		if got = strings.TrimRight(got, "\n"); got != "" {
			out.WriteString(got + "\n")
		}
		for i < len(lines) && lines[i] != "" {
			i++
		}
	}
	golden(t, file, out.String())
}

// world is a model with the set that its resources come from.
type world struct {
	t     testing.TB
	set   *resource.Set
	model *Model
}

func newWorld(t testing.TB) *world {
	w := &world{t: t, set: new(resource.Set), model: New(Config{Bind: "127.0.0.1", Types: testTypes()})}
	w.set = w.set.Next(puts(certificates()))
	return w
}

func (w *world) do(words []string, input string) string {
	args := append(words[1:], "")
	switch words[0] {
	case "apply":
		return w.apply(input)
	case "delete":
		kind, name, _ := strings.Cut(args[0], "/")
		return w.change([]resource.Change{resource.Delete(resource.Key{Kind: kind, Name: name})})
	case "brokers":
		return w.brokers(args[0], args[1])
	case "connect":
		return w.connect(args[0], args[1])
	case "address":
		return w.address(args[0], args[1], args[2])
	case "explain":
		e := w.model.Table().Explain(args[0], args[1], args[1] != "")
		return e.Text()
	case "listeners":
		var all []string
		for p := range w.model.Table().Listeners() {
			all = append(all, fmt.Sprintf("%s at %s%s", p.Name, p.Address, withTLS(p.TLS)))
		}
		slices.Sort(all)
		return strings.Join(all, "\n")
	}
	w.t.Fatalf("unknown command %v", words)
	return ""
}

func (w *world) apply(text string) string {
	objects, faults := resource.Decode("", []byte(text), testKinds())
	if len(faults) > 0 {
		return faults.Error()
	}
	return w.change(puts(objects))
}

// change checks changes and puts them in force.
func (w *world) change(changes []resource.Change) string {
	next, faults, warnings := w.set.With(changes)
	if len(faults) > 0 {
		return faults.Error()
	}
	w.set = next
	done, err := w.model.Apply(changes)
	if err != nil {
		return err.Error()
	}
	var out []string
	add := func(what string, names []string) {
		if len(names) > 0 {
			slices.Sort(names)
			out = append(out, what+" "+strings.Join(names, " "))
		}
	}
	add("virtual", done.Virtual)
	add("physical", done.Physical)
	var opened, removed []string
	for _, p := range done.Opened {
		opened = append(opened, p.Address)
	}
	for _, l := range done.Removed {
		removed = append(removed, l.Name())
	}
	add("opened", opened)
	add("closed", done.Closed)
	add("removed", removed)
	for _, f := range warnings {
		out = append(out, "warning: "+f.Error())
	}
	return strings.Join(out, "\n")
}

func (w *world) brokers(name, list string) string {
	p, ok := w.model.Table().Physical(name)
	if !ok {
		return "there is no such physical cluster"
	}
	brokers := map[int32]string{}
	for item := range strings.SplitSeq(list, ",") {
		id, address, _ := strings.Cut(item, "=")
		n, err := strconv.ParseInt(id, 10, 32)
		if err != nil {
			w.t.Fatal(err)
		}
		brokers[int32(n)] = address
	}
	p.State().SetBrokers(brokers)
	return ""
}

func (w *world) connect(listener, name string) string {
	r, reason := w.model.Table().Resolve(listener, name, name != "")
	if reason != "" {
		return "closed: " + string(reason)
	}
	targets, reason := r.Cluster.Targets(r.Broker)
	if reason != "" {
		return fmt.Sprintf("%s %s, closed: %s", r.Cluster.Name(), r.Broker.Name(), reason)
	}
	var at []string
	for _, x := range targets {
		at = append(at, x.Address+withTLS(x.TLS != nil))
	}
	shown, _, _ := w.model.Table().Certificates(listener, name, name != "")
	if len(shown) > 0 {
		return fmt.Sprintf("%s %s with %s -> %s", r.Cluster.Name(), r.Broker.Name(), shown[0], strings.Join(at, " or "))
	}
	return fmt.Sprintf("%s %s -> %s", r.Cluster.Name(), r.Broker.Name(), strings.Join(at, " or "))
}

func (w *world) address(cluster, id, address string) string {
	v, ok := w.model.Table().Virtual(cluster)
	if !ok {
		return "there is no such virtual cluster"
	}
	node, err := strconv.ParseInt(id, 10, 32)
	if err != nil {
		w.t.Fatal(err)
	}
	host, port, _ := resource.SplitAddress(address)
	n, _ := strconv.Atoi(port)
	b, ok := v.Address(int32(node), host, int32(n))
	if !ok {
		return "none"
	}
	return fmt.Sprintf("%s:%d", b.Host, b.Port)
}
