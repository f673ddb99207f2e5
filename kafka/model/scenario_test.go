package model

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"penstock/internal/testkit/scenario"
	"penstock/routing/resource"
	"penstock/routing/resource/codec"
	"penstock/routing/resource/validate"
)

// TestScenarios runs the scenarios in testdata/scenarios. Commands:
//
//	apply            puts the documents in force; says what became other
//	delete KIND/NAME takes one away
//	brokers NAME ID=HOST:PORT ...   what a physical cluster says it has
//	connect LISTENER [NAME]         where a connection goes
//	address CLUSTER ID HOST:PORT    what clients are told of a broker
//	explain LISTENER [NAME]         how a connection is led
//	listeners                       ports of the clusters' own
func TestScenarios(t *testing.T) {
	scenario.Run(t, "testdata/scenarios", func(t *testing.T) scenario.Command { return newWorld(t).do })
}

// world is a model with the set that its resources come from.
type world struct {
	t     testing.TB
	set   *validate.Set
	model *Model
}

func newWorld(t testing.TB) *world {
	w := &world{t: t, set: new(validate.Set), model: New(Config{Bind: "127.0.0.1", Types: testTypes()})}
	w.set = w.set.Next(puts(certificates()))
	return w
}

func (w *world) do(_ *testing.T, d *datadriven.TestData) string {
	if d.Input != "" && d.Cmd != "apply" {
		d.Fatalf(w.t, "%s has no input: a line of dashes is missing", d.Cmd)
	}
	arg := func(i int) string {
		if i >= len(d.CmdArgs) {
			return ""
		}
		return d.CmdArgs[i].Key
	}
	switch d.Cmd {
	case "apply":
		return w.apply(d.Input)
	case "delete":
		kind, name, _ := strings.Cut(arg(0), "/")
		return w.change([]resource.Change{resource.Delete(resource.Key{Kind: kind, Name: name})})
	case "brokers":
		return w.brokers(arg(0), d.CmdArgs[1:])
	case "connect":
		return w.connect(arg(0), arg(1))
	case "address":
		return w.address(arg(0), arg(1), arg(2))
	case "explain":
		e := w.model.Table().Explain(arg(0), arg(1), arg(1) != "")
		return e.Text()
	case "listeners":
		var all []string
		for p := range w.model.Table().Listeners() {
			all = append(all, fmt.Sprintf("%s at %s%s", p.Name, p.Address, withTLS(p.TLS)))
		}
		slices.Sort(all)
		return strings.Join(all, "\n")
	}
	d.Fatalf(w.t, "unknown command")
	return ""
}

func (w *world) apply(text string) string {
	objects, faults := codec.Decode("", []byte(text), testKinds())
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

func (w *world) brokers(name string, list []datadriven.CmdArg) string {
	p, ok := w.model.Table().Physical(name)
	if !ok {
		return "there is no such physical cluster"
	}
	brokers := map[int32]string{}
	for _, b := range list {
		id, err := strconv.ParseInt(b.Key, 10, 32)
		if err != nil {
			w.t.Fatal(err)
		}
		brokers[int32(id)] = b.SingleVal(w.t)
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
