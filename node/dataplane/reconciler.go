package dataplane

import (
	"cmp"
	"crypto/tls"
	"errors"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"penstock/kafka"
	"penstock/kafka/model"
	"penstock/netio"
	"penstock/netio/clienthello"
	"penstock/netio/proxyproto"
	"penstock/netio/tlsstream"
	"penstock/node/tlsconfig"
	"penstock/routing"
	"penstock/routing/discovery"
	"penstock/routing/endpoint"
	"penstock/routing/health"
	"penstock/routing/provider"
	"penstock/routing/resource"
	"penstock/routing/resource/validate"
)

// reconciler applies configuration changes to routing, netio, Kafka, the health
// checks and the resolver. The cost is that of the change, not of the
// configuration. mu serializes changes.
type reconciler struct {
	log      *slog.Logger
	bind     string // host of listeners whose address has none
	own      atomic.Pointer[ownAddresses]
	router   *routing.Router
	engine   *netio.Engine
	checker  *health.Checker
	resolver *discovery.Resolver
	certs    *tlsconfig.Store
	tickets  *tlsstream.Tickets
	clients  *clients
	flows    *flows
	removed  removedListeners
	requests *requests
	kafka    *kafka.Proxy
	kafkaTLS *kafkaTLS
	sessions *mysqlSessions
	mesh     *tlsconfig.Mesh // nil: the node is in no cluster
	// challenges answers certificate authorities; nil: none.
	challenges Challenges

	mu        sync.Mutex
	listeners map[string]netio.Listener
	servers   map[string]server          // of terminating listeners
	ports     map[string]bool            // the listeners that virtual clusters open without a Listener resource
	checks    map[string][]health.Target // by service
	loads     loads
	ejecting  map[string]*endpoint.Group  // services that eject endpoints
	breaking  map[string]*routing.Service // services with a circuit breaker
	prune     bool                        // some flows may be obsolete
	departed  departures
}

// newReconciler makes a reconciler without router, engine and the components that
// New makes after these.
func newReconciler(cfg *Config) *reconciler {
	r := &reconciler{
		log: cfg.Log, bind: cfg.Bind, mesh: cfg.Mesh, certs: tlsconfig.NewStore(), tickets: cfg.Tickets,
		listeners: map[string]netio.Listener{}, servers: map[string]server{},
		checks: map[string][]health.Target{}, ejecting: map[string]*endpoint.Group{},
		breaking: map[string]*routing.Service{},
		checker:  health.New(health.Config{}),
		loads:    newLoads(),
	}
	r.certs.Revoked, r.certs.Bundles = cfg.Revoked, cfg.Bundles
	r.clients = &clients{log: cfg.Log, certs: r.certs, mesh: tlsconfig.NewMeshClient(cfg.Mesh), m: map[resource.Key]client{}}
	r.resolver = discovery.New(discovery.Config{Changed: r.resolved, Log: cfg.Log})
	return r
}

// server is the TLS of a listener with the settings it was made from.
type server struct {
	tls    *resource.ListenerTLS
	config *tlsconfig.Server
}

// Apply puts changes, which set already contains, into force. Certificates come
// first, because listeners and services refer to them; then the table, whose swap
// is the moment at which new connections see the change; then the listening
// sockets.
func (d *Dataplane) Apply(set *validate.Set, changes []resource.Change) {
	r := d.reconciler
	r.mu.Lock()
	defer r.mu.Unlock()
	var rekeyed []string // services whose client certificate changed
	var removed []string // listeners
	for i := range changes {
		ch := &changes[i]
		r.prune = r.prune || ch.Delete
		if ch.Delete && ch.Kind == "Listener" {
			removed = append(removed, ch.Name)
		}
		if ch.Kind != "Certificate" {
			continue
		}
		r.putCertificate(ch)
		for _, u := range set.Users(ch.Key) {
			if u.Kind == "Service" {
				rekeyed = append(rekeyed, u.Name)
			}
		}
	}
	removed = append(removed, r.router.Table().RemovedListeners(changes)...)
	r.removed.add(removed, r.router.Table(), time.Now())
	before := r.router.Table()
	done, err := r.router.Apply(changes, time.Now())
	r.requests.pinTable(removed, before)
	r.kafkaTLS.dropOutdated() // before Kafka asks for configurations with the new settings
	ports, kafkaErr := r.kafka.Apply(changes)
	if err = errors.Join(err, kafkaErr); err != nil {
		r.log.Error("part of the configuration is not in effect", "error", err)
	}
	if ports {
		r.updateKafkaPorts()
	}
	if slices.ContainsFunc(changes, func(ch resource.Change) bool { return ch.Kind == model.KindPhysical }) {
		done.Hosts = true
	}
	r.update(before, done, rekeyed, ports)
	r.reviewPermissions(before, done.Table, done.Listeners)
}

// resolved applies new addresses of host names.
func (r *reconciler) resolved(hosts []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.router.Table()
	r.update(before, r.router.Resolved(hosts, time.Now()), nil, false)
}

