package resource

import "reflect"

// KindPermission is the kind of TrafficPermission.
const KindPermission = "TrafficPermission"

// The actions of a TrafficPermission.
const (
	ActionAllow      = "allow"
	ActionDeny       = "deny"
	ActionShadowDeny = "shadowDeny"
)

// What a TrafficPermission does to established connections.
const (
	OnChangeKeep  = "keep"
	OnChangeDrain = "drain"
	OnChangeClose = "close"
)

// TrafficPermission says who may connect to what. A deny beats every allow; a
// shadowDeny only counts and logs. A destination that a permission with allow names
// is closed to everyone whom no permission allows.
type TrafficPermission struct {
	// From selects clients; any entry may match. Default everyone.
	From []TrafficSource `yaml:"from"`
	// To selects destinations; any entry may match. Default everything.
	To []PermissionDestination `yaml:"to"`
	// Action is allow, deny or shadowDeny. Required, or Rules.
	Action string `yaml:"action" oneof:"allow deny shadowDeny"`
	// Rules give several actions, in place of Action and From. Their order has no
	// effect: a deny beats every allow here too.
	Rules []PermissionRule `yaml:"rules"`
	// OnChange says what happens to established connections that a change of the
	// permissions denies: keep, drain (closed over Window, evenly) or close (at once). Default
	// drain.
	OnChange string `yaml:"onChange" default:"drain" oneof:"keep drain close"`
	// Window is the time over which drain closes connections. Default 30s, 1s to 24h.
	Window Duration `yaml:"window" default:"30s" range:"1s..24h"`
}

// PermissionRule is an action for some clients.
type PermissionRule struct {
	// Action is allow, deny or shadowDeny. Required.
	Action string `yaml:"action" oneof:"allow deny shadowDeny"`
	// From selects clients; any entry may match. Default everyone.
	From []TrafficSource `yaml:"from"`
}

// Split returns a permission with Rules as one for each of them, and any other as it
// is.
func (p *TrafficPermission) Split() []*TrafficPermission {
	if len(p.Rules) == 0 {
		return []*TrafficPermission{p}
	}
	list := make([]*TrafficPermission, len(p.Rules))
	for i := range p.Rules {
		one := *p
		one.Rules, one.Action, one.From = nil, p.Rules[i].Action, p.Rules[i].From
		list[i] = &one
	}
	return list
}

// PermissionDestination selects destinations, and optionally some of their requests.
type PermissionDestination struct {
	// Services are the destinations of connections and requests, before routes
	// send them elsewhere.
	Services []string `yaml:"services"`
	// VirtualClusters are Kafka clusters as clients see them.
	VirtualClusters []string `yaml:"virtualClusters"`
	// Listeners are where connections arrive.
	Listeners []string `yaml:"listeners"`
	// HTTP limits the entry to some requests; any entry may match. A connection
	// whose requests are not routed one by one has none that can be known. Left
	// out: all connections and requests.
	HTTP []TrafficRequest `yaml:"http"`
	// Kafka limits the entry to some requests to virtual clusters; any entry may
	// match. Such an entry says nothing about connections. Left out: it is about
	// connections.
	Kafka []KafkaRequests `yaml:"kafka"`
}

// TrafficRequest selects HTTP requests. Both fields must match if given.
type TrafficRequest struct {
	// Methods are request methods, such as GET.
	Methods []string `yaml:"methods"`
	// Paths are exact ("/a") or prefixes of whole segments ("/a/*", which is not
	// /a itself). They are compared with the path in normal form.
	Paths []string `yaml:"paths"`
}

// Refs lists what the permission names. All of it may be missing: a permission may
// be written before its service.
func (p *TrafficPermission) Refs() []Ref {
	var refs []Ref
	for i := range p.To {
		to := &p.To[i]
		refs = trafficRefs(refs, Item("spec.to", i), to.Services, to.VirtualClusters, to.Listeners)
	}
	return refs
}

// WithDefaults returns a copy of a permission with all defaults filled in. Lists
// and maps are shared.
func (p *TrafficPermission) WithDefaults() *TrafficPermission {
	out := *p
	fill(reflect.ValueOf(&out).Elem())
	return &out
}
