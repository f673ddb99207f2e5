package kafka

import (
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"penstock/kafka/filter/authorize"
	"penstock/kafka/wire"
	"penstock/routing/resource"
)

// permissions are the entries "kafka" of TrafficPermissions, compiled for each virtual
// cluster. Apply writes them, loops read the rules with each request.
type permissions struct {
	specs    map[string]*resource.TrafficPermission // with such entries, by name
	clusters map[string]bool                        // that exist
	compiled atomic.Pointer[map[string]*authorize.Rules]
}

// of returns the rules of a virtual cluster; nil: every request is allowed.
func (p *permissions) of(cluster string) *authorize.Rules {
	m := p.compiled.Load()
	if m == nil {
		return nil
	}
	return (*m)[cluster]
}

// apply takes changes into account, and compiles the rules of the clusters that they
// concern.
func (p *permissions) apply(changes []resource.Change) {
	if p.specs == nil {
		p.specs, p.clusters = map[string]*resource.TrafficPermission{}, map[string]bool{}
	}
	touched, all := map[string]bool{}, false
	touch := func(spec *resource.TrafficPermission) {
		if spec == nil {
			return
		}
		for i := range spec.To {
			if to := &spec.To[i]; len(to.Kafka) > 0 {
				all = all || len(to.VirtualClusters) == 0
				for _, name := range to.VirtualClusters {
					touched[name] = true
				}
			}
		}
	}
	for i := range changes {
		switch ch := &changes[i]; ch.Kind {
		case resource.KindPermission:
			spec, _ := ch.Spec.(*resource.TrafficPermission)
			if ch.Delete {
				spec = nil
			}
			touch(p.specs[ch.Name])
			touch(spec)
			if delete(p.specs, ch.Name); hasKafka(spec) {
				p.specs[ch.Name] = spec
			}
		case kindVirtualCluster:
			touched[ch.Name] = true
			if delete(p.clusters, ch.Name); !ch.Delete {
				p.clusters[ch.Name] = true
			}
		}
	}
	if all {
		maps.Copy(touched, p.clusters)
	}
	p.compile(touched)
}

const kindVirtualCluster = "VirtualCluster"

func hasKafka(spec *resource.TrafficPermission) bool {
	return spec != nil && slices.ContainsFunc(spec.To, func(to resource.PermissionDestination) bool { return len(to.Kafka) > 0 })
}

func (p *permissions) compile(touched map[string]bool) {
	before := p.compiled.Load()
	if len(touched) == 0 || before == nil && len(p.specs) == 0 {
		return
	}
	next := map[string]*authorize.Rules{}
	if before != nil {
		next = maps.Clone(*before)
	}
	list := make([]authorize.Permission, 0, len(p.specs))
	for _, name := range slices.Sorted(maps.Keys(p.specs)) {
		list = append(list, authorize.Permission{Name: name, Spec: p.specs[name]})
	}
	for cluster := range touched {
		delete(next, cluster)
		// A removed cluster has connections that drain: what concerned it still does.
		if rules := authorize.Compile(cluster, list); rules != nil {
			next[cluster] = rules
		}
	}
	p.compiled.Store(&next)
}

// PermissionDenials counts what permissions have denied in a virtual cluster.
type PermissionDenials struct {
	API        string
	Permission string // "": none allows it; OtherPermissions: too many to be told apart
	Shadow     bool   // only counted
	Count      uint64
}

// OtherPermissions stands for the permissions beyond maxDenialCounts.
const OtherPermissions = "others"

const (
	// maxDenialCounts bounds the counters of denials of a virtual cluster, which are by
	// API and permission.
	maxDenialCounts = 1000
	// maxDenialLogs is how many lines per second a virtual cluster logs about denials.
	maxDenialLogs = 10
)

// denials counts and logs what permissions deny in one virtual cluster.
type denials struct {
	mu         sync.Mutex
	counts     map[PermissionDenials]uint64 // Count is 0 in the keys
	second     int64                        // of the lines below
	lines      int
	suppressed int
}

// record counts a denial. It returns whether to log it, and how many lines were left out
// before.
func (d *denials) record(key PermissionDenials, now time.Time) (log bool, suppressed int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.counts == nil {
		d.counts = map[PermissionDenials]uint64{}
	}
	if _, ok := d.counts[key]; !ok && len(d.counts) >= maxDenialCounts {
		key.Permission = OtherPermissions
	}
	d.counts[key]++
	if s := now.Unix(); s != d.second {
		d.second, d.lines = s, 0
	}
	if d.lines == maxDenialLogs {
		d.suppressed++
		return false, 0
	}
	d.lines++
	suppressed, d.suppressed = d.suppressed, 0
	return true, suppressed
}

func (d *denials) list() []PermissionDenials {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := make([]PermissionDenials, 0, len(d.counts))
	for key, n := range d.counts {
		key.Count = n
		list = append(list, key)
	}
	return list
}

// addDenials adds the counts of another cluster of the same name.
func addDenials(list, other []PermissionDenials) []PermissionDenials {
	for _, d := range other {
		at := slices.IndexFunc(list, func(have PermissionDenials) bool {
			return have.API == d.API && have.Permission == d.Permission && have.Shadow == d.Shadow
		})
		if at < 0 {
			list = append(list, d)
			continue
		}
		list[at].Count += d.Count
	}
	return list
}

// recordDenial counts and logs one denial.
func (s *stats) recordDenial(log *slog.Logger, d *authorize.Denial) {
	permission, _, _ := strings.Cut(d.Rule, " ")
	now, suppressed := s.denials.record(PermissionDenials{API: wire.Name(d.API), Permission: permission, Shadow: d.Shadow}, time.Now())
	if !now {
		return
	}
	rule := d.Rule
	if rule == "" {
		rule = "none allows it"
	}
	text := "a permission denies a Kafka request"
	if d.Shadow {
		text = "a permission with shadowDeny would deny a Kafka request"
	}
	args := []any{
		"virtualCluster", s.name, "api", wire.Name(d.API), "operation", d.Operation.String(), "type", d.Type.String(), "name", d.Name,
		"permission", rule, "principal", d.Client.Principal, "identity", d.Client.Identity, "clientID", d.ClientID,
		"client", d.Client.Address.String(), "listener", d.Client.Listener,
	}
	if suppressed > 0 {
		args = append(args, "suppressed", suppressed)
	}
	log.Warn(text, args...)
}
