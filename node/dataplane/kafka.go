package dataplane

import (
	"crypto/tls"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"penstock/kafka"
	"penstock/kafka/model"
	"penstock/netio"
	"penstock/netio/clienthello"
	"penstock/node/accesslog"
	"penstock/node/tlsconfig"
	"penstock/routing"
	"penstock/routing/discovery"
	"penstock/routing/resource"
)

// kafkaTLS is TLS on both sides of Kafka: towards clients by virtual cluster,
// towards brokers by physical one. Its methods may be called from anywhere.
type kafkaTLS struct {
	reconciler *reconciler

	mu      sync.Mutex
	servers map[string]kafkaServer // by virtual cluster
	clients map[clientKey]*tlsconfig.Client
}

// kafkaServer is the TLS of one version of a virtual cluster.
type kafkaServer struct {
	spec *model.VirtualTLS
	made *tlsconfig.Server
}

// clientKey is one version of the TLS towards brokers of a physical cluster.
type clientKey struct {
	cluster string
	spec    *model.PhysicalTLS
}

func newKafkaTLS(r *reconciler) *kafkaTLS {
	return &kafkaTLS{reconciler: r, servers: map[string]kafkaServer{}, clients: map[clientKey]*tlsconfig.Client{}}
}

// client gives TLS towards a broker.
func (k *kafkaTLS) client(cluster, host string, t *model.PhysicalTLS) *tls.Config {
	k.mu.Lock()
	defer k.mu.Unlock()
	key := clientKey{cluster, t}
	made, ok := k.clients[key]
	if !ok {
		var err error
		made, err = tlsconfig.NewClient(&resource.ServiceTLS{
			CA: t.CA, ServerName: t.ServerName, CertificateRef: t.CertificateRef,
			MinVersion: t.MinVersion, InsecureSkipVerify: t.InsecureSkipVerify,
		}, k.reconciler.certs)
		if err != nil {
			k.reconciler.log.Error("tls of a physical cluster trusts nobody", "physicalCluster", cluster, "error", err)
		}
		k.clients[key] = made
	}
	return made.For(host)
}

// forget lets go of what versions that may be over were made into.
func (k *kafkaTLS) forget() {
	k.mu.Lock()
	defer k.mu.Unlock()
	clear(k.clients)
	table := k.reconciler.kafka.Table()
	maps.DeleteFunc(k.servers, func(name string, s kafkaServer) bool {
		v, ok := table.Virtual(name)
		return !ok || v.Spec().TLS != s.spec
	})
}

// server gives TLS towards the clients of a virtual cluster.
func (k *kafkaTLS) server(v *model.Virtual) *tlsconfig.Server {
	k.mu.Lock()
	defer k.mu.Unlock()
	spec := v.Spec().TLS
	old, ok := k.servers[v.Name()]
	if ok && old.spec == spec {
		return old.made
	}
	settings := &resource.ListenerTLS{Mode: "terminate", MinVersion: "1.2"}
	if spec != nil {
		settings.MinVersion, settings.ClientAuth = spec.MinVersion, spec.ClientAuth
	}
	made, err := tlsconfig.NewServer("virtualcluster/"+v.Name(), settings, k.reconciler.certs, k.reconciler.tickets)
	if err != nil {
		k.reconciler.log.Error("tls of a virtual cluster lets nobody in", "virtualCluster", v.Name(), "error", err)
	}
	k.servers[v.Name()] = kafkaServer{spec, made}
	return made
}

// chooser finds the configuration for a hello at a listener: the server name
// leads to a virtual broker, which names the certificate.
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

// kafkaListener completes what netio needs to know of a kafka listener.
func (r *reconciler) kafkaListener(l netio.Listener, secure bool) netio.Listener {
	l.Mode = netio.ModePlain
	if secure {
		l.Mode, l.TLSConfig, l.Alert = netio.ModeTerminate, r.kafkaTLS.chooser(l.Name), kafkaAlert
	}
	return l
}

// kafkaAlert is the Alert of a kafka listener. Java's client takes every TLS
// alert, close_notify included, for a failed login: it throws an
// SslAuthenticationException out of poll() instead of trying again. So what a
// later change of the resources may mend (a name that leads nowhere, a missing
// certificate) ends with a FIN, after which all clients try again. Only a hello
// that can never lead anywhere gets an alert.
func kafkaAlert(why netio.Reason) bool {
	return why == netio.Reason(routing.NoServerName) || why == netio.Reason(routing.BadServerName)
}

// followPorts brings the ports that virtual clusters have by themselves to
// netio's list.
func (r *reconciler) followPorts() {
	maps.DeleteFunc(r.listeners, func(name string, _ netio.Listener) bool { return r.ports[name] })
	r.ports = map[string]bool{}
	for p := range r.kafka.Table().Listeners() {
		r.ports[p.Name] = true
		r.listeners[p.Name] = r.kafkaListener(netio.Listener{Name: p.Name, Network: "tcp", Address: p.Address}, p.TLS)
	}
}

// followHosts tells the resolver which names are needed, by any room.
func (r *reconciler) followHosts(table *routing.Table) {
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

// brokersMoved is told when a physical cluster has other brokers than before.
func (r *reconciler) brokersMoved() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.followHosts(r.router.Table())
}

// makeKafka makes the room, once the flows can be counted.
func (r *reconciler) makeKafka(loops int) {
	r.kafkaTLS = newKafkaTLS(r)
	r.kafka = kafka.New(kafka.Config{
		Bind: r.bind, Hosts: r.resolver, Loops: loops, Log: r.log,
		Meter:     func(listener, cluster string) *netio.Meter { return r.flows.get(listener, cluster).meter },
		LetsIn:    func(v *model.Virtual, state *tls.ConnectionState) bool { return r.kafkaTLS.server(v).LetsIn(state) },
		ClientTLS: r.kafkaTLS.client, Follow: r.brokersMoved,
	})
}

// closedKafka is Closed for connections of Kafka's.
func (t *traffic) closedKafka(c *netio.Conn, p *kafka.Connection, why netio.Reason) {
	f := t.flows.get(c.Listener(), p.Cluster())
	f.end(why)
	if took := p.Took(); took > 0 {
		f.connect.Observe(took.Seconds())
	}
	if t.access != nil {
		r := t.record(c, nil, accesslog.Closed, why)
		who := p.Client()
		r.Service, r.Endpoint, r.Attempts, r.Connect = p.Cluster(), p.Upstream(), p.Attempts(), p.Took()
		r.ClientID, r.Software, r.Principal = who.ClientID, strings.TrimSpace(who.Software+" "+who.SoftwareVersion), who.Principal
		t.access.Write(r)
	}
	p.Closed(why)
}
