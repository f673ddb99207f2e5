package formats

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"penstock/routing"
	"penstock/routing/gateway"
	"penstock/routing/resource"
)

// The expected effect of the good files is beside them: for each destination and
// source the deciding route, and the shares. There are endpoints for each subset
// that they name, and for all services except "nobody" and those named not-yet.
func TestGoodDocumentsMatchExpectedEffects(t *testing.T) {
	eachFile(t, "*/good/*.yaml", func(t *testing.T, file, text string) {
		objects, faults := decode(filepath.Base(file), text)
		if len(faults) > 0 {
			t.Fatal(faults)
		}
		services, protocol, policies := map[string]bool{}, "tcp", 0
		var changes []resource.Change
		for _, o := range objects {
			switch o.Kind {
			case "MeshTCPRoute", gateway.KindGateway, gateway.KindTCPRoute, gateway.KindTLSRoute, gateway.KindGrant:
			case "MeshHTTPRoute":
				protocol = "http"
			default:
				continue
			}
			policies++
			changes = append(changes, resource.Put(o))
			for _, ref := range o.Spec.Refs() {
				if ref.Kind != "Service" {
					continue
				}
				services[ref.Name] = ref.Name != "nobody" && !strings.HasPrefix(ref.Name, "not-yet")
			}
		}
		for _, name := range slices.Sorted(maps.Keys(services)) {
			if !services[name] {
				continue
			}
			s := &resource.Service{Protocol: protocol}
			for i, version := range []string{"v0", "v1", "v2", "1.0"} {
				s.Endpoints = append(s.Endpoints, resource.Endpoint{
					Address: fmt.Sprintf("127.0.0.1:%d", 7000+i), Tags: map[string]string{"version": version},
				})
			}
			changes = append(changes, resource.Put(resource.Object{Key: resource.Key{Kind: "Service", Name: name}, Spec: s}))
		}
		router := routing.NewRouter(routing.Config{})
		if _, err := router.Apply(changes, time.Unix(0, 0)); err != nil {
			t.Fatal(err)
		}
		out := effectiveText(router.Table())
		if out == "" && policies > 0 {
			t.Error("they do nothing")
		}
		golden(t, file+".effective.txt", out)
	})
}

// effectiveText writes a table's effective policies, a line for each source.
func effectiveText(table *routing.Table) string {
	list, _ := table.Effective(&routing.EffectiveQuery{})
	var out strings.Builder
	for _, e := range list {
		for _, s := range e.Sources {
			fmt.Fprintf(&out, "%s from %s:", e.Destination, s.Source)
			switch s.Policy {
			case e.Destination: // a route of the Gateway API is a destination of its own
			case "":
				out.WriteString(" no route, so")
			default:
				fmt.Fprintf(&out, " %s,", s.Policy)
			}
			for _, b := range s.Backends {
				fmt.Fprintf(&out, " %s%s %.4g%%", b.Service, tagsText(b.Tags), b.Share*100)
				if why := b.Skipped + b.Closed; why != "" {
					fmt.Fprintf(&out, " (%s)", why)
				}
			}
			out.WriteString("\n")
		}
		for _, s := range e.Requests {
			fmt.Fprintf(&out, "requests to %s from %s: %s\n", e.Destination, s.Source, s.Policy)
			for i := range s.Rules {
				fmt.Fprintf(&out, "  %s\n", s.Rules[i].Text())
			}
		}
	}
	return out.String()
}

func tagsText(tags map[string]string) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(tags)) {
		parts = append(parts, k+"="+tags[k])
	}
	if len(parts) == 0 {
		return ""
	}
	return "{" + strings.Join(parts, ",") + "}"
}