// Discovered applies new endpoints of providers.
func (d *Dataplane) Discovered(refs []provider.Ref) {
	r := d.reconciler
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.router.Table()
	r.update(before, r.router.Discovered(refs, time.Now()), nil, false)
}

func (r *reconciler) putCertificate(ch *resource.Change) {
	if ch.Delete {
		r.certs.Delete(ch.Name)
		return
	}
	if err := r.certs.Set(ch.Name, ch.Spec.(*resource.Certificate)); err != nil {
		r.log.Error("cannot use a certificate", "certificate", ch.Name, "error", err)
	}
}

// update brings everything that depends on the table up to date, which replaces
// before. relisten says that r.listeners has already changed.
func (r *reconciler) update(before *routing.Table, done routing.Applied, rekeyed []string, relisten bool) {
	r.requests.profiles.remove(rekeyed)
	if done.Hosts {
		r.updateHosts(done.Table)
	}
	rechecked := false
	for _, name := range slices.Concat(done.Services, rekeyed) {
		s, ok := done.Table.Service(name)
		var targets []health.Target
		r.requests.profiles.dropOutdated(name, s)
		if ok {
			r.drainRemoved(before, s)
			r.clients.of(name, s.Spec()) // made here, so that no loop has to make it
			targets = r.healthTargets(s)
		} else {
			r.clients.remove(resource.Key{Kind: "Service", Name: name})
		}
		delete(r.ejecting, name)
		delete(r.breaking, name)
		if ok && s.Spec().CircuitBreaker != nil {
			r.breaking[name] = s
		}
		if ok && s.Spec().Ejection != nil {
			r.ejecting[name] = s.Group()
		}
		rechecked = rechecked || len(targets) > 0 || len(r.checks[name]) > 0
		if len(targets) > 0 {
			r.checks[name] = targets
		} else {
			delete(r.checks, name)
		}
	}
	if rechecked {
		r.checker.Set(slices.Concat(slices.Collect(maps.Values(r.checks))...))
	}
	r.loads.update(done.Services, done.Table)
	for _, name := range done.Listeners {
		l, ok := done.Table.Listener(name)
		if !ok || !l.RunsHere() {
			delete(r.listeners, name)
			delete(r.servers, name)
			r.sessions.forget(name)
			r.clients.originate(name, nil)
			continue
		}
		r.clients.originate(name, l.Spec().Originates()) // made here, so that no loop has to make it
		r.listeners[name] = r.listener(l)
	}
	if len(done.Listeners) > 0 || relisten {
		r.setListeners()
	}
	r.sessions.review()
}

func (r *reconciler) setListeners() {
	byName := func(a, b netio.Listener) int { return cmp.Compare(a.Name, b.Name) }
	all := slices.SortedFunc(maps.Values(r.listeners), byName)
	r.own.Store(newOwnAddresses(all))
	r.engine.SetListeners(all)
}

// relisten makes the engine listen again after a drain was undone.
func (r *reconciler) relisten() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.setListeners()
}

// Sweep does the periodic work, about once a second: it sweeps ejected endpoints,
// removed listeners and obsolete flows.
func (d *Dataplane) Sweep(now time.Time) {
	r := d.reconciler
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, g := range r.ejecting {
		g.Sweep(now)
	}
	for _, s := range r.breaking {
		s.ServeQueue(now)
	}
	r.departed.sweep(now)
	r.prune = r.removed.sweep(now) || r.prune // late clients may have made flows again
	table := r.router.Table()
	r.sessions.review()
	if r.prune {
		r.prune = r.flows.prune(
			func(name string) bool { _, ok := table.Listener(name); return ok || r.ports[name] },
			func(name string) bool {
				_, isService := table.Service(name)
				_, isCluster := r.kafka.Table().Virtual(name)
				return isService || isCluster
			})
	}
}

// listener converts a listener into netio's form.
func (r *reconciler) listener(l *routing.Listener) netio.Listener {
	spec := l.Spec()
	out := netio.Listener{
		Name: l.Name(), Network: "tcp", Address: spec.Address,
		ProxyTimeout:     spec.Timeouts.ProxyHeader.D(),
		HelloTimeout:     spec.Timeouts.Hello.D(),
		HandshakeTimeout: spec.Timeouts.Handshake.D(),
		MaxConnections:   spec.Limits.Connections,
		MaxPerSource:     spec.Limits.PerSource,
		MaxPerSecond:     spec.Limits.ConnectionsPerSecond,
	}
	if path, ok := strings.CutPrefix(spec.Address, "unix:"); ok {
		out.Network, out.Address = "unix", path
	} else if strings.HasPrefix(spec.Address, ":") {
		out.Address = net.JoinHostPort(r.bind, spec.Address[1:])
	}
	if spec.ProxyProtocol != nil {
		out.ProxyFrom = spec.ProxyProtocol.Accept
	}
	if spec.TLS != nil && spec.TLS.StartTLS == "postgres" {
		out.StartTLS = netio.StartTLSPostgres
	}
	switch {
	case spec.Protocol == "kafka":
		return r.withChallenges(r.kafkaListener(out, spec.TLS != nil))
	case spec.Protocol == resource.ProtocolMySQL: // TLS begins within it
		out.Mode = netio.ModePlain
		r.sessions.tls.Delete(l.Name())
		if spec.TLS != nil {
			r.sessions.tls.Store(l.Name(), r.chooser(l.Name(), r.server(l.Name(), spec.TLS)))
		}
		return out
	case spec.Protocol == "mesh":
		out.Mode, out.TLSConfig, out.MeshHeader, out.Orderly = netio.ModeTerminate, r.meshServer, true, refusesClient
		return out
	case spec.Protocol != "tls":
		out.Mode = netio.ModePlain
	case spec.TLS == nil || spec.TLS.Mode != "terminate":
		out.Mode = netio.ModeHello
	default:
		out.Mode = netio.ModeTerminate
		out.TLSConfig = r.chooser(l.Name(), r.server(l.Name(), spec.TLS))
	}
	return r.withChallenges(out)
}

