package node

import (
	"fmt"
	"reflect"
	"strings"

	"penstock/node/api"
)

// shownSettings are the fields of Config that may be shown, with the names of their
// flags.
var shownSettings = []struct{ field, flag string }{
	{"Name", "name"},
	{"DataDir", "data-dir"},
	{"Cluster", "cluster"},
	{"HTTP", "http"},
	{"XDS", "xds"},
	{"BundleEndpoint", "bundle-endpoint"},
	{"SPIFFESocket", "spiffe-socket"},
	{"SPIFFESocketMode", "spiffe-socket-mode"},
	{"Bind", "bind"},
	{"Gossip", "gossip"},
	{"Advertise", "advertise"},
	{"Init", "init"},
	{"Expect", "expect"},
	{"Join", "join"},
	{"TokenTTL", "token-ttl"},
	{"Rejoin", "rejoin"},
	{"TrustDomain", "trust-domain"},
	{"Voters", "voters"},
	{"DeadVoterAfter", "dead-voter-after"},
	{"ForgetAfter", "forget-after"},
	{"Zone", "zone"},
	{"HTTPCert", "http-cert"},
	{"HTTPKey", "http-key"}, // the path of the file
	{"HTTPCA", "http-ca"},
	{"HTTPInsecure", "http-insecure"},
	{"Tags", "tag"},
	{"Dev", "dev"},
	{"DrainWait", "drain-wait"},
	{"DrainTimeout", "drain-timeout"},
	{"Loops", "loops"},
	{"MaxHandshakes", "max-handshakes"},
	{"MaxRequests", "max-requests"},
	{"MaxProxies", "max-proxies"},
	{"MaxProxiesPerIdentity", "max-proxies-per-identity"},
	{"HistoryBudget", "history-budget"},
	{"LogMemory", "log-memory"},
	{"AccessLog", "access-log"},
	{"AccessInterval", "access-log-interval"},
	{"AccessFormat", "access-log-format"},
	{"AccessFields", "access-log-fields"},
	{"AccessSample", "access-log-sample"},
	{"AccessTo", "access-log-to"},
	{"AuditEntries", "audit-entries"},
	{"AuditAge", "audit-age"},
	{"Pprof", "pprof"},
}

// hiddenSettings are the other fields of Config, with the reason why they are not shown
// as they are.
var hiddenSettings = map[string]string{
	"Token":         "a secret",
	"Announce":      "a function",
	"Resources":     "resources: get shows them",
	"ResourceFiles": "shown as resources and resources-mode",
	"Kubernetes":    "shown as several",
	"MemoryBudget":  "shown in MiB",
	"AccessOut":     "a writer",
	"AccessJSON":    "shown as log-format",
	"withClients":   "only for tests",
	"Log":           "a logger",
	"Version":       "not a setting",
}

// shown returns the settings without secrets, by the names of their flags.
func (c Config) shown() []api.Setting {
	all := make([]api.Setting, 0, len(shownSettings)+8)
	add := func(name string, value any) { all = append(all, api.Setting{Name: name, Value: fmt.Sprint(value)}) }
	v := reflect.ValueOf(c)
	for _, s := range shownSettings {
		add(s.flag, v.FieldByName(s.field).Interface())
	}
	add("memory-budget", c.MemoryBudget>>20)
	if c.Token != "" {
		add("token", api.HiddenSetting)
	}
	if c.AccessJSON {
		add("log-format", "json")
	}
	if f := c.ResourceFiles; f != nil {
		add("resources", strings.Join(f.Paths, ","))
		add("resources-mode", map[bool]string{false: "seed", true: "sync"}[f.Sync])
	}
	if k := c.Kubernetes; k.Enabled {
		add("kubernetes-resources", true)
		add("kubernetes-kubeconfig", k.Kubeconfig)
		add("kubernetes-namespaces", strings.Join(k.Namespaces, ","))
		add("kubernetes-selector", k.Selector)
		add("kubernetes-controller", k.Controller)
	}
	return all
}
