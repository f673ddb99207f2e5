package kafka

import (
	"crypto/tls"
	"net/netip"
	"sync"

	"penstock/kafka/model"
	"penstock/netio"
	"penstock/routing"
	"penstock/routing/resource"
)

// upstreams finds the addresses of brokers and the settings of connections to
// them. Its methods may be called from any goroutine.
type upstreams struct {
	hosts routing.Hosts
	tls   func(cluster, host string, t *model.PhysicalTLS) *tls.Config
	meter func(listener, cluster string) *netio.Meter

	mu       sync.RWMutex
	profiles map[profileKey]*netio.Profile
}

// profileKey is everything that a profile depends on.
type profileKey struct {
	listener string
	virtual  *model.VirtualCluster
	physical *model.PhysicalCluster
	tls      *model.PhysicalTLS
	host     string // "" without TLS
}

// target is one address to try.
type target struct {
	addr netip.AddrPort
	host string
	tls  *model.PhysicalTLS
}

// targets lists the addresses to try for a broker, no more than most.
func (u *upstreams) targets(route model.Route, start, most int) ([]target, routing.Reason) {
	list, reason := route.Cluster.Targets(route.Broker)
	if reason != routing.OK {
		return nil, reason
	}
	var all []target
	for i := range list {
		t := list[(start+i)%len(list)] // bootstraps are taken in turn
		host, portText, _ := resource.SplitAddress(t.Address)
		port, ok := parsePort(portText)
		if !ok {
			continue
		}
		if ip, err := netip.ParseAddr(host); err == nil {
			all = append(all, target{netip.AddrPortFrom(ip, port), host, t.TLS})
		} else if u.hosts != nil {
			addrs, _ := u.hosts.Lookup(host)
			for _, a := range addrs {
				all = append(all, target{netip.AddrPortFrom(a, port), host, t.TLS})
			}
		}
		if len(all) >= most {
			return all[:most], routing.OK
		}
	}
	if len(all) == 0 {
		return nil, routing.NoEndpoint
	}
	return all, routing.OK
}

// mayResolve reports whether the broker has a host name whose addresses may still
// come.
func (u *upstreams) mayResolve(v *model.Virtual, b *model.Broker) bool {
	if u.hosts == nil {
		return false
	}
	list, _ := v.Targets(b)
	return len(list) > 0
}

// profile returns the settings of a connection to a target.
func (u *upstreams) profile(listener string, v *model.Virtual, t *target) *netio.Profile {
	key := profileKey{listener: listener, virtual: v.Spec(), physical: v.Physical().Spec(), tls: t.tls}
	if t.tls != nil {
		key.host = t.host
	}
	u.mu.RLock()
	p, ok := u.profiles[key]
	u.mu.RUnlock()
	if ok {
		return p
	}
	p = &netio.Profile{
		ConnectTimeout: key.physical.Connect.Timeout.D(),
		IdleTimeout:    key.virtual.IdleTimeout.D(),
		Meter:          u.meter(listener, v.Name()),
	}
	p.HalfClosedTimeout = p.IdleTimeout
	if t.tls != nil {
		p.TLS = u.tls(v.Physical().Name(), t.host, t.tls)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.profiles[key] = p
	return p
}

// dropProfiles deletes all profiles: versions of clusters may be over, and
// certificates replaced. Connections keep those that they use.
func (u *upstreams) dropProfiles() {
	u.mu.Lock()
	defer u.mu.Unlock()
	clear(u.profiles)
}

func parsePort(s string) (uint16, bool) {
	n := 0
	for _, d := range []byte(s) {
		if d < '0' || d > '9' || n > 65535 {
			return 0, false
		}
		n = n*10 + int(d-'0')
	}
	return uint16(n), n > 0 && n <= 65535
}
