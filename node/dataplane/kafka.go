package dataplane

import (
	"crypto/tls"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"penstock/kafka"
	"penstock/kafka/filter"
	"penstock/kafka/model"
	"penstock/netio"
	"penstock/netio/clienthello"
	"penstock/node/accesslog"
	"penstock/node/audit"
	"penstock/node/tlsconfig"
	"penstock/routing"
	"penstock/routing/discovery"
	"penstock/routing/resource"
)

// kafkaTLS makes and caches the TLS configurations of Kafka: towards clients by
// virtual cluster, towards brokers by physical cluster. Its methods are safe for
// concurrent use.
type kafkaTLS struct {
	reconciler *reconciler

	mu      sync.Mutex
	servers map[string]kafkaServer // by virtual cluster
	clients map[clientKey]*tlsconfig.Client
}

// kafkaServer is the TLS of one version of a virtual cluster.
type kafkaServer struct {
	spec   *model.VirtualTLS
	config *tlsconfig.Server
}

// clientKey identifies one version of the TLS towards a physical cluster's
// brokers.
type clientKey struct {
	cluster string
	spec    *model.PhysicalTLS
}

func newKafkaTLS(r *reconciler) *kafkaTLS {
	return &kafkaTLS{reconciler: r, servers: map[string]kafkaServer{}, clients: map[clientKey]*tlsconfig.Client{}}
}

// client returns the TLS configuration towards a broker.
func (k *kafkaTLS) client(cluster, host string, t *model.PhysicalTLS) *tls.Config {
	k.mu.Lock()
	defer k.mu.Unlock()
	key := clientKey{cluster, t}
	made, ok := k.clients[key]
	if !ok {
		var err error
		made, err = tlsconfig.NewClient(&resource.ServiceTLS{
			CA: t.CA, CAFile: t.CAFile, CARef: t.CARef, ServerName: t.ServerName, CertificateRef: t.CertificateRef,
			MinVersion: t.MinVersion, InsecureSkipVerify: t.InsecureSkipVerify,
		}, k.reconciler.certs)
		if err != nil {
			k.reconciler.log.Error("invalid tls of a physical cluster: it trusts no broker", "physicalCluster", cluster, "error", err)
		}
		k.clients[key] = made
	}
	return made.For(host)
}

// dropOutdated drops all configurations towards brokers, and those towards clients whose
// settings are no longer in force.
func (k *kafkaTLS) dropOutdated() {
	k.mu.Lock()
	defer k.mu.Unlock()
	clear(k.clients)
	table := k.reconciler.kafka.Table()
	maps.DeleteFunc(k.servers, func(name string, s kafkaServer) bool {
		v, ok := table.Virtual(name)
		return !ok || v.Spec().TLS != s.spec
	})
}

// server returns the TLS towards the clients of a virtual cluster.
func (k *kafkaTLS) server(v *model.Virtual) *tlsconfig.Server {
	k.mu.Lock()
	defer k.mu.Unlock()
	spec := v.Spec().TLS
	old, ok := k.servers[v.Name()]
	if ok && old.spec == spec {
		return old.config
	}
	settings := &resource.ListenerTLS{Mode: "terminate", MinVersion: "1.2"}
	if spec != nil {
		settings.MinVersion, settings.ClientAuth = spec.MinVersion, spec.ClientAuth
	}
	made, err := tlsconfig.NewServer("virtualcluster/"+v.Name(), settings, k.reconciler.certs, k.reconciler.tickets)
	if err != nil {
		k.reconciler.log.Error("invalid tls of a virtual cluster: it accepts no client", "virtualCluster", v.Name(), "error", err)
	}
	k.servers[v.Name()] = kafkaServer{spec, made}
	return made
}

// chooser returns the function that selects a listener's TLS configuration for a
// ClientHello: the server name identifies a virtual broker, which names the
// certificate.
func (k *kafkaTLS) chooser(listener string) func(*clienthello.Hello) (*tls.Config, netio.Reason) {
	return func(h *clienthello.Hello) (*tls.Config, netio.Reason) {
		certs, route, reason := k.reconciler.kafka.Table().Certificates(listener, h.ServerName, h.HasServerName)
		if reason != routing.OK {
			return nil, netio.Reason(reason)
		}
		config := k.server(route.Cluster).For(certs)
		if config == nil {
			return nil, netio.Reason(routing.NoCertificate)
		}
		return config, netio.OK
	}
}

// kafkaListener sets the mode and the TLS of a kafka listener.
func (r *reconciler) kafkaListener(l netio.Listener, secure bool) netio.Listener {
	l.Mode = netio.ModePlain
	if secure {
		l.Mode, l.TLSConfig, l.Alert = netio.ModeTerminate, r.kafkaTLS.chooser(l.Name), kafkaAlert
	}
	return l
}