// server returns a listener's TLS, and makes it again if its settings changed.
func (r *reconciler) server(name string, t *resource.ListenerTLS) *tlsconfig.Server {
	old, ok := r.servers[name]
	if ok && sameTLS(old.tls, t) {
		return old.config
	}
	made, err := tlsconfig.NewServer(name, t, r.certs, r.tickets)
	if err != nil {
		r.log.Error("invalid tls of a listener: it accepts no client", "listener", name, "error", err)
	}
	r.servers[name] = server{t, made}
	return made
}

// sameTLS reports whether two settings are equal apart from the certificates,
// which are looked up for each connection anyway.
func sameTLS(a, b *resource.ListenerTLS) bool {
	if a.MinVersion != b.MinVersion || a.StartTLS != b.StartTLS || !slices.Equal(a.ALPN, b.ALPN) || (a.ClientAuth == nil) != (b.ClientAuth == nil) {
		return false
	}
	return a.ClientAuth == nil || resource.Same(a.ClientAuth, b.ClientAuth)
}

// chooser returns the function that selects a listener's TLS configuration for a
// ClientHello: the routing table names the certificates.
func (r *reconciler) chooser(name string, s *tlsconfig.Server) func(*clienthello.Hello) (*tls.Config, netio.Reason) {
	return func(h *clienthello.Hello) (*tls.Config, netio.Reason) {
		l, ok := r.router.Table().Listener(name)
		if last := r.removed.table(name); !ok && last != nil {
			l, ok = last.Listener(name)
		}
		if !ok || l.Spec().TLS == nil {
			return nil, netio.Reason(routing.NoListener)
		}
		certs, reason := l.Certificates(h.ServerName, h.HasServerName)
		if reason != routing.OK {
			return nil, netio.Reason(reason)
		}
		config := s.For(certs)
		if config == nil {
			return nil, netio.Reason(routing.NoCertificate)
		}
		return config, netio.OK
	}
}

// prefaceOf returns the PROXY header of connections to a service that are the node's own.
func prefaceOf(s *resource.Service) string {
	if v := proxyVersion(s); v != proxyproto.None {
		return string(proxyproto.Append(nil, v, proxyproto.Header{Local: true}))
	}
	return ""
}

// healthTargets returns the health check targets of a service.
func (r *reconciler) healthTargets(s *routing.Service) []health.Target {
	h := s.Spec().HealthCheck
	if h == nil {
		return nil
	}
	check := &health.Check{
		Interval: h.Interval.D(), Timeout: h.Timeout.D(), Rise: h.Rise, Fall: h.Fall,
		// Cloned because a running probe keeps its check, and with it these strings.
		Path: strings.Clone(h.Path), Host: strings.Clone(h.Host), Status: h.Status,
	}
	switch h.Type {
	case "tls":
		check.Type = health.TLS
	case "http":
		check.Type = health.HTTP
	case "mysql":
		check.Type = health.MySQL
	}
	// Validation has checked that both can be decoded.
	if b, err := resource.Unescape(h.Send); err == nil {
		check.Send = string(b)
	}
	if b, err := resource.Unescape(h.Expect); err == nil {
		check.Expect = string(b)
	}
	preface := prefaceOf(s.Spec())
	// The TLS of a mysql service begins after the greeting, and not at another port.
	if c := r.clients.of(s.Name(), s.Spec()); c != nil && s.Spec().Protocol != resource.ProtocolMySQL {
		check.TLS = c.For("")
	}
	var targets []health.Target
	byPort := map[uint16]*health.Check{}
	for _, m := range s.Members() {
		port := h.PortOf(m.Tags)
		if byPort[port] == nil {
			one := *check
			if one.Port = port; port == 0 { // another port takes no PROXY header
				one.Preface = preface
			}
			byPort[port] = &one
		}
		targets = append(targets, health.Target{Group: s.Group(), Endpoint: m.Endpoint, Check: byPort[port]})
	}
	return targets
}
