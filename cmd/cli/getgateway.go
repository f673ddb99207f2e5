package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	yaml "go.yaml.in/yaml/v3"

	"penstock/node/api"
	"penstock/routing/gateway"
	"penstock/routing/resource"
)

// gatewayColumns returns the columns of the Gateway API kinds.
func gatewayColumns(kind string) columns {
	switch kind {
	case gateway.KindGateway:
		return columns{[]string{"CLASS", "LISTENERS"}, gatewayRow}
	case gateway.KindTLSRoute:
		return columns{[]string{"PARENTS", "HOSTNAMES", "BACKENDS"}, tlsRouteRow}
	case gateway.KindTCPRoute:
		return columns{[]string{"PARENTS", "BACKENDS"}, tcpRouteRow}
	case gateway.KindGrant:
		return columns{[]string{"FROM", "TO"}, grantRow}
	}
	return columns{nil, func(resource.Object) []string { return nil }}
}

func gatewayRow(o resource.Object) []string {
	g := o.Spec.(*gateway.Gateway)
	var listeners []string
	for i := range g.Listeners {
		l := &g.Listeners[i]
		listeners = append(listeners, fmt.Sprintf("%s:%s:%d", l.Name, l.Protocol, l.Port))
	}
	return []string{g.GatewayClassName, strings.Join(listeners, " ")}
}

func tlsRouteRow(o resource.Object) []string {
	r := o.Spec.(*gateway.TLSRoute)
	return []string{parentTexts(&r.Origin, r.ParentRefs), strings.Join(r.Hostnames, ","), gatewayBackends(&r.Origin, r.Rules)}
}

func tcpRouteRow(o resource.Object) []string {
	r := o.Spec.(*gateway.TCPRoute)
	return []string{parentTexts(&r.Origin, r.ParentRefs), gatewayBackends(&r.Origin, r.Rules)}
}

func grantRow(o resource.Object) []string {
	g := o.Spec.(*gateway.ReferenceGrant)
	var from, to []string
	for _, f := range g.From {
		from = append(from, f.Namespace+"/"+f.Kind)
	}
	for _, t := range g.To {
		to = append(to, strings.TrimSuffix(t.Kind+"/"+t.Name, "/"))
	}
	return []string{strings.Join(from, ","), strings.Join(to, ",")}
}

func parentTexts(own *gateway.Origin, parents []gateway.ParentRef) string {
	texts := make([]string, len(parents))
	for i, p := range parents {
		texts[i] = strings.Trim(own.NameOf(p.Namespace, p.Name)+"/"+p.SectionName, "/")
	}
	return strings.Join(texts, ",")
}

func gatewayBackends(own *gateway.Origin, rules []gateway.Rule) string {
	var texts []string
	for i := range rules {
		for _, b := range rules[i].BackendRefs {
			weight := 1
			if b.Weight != nil {
				weight = *b.Weight
			}
			texts = append(texts, fmt.Sprintf("%s:%d", own.NameOf(b.Namespace, b.Name), weight))
		}
	}
	return strings.Join(texts, " ")
}

// withStatus adds status columns for kinds that have a status.
func (c columns) withStatus(r *api.GetResult) columns {
	var into func() any
	heading := []string{"ACCEPTED", "RESOLVEDREFS"}
	switch r.Kind {
	case gateway.KindGateway:
		into, heading = func() any { return new(gateway.Status) }, append(heading, "PROGRAMMED")
	case gateway.KindTLSRoute, gateway.KindTCPRoute:
		into = func() any { return new(gateway.RouteStatus) }
	case "Certificate":
		return c.withIssued(r)
	default:
		return c
	}
	conditions := make(map[string][]string, len(r.Documents))
	for _, d := range r.Documents {
		status := into()
		if text := statusOf(d); text == nil || json.Unmarshal(text, status) != nil {
			continue // the node runs another version
		}
		accepted, resolved, programmed := gateway.Summary(status)
		conditions[d.Name] = []string{accepted, resolved, programmed}[:len(heading)]
	}
	return columns{append(c.heading, heading...), func(o resource.Object) []string {
		cells := conditions[o.Name]
		if cells == nil {
			cells = make([]string, len(heading))
		}
		return append(c.row(o), cells...)
	}}
}

// statusOf returns the status that a node sent with a resource; nil: none.
func statusOf(d api.Document) json.RawMessage {
	var with struct {
		Status json.RawMessage `json:"status"`
	}
	if err := json.Unmarshal(d.Data, &with); err != nil {
		return nil
	}
	return with.Status
}

// statusYAML returns the status as YAML, to append to the resource's; "": none.
func statusYAML(d api.Document) string {
	text := statusOf(d)
	var root yaml.Node
	if text == nil || yaml.Unmarshal(text, &root) != nil || len(root.Content) != 1 {
		return ""
	}
	useBlockStyle(&root)
	var out bytes.Buffer
	e := yaml.NewEncoder(&out)
	e.SetIndent(2)
	// The tree is well-formed and a buffer never fails.
	_ = e.Encode(map[string]*yaml.Node{"status": root.Content[0]})
	_ = e.Close()
	return out.String()
}

// useBlockStyle resets the node styles of a tree that was read from JSON, so
// that it is written as block YAML.
func useBlockStyle(n *yaml.Node) {
	n.Style = 0
	for _, c := range n.Content {
		useBlockStyle(c)
	}
}
