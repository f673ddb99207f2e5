package tiproxy

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"

	"penstock/routing/resource"
)

// Settings are a configuration of TiProxy by table and key, as toml.Unmarshal returns it.
type Settings = map[string]any

// Export returns the settings that these resources stand for: those that convert makes of
// a file. Others are ignored, and so a file's settings without a meaning here are not
// among them.
func Export(objects []resource.Object) Settings {
	e := exporter{Settings{}, map[string]*resource.Certificate{}}
	for _, o := range objects {
		if c, ok := o.Spec.(*resource.Certificate); ok {
			e.certificates[o.Name] = c
		}
	}
	var addresses []string
	for _, o := range slices.SortedFunc(slices.Values(objects), func(a, b resource.Object) int { return a.Compare(b.Key) }) {
		if o.Name != serviceName && !strings.HasPrefix(o.Name, serviceName+"-") {
			continue
		}
		switch spec := o.Spec.(type) {
		case *resource.Listener:
			if spec.Protocol == resource.ProtocolMySQL {
				addresses = append(addresses, spec.Address)
				e.listener(spec)
			}
		case *resource.Service:
			if spec.Protocol == resource.ProtocolMySQL {
				e.service(spec)
			}
		case *resource.EndpointProvider:
			if o.Name == providerName && spec.Etcd != nil {
				e.set("proxy.pd-addrs", strings.Join(spec.Etcd.Endpoints, ","))
				e.client("cluster-tls", spec.Etcd.TLS)
			}
		}
	}
	if len(addresses) > 0 {
		e.set("proxy.addr", strings.Join(addresses, ","))
	}
	return e.settings
}

type exporter struct {
	settings     Settings
	certificates map[string]*resource.Certificate
}

func (e *exporter) set(path string, value any) {
	table, names := e.settings, strings.Split(path, ".")
	for _, name := range names[:len(names)-1] {
		next, _ := table[name].(Settings)
		if next == nil {
			next = Settings{}
			table[name] = next
		}
		table = next
	}
	table[names[len(names)-1]] = value
}

func (e *exporter) listener(l *resource.Listener) {
	if l.Limits.Connections > 0 {
		e.set("proxy.max-connections", l.Limits.Connections)
	}
	if l.TLS == nil {
		return
	}
	for _, name := range l.TLS.CertificateRefs {
		e.files("server-tls", name)
	}
	if l.TLS.MinVersion != "" {
		e.set("security.server-tls.min-tls-version", l.TLS.MinVersion)
	}
	if auth := l.TLS.ClientAuth; auth != nil && auth.Mode != "none" {
		e.set("security.server-tls.ca", auth.CAFile+auth.CA)
		if auth.Mode == "request" {
			e.set("security.server-tls.skip-ca", true)
		}
	}
}

// files adds the files of a certificate.
func (e *exporter) files(role, name string) {
	if c := e.certificates[name]; c != nil && c.Follow {
		e.set("security."+role+".cert", c.CertFile)
		e.set("security."+role+".key", c.KeyFile)
	}
}

func (e *exporter) client(role string, t *resource.ServiceTLS) {
	if t == nil {
		return
	}
	if ca := t.CAFile + t.CA; ca != "" {
		e.set("security."+role+".ca", ca)
	}
	if t.InsecureSkipVerify {
		e.set("security."+role+".skip-ca", true)
	}
	if t.MinVersion != "" {
		e.set("security."+role+".min-tls-version", t.MinVersion)
	}
	e.files(role, t.CertificateRef)
}

func (e *exporter) service(s *resource.Service) {
	if s.Balancing.Policy == "random" {
		e.set("balance.routing-policy", "random")
	}
	if s.Balancing.Zone == "" {
		e.set("balance.location.enabled", false)
	}
	if label := s.Balancing.MatchTag; label != "" {
		e.set("balance.label-name", label)
	}
	for i := range s.EndpointsFrom {
		if value, ok := s.EndpointsFrom[i].Select[s.Balancing.MatchTag]; ok {
			e.set("labels."+s.Balancing.MatchTag, value)
		}
		if _, ok := s.EndpointsFrom[i].Select[portLabel]; ok {
			e.set("balance.routing-rule", "port")
		}
	}
	var failed []string
	for i := range s.Endpoints {
		if w := s.Endpoints[i].Weight; w != nil && *w == 0 {
			failed = append(failed, s.Endpoints[i].Address)
		}
	}
	if failed != nil {
		e.set("proxy.fail-backend-list", failed)
	}
	if s.EndpointDrain != nil {
		e.set("proxy.failover-timeout", int(s.EndpointDrain.Timeout.D()/time.Second))
	}
	if s.ProxyProtocol != nil {
		e.set("proxy.proxy-protocol", s.ProxyProtocol.Send)
	}
	if s.MySQL.MovesPerSecond > 0 {
		e.set("balance.status.migrations-per-second", s.MySQL.MovesPerSecond)
	}
	if n := s.MySQL.Rebalance.MovesPerSecond; n != nil && *n > 0 {
		e.set("balance.conn-count.migrations-per-second", *n)
	}
	if s.MySQL.Rebalance.Ratio > 0 {
		e.set("balance.conn-count.count-ratio-threshold", float64(s.MySQL.Rebalance.Ratio)/100)
	}
	e.load(s.MySQL.Load)
	if s.MySQL.RequireTLS {
		e.set("security.require-backend-tls", true)
	}
	e.client("sql-tls", s.TLS)
}

// TOML returns the settings as a file.
func TOML(s Settings) ([]byte, error) { return toml.Marshal(s) }

// Merge returns a file with the settings, of which those of another file replace what they
// give, as TiProxy takes a part of its configuration. An error names the line in the file.
func Merge(s Settings, file []byte) ([]byte, error) {
	var given Settings
	if err := toml.Unmarshal(file, &given); err != nil {
		if at := (*toml.DecodeError)(nil); errors.As(err, &at) {
			line, _ := at.Position()
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
		return nil, err
	}
	return TOML(merged(s, given))
}

func merged(s, given Settings) Settings {
	out := maps.Clone(s)
	if out == nil {
		out = Settings{}
	}
	for name, value := range given {
		table, isTable := value.(Settings)
		before, wasTable := out[name].(Settings)
		if isTable && wasTable && name != "labels" {
			value = merged(before, table)
		}
		out[name] = value
	}
	return out
}
