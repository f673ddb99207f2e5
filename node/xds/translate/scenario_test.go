package translate_test

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
	"google.golang.org/protobuf/types/known/anypb"

	"penstock/internal/testkit/scenario"
	"penstock/node/xds/snapshot"
	"penstock/routing/provider"
	"penstock/routing/resource"
)

// TestScenarios runs the scenarios in testdata:
//
//	apply                        applies the resources in the input
//	delete KIND/NAME             deletes one
//	found PROVIDER SERVICE ...   sets what a provider found: address[,state][,weight=N][,tag=value]
//	local PROVIDER               makes a provider one of scope node
//	view SERVICE                 what the proxies of a service see, by type
//	show SERVICE TYPE NAME       a resource as those see it
//	changed                      the names that differ since this was last asked
//	identify spiffe=ID | cn=NAME the service of an identity
func TestScenarios(t *testing.T) {
	scenario.Run(t, "testdata", func(t *testing.T) scenario.Command {
		w := newWorld(t)
		return (&script{world: w, asked: w.snap}).do
	})
}

type script struct {
	*world
	asked snapshot.Snapshot // when changed was last asked
}

func (s *script) do(t *testing.T, d *datadriven.TestData) string {
	s.t = t
	arg := func(i int) string { return d.CmdArgs[i].Key }
	switch d.Cmd {
	case "apply":
		s.apply(d.Input)
		return ""
	case "delete":
		kind, name, _ := strings.Cut(arg(0), "/")
		s.change(resource.Delete(resource.Key{Kind: kind, Name: name}))
		return ""
	case "local":
		s.local[arg(0)] = true
		return ""
	case "found":
		var list []provider.Endpoint
		for line := range strings.Lines(d.Input) {
			list = append(list, parseEndpoint(t, strings.TrimSpace(line)))
		}
		s.found(provider.Ref{Provider: arg(0), Query: provider.Query{Service: arg(1)}}, list...)
		return ""
	case "view":
		v := s.snap.View(arg(0))
		if v == nil {
			return "no view\n"
		}
		var b strings.Builder
		for kind := range snapshot.Types {
			fmt.Fprintf(&b, "%v: %s\n", kind, names(v.All(kind)))
			for _, r := range v.All(kind) {
				decode(t, r)
			}
		}
		return b.String()
	case "show":
		return s.show(t, arg(0), arg(1), d.CmdArgs[2].String())
	case "changed":
		return s.changed()
	case "identify":
		id := snapshot.Identity{}
		d.MaybeScanArgs(t, "spiffe", &id.SPIFFE)
		d.MaybeScanArgs(t, "cn", &id.CommonName)
		service, ok, why := s.snap.Identify(id)
		if !ok {
			return why + "\n"
		}
		return service + "\n"
	}
	d.Fatalf(t, "unknown command %s", d.Cmd)
	return ""
}

func parseEndpoint(t *testing.T, text string) provider.Endpoint {
	parts := strings.Split(text, ",")
	e := provider.Endpoint{Address: parts[0], Weight: 1}
	for _, part := range parts[1:] {
		k, v, tag := strings.Cut(part, "=")
		switch {
		case !tag:
			e.State, _ = provider.ParseState(k)
		case k == "weight":
			n, err := strconv.Atoi(v)
			if err != nil {
				t.Fatal(err)
			}
			e.Weight = n
		default:
			if e.Tags == nil {
				e.Tags = map[string]string{}
			}
			e.Tags[k] = v
		}
	}
	return e
}

func (s *script) show(t *testing.T, service, kind, name string) string {
	v := s.snap.View(service)
	if v == nil {
		return "no view\n"
	}
	for k := range snapshot.Types {
		if k.String() != kind {
			continue
		}
		r := v.Get(k, name)
		if r == nil {
			return "none\n"
		}
		if r.Name != name {
			t.Fatalf("asked for %s, got %s", name, r.Name)
		}
		return asYAML(t, decode(t, r))
	}
	t.Fatalf("no type %s", kind)
	return ""
}

func (s *script) changed() string {
	var b strings.Builder
	for kind := range snapshot.Types {
		names, ok := s.snap.Changed(s.asked, kind)
		switch {
		case !ok:
			fmt.Fprintf(&b, "%v: any\n", kind)
		case len(names) > 0:
			fmt.Fprintf(&b, "%v: %s\n", kind, strings.Join(names, " "))
		}
	}
	s.asked = s.snap
	if b.Len() == 0 {
		return "nothing\n"
	}
	return b.String()
}

func asYAML(t *testing.T, m proto.Message) string {
	t.Helper()
	text, err := protojson.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var plain any
	if err := json.Unmarshal(text, &plain); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := enc.Encode(plain); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// checkValid checks a message and those packed in it by the rules of Envoy's
// protocol.
func checkValid(t testing.TB, name string, m proto.Message) {
	t.Helper()
	check := func(m proto.Message) {
		if v, ok := m.(interface{ ValidateAll() error }); ok {
			if err := v.ValidateAll(); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
	}
	check(m)
	err := protorange.Range(m.ProtoReflect(), func(p protopath.Values) error {
		if packed, ok := p.Index(-1).Value.Interface().(interface{ Interface() proto.Message }); ok {
			if a, ok := packed.Interface().(*anypb.Any); ok {
				inner, err := a.UnmarshalNew()
				if err != nil {
					return err
				}
				check(inner)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}