// kafkaAlert reports whether a kafka listener sends a TLS alert for a reason.
// Java's client takes every alert, close_notify included, for a failed login: it
// throws an SslAuthenticationException out of poll() instead of trying again. So
// faults that a later change of the resources may fix (an unknown server name, a
// missing certificate) end with a FIN, after which all clients try again. Only a
// hello that can never succeed gets an alert.
func kafkaAlert(why netio.Reason) bool {
	return why == netio.Reason(routing.NoServerName) || why == netio.Reason(routing.BadServerName)
}

// updateKafkaPorts updates listeners with the ports that virtual clusters open without
// a Listener resource.
func (r *reconciler) updateKafkaPorts() {
	maps.DeleteFunc(r.listeners, func(name string, _ netio.Listener) bool { return r.ports[name] })
	r.ports = map[string]bool{}
	for p := range r.kafka.Table().Listeners() {
		r.ports[p.Name] = true
		r.listeners[p.Name] = r.withChallenges(r.kafkaListener(netio.Listener{Name: p.Name, Network: "tcp", Address: p.Address}, p.TLS))
	}
}

// updateHosts gives the resolver all host names that routing and Kafka need, each
// with the shortest of its intervals.
func (r *reconciler) updateHosts(table *routing.Table) {
	every := map[string]time.Duration{}
	note := func(host string, pause time.Duration) bool {
		if was, ok := every[host]; !ok || pause < was {
			every[host] = pause
		}
		return true
	}
	table.Hosts()(note)
	r.kafka.Hosts()(note)
	names := make([]discovery.Name, 0, len(every))
	for _, host := range slices.Sorted(maps.Keys(every)) {
		names = append(names, discovery.Name{Host: host, Interval: every[host]})
	}
	r.resolver.Set(names)
}

// brokersChanged updates the host names after the brokers of a physical cluster have
// changed.
func (r *reconciler) brokersChanged() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.updateHosts(r.router.Table())
}

// makeKafka makes the Kafka proxy. It needs r.flows.
func (r *reconciler) makeKafka(loops int, denied func(*audit.Denial), tracing *tracing) {
	r.kafkaTLS = newKafkaTLS(r)
	r.kafka = kafka.New(kafka.Config{
		Bind: r.bind, Hosts: r.resolver, Loops: loops, Log: r.log,
		Meter:        func(listener, cluster string) *netio.Meter { return r.flows.get(listener, cluster).meter },
		AcceptClient: func(v *model.Virtual, state *tls.ConnectionState) bool { return r.kafkaTLS.server(v).Accepts(state) },
		Permit:       r.permitCluster,
		Denied:       auditKafka(denied),
		Identify:     r.identifyKafka,
		Limiter:      r.newKafkaLimits,
		LimitsTopics: func(cluster string) bool { return r.router.Table().LimitsTopics(cluster) },
		Connected:    tracing.kafkaConnected, Exchanged: tracing.kafkaExchanged,
		ClientTLS: r.kafkaTLS.client, HostsChanged: r.brokersChanged,
	})
}

// identifyKafka describes a client to the permissions for Kafka requests.
func (r *reconciler) identifyKafka(c *netio.Conn, client *filter.Client) {
	in := inputOf(c)
	client.Identity, client.IdentityUndecided = routing.IdentityOf(&in), in.IdentityUndecided
	client.Tags, client.Service = r.router.Table().ClientTags(&in)
}

// closedKafka handles Closed for Kafka connections.
func (t *traffic) closedKafka(c *netio.Conn, p *kafka.Connection, why netio.Reason) {
	f := t.flows.get(c.Listener(), p.Cluster())
	f.end(why)
	if took := p.Took(); took > 0 {
		f.connectDuration.Observe(took.Seconds())
	}
	if t.access != nil {
		t.access.Write(t.kafkaRecord(c, p, why))
	}
	p.Closed(why)
}

// kafkaRecord makes the access log record of a Kafka connection that has ended.
func (t *traffic) kafkaRecord(c *netio.Conn, p *kafka.Connection, why netio.Reason) accesslog.Record {
	r := t.record(c, nil, accesslog.Closed, why)
	who := p.Client()
	r.Service, r.Endpoint, r.Attempts, r.Connect = p.Cluster(), p.Upstream(), p.Attempts(), p.Took()
	r.ClientID, r.Software, r.Principal = who.ClientID, strings.TrimSpace(who.Software+" "+who.SoftwareVersion), who.Principal
	return r
}
