package tiproxy

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	yaml "go.yaml.in/yaml/v3"

	"penstock/routing/resource"
)

// form is what a value must be.
type form uint8

const (
	text form = iota
	whole
	decimal
	boolean
	texts  // a list of strings
	wholes // a list of whole numbers
	pairs  // a table of strings
)

var formNames = [...]string{
	"a string", "a whole number", "a number", "true or false", "a list of strings", "a list of whole numbers", "a table of strings",
}

// key describes one key of TiProxy's file.
type key struct {
	form form
	// words are the allowed strings; nil: any.
	words []string
	// high bounds a number from above; 0: nothing does.
	high float64
	// allowed says what a number may be.
	allowed string
	// instead says what to do in place of a setting without a meaning here; "": it has one.
	instead string
}

// What stands in place of settings that are none of resources.
const (
	insteadNode   = "is a setting of the node here: start it with "
	insteadLog    = "has no effect: nodes log to standard error, and what runs them keeps and rotates it"
	insteadMemory = "has no effect: an idle connection has no buffer; --memory-budget bounds what a node buffers"
	insteadAlive  = "has no effect: TCP keepalive is always on; to end idle connections set idleTimeout of Service " + serviceName
	insteadPace   = "has no effect: moves have the pace of balance.status.migrations-per-second, those for balance and load that of balance.conn-count, " +
		"cpu and memory"
	insteadHA      = "has no effect: every node serves every connection; put a load balancer, DNS or a tool for virtual IPs in front"
	insteadOld     = "has no effect, and current releases of TiProxy do not have it either: leave it out"
	insteadMetrics = "has no effect: each node serves /metrics at its --http address"
	insteadHTTP    = "is a setting of the node here: give --http-cert, --http-key and, to verify clients, --http-ca; the files are followed"
)

// plainKeys are those that have no siblings with the same fields.
var plainKeys = map[string]key{
	"workdir":               {instead: insteadNode + "--data-dir"},
	"enable-traffic-replay": {form: boolean, instead: "has no effect: traffic is not captured or replayed"},
	"labels":                {form: pairs},

	"proxy.addr":                               {},
	"proxy.port-range":                         {form: wholes},
	"proxy.advertise-addr":                     {instead: "has no effect: no server is told the proxy's address; nodes tell one another theirs by --advertise"},
	"proxy.pd-addrs":                           {},
	"proxy.proxy-protocol":                     {words: []string{"", "v2"}},
	"proxy.max-connections":                    {form: whole, high: 1e9, allowed: "0 to 1000000000"},
	"proxy.fail-backend-list":                  {form: texts},
	"proxy.failover-timeout":                   {form: whole, high: 86400, allowed: "0 to 86400, in seconds"},
	"proxy.graceful-wait-before-shutdown":      {form: whole, instead: insteadNode + "--drain-wait"},
	"proxy.graceful-close-conn-timeout":        {form: whole, instead: insteadNode + "--drain-timeout"},
	"proxy.conn-buffer-size":                   {form: whole, high: 16 << 20, allowed: "0, or 1024 to 16777216", instead: insteadMemory},
	"proxy.high-memory-usage-reject-threshold": {form: decimal, high: 1, allowed: "0 to 1", instead: insteadMemory},
	"proxy.tcp-keep-alive":                     {form: boolean, instead: insteadOld},

	"api.addr":              {instead: insteadNode + "--http"},
	"api.proxy-protocol":    {words: []string{"", "v2"}, instead: "has no effect: the --http address takes no PROXY header"},
	"api.enable-basic-auth": {form: boolean, instead: insteadOld},
	"api.user":              {instead: insteadOld},
	"api.password":          {instead: insteadOld},

	"advance.ignore-wrong-namespace": {form: boolean, instead: insteadOld},
	"metrics.metrics-addr":           {instead: insteadMetrics},
	"metrics.metrics-interval":       {form: whole, instead: insteadMetrics},
	"metering.region":                {instead: insteadMetrics},
	"metering.bucket":                {instead: insteadMetrics},
	"metering.prefix":                {instead: insteadMetrics},

	"log.level":                {words: []string{"debug", "info", "warn", "error", "panic", ""}, instead: insteadNode + "--log-level"},
	"log.encoder":              {words: []string{"tidb", "json", "console", "newtidb", ""}, instead: insteadNode + "--log-format"},
	"log.log-file.filename":    {instead: insteadLog},
	"log.log-file.max-size":    {form: whole, instead: insteadLog},
	"log.log-file.max-days":    {form: whole, instead: insteadLog},
	"log.log-file.max-backups": {form: whole, instead: insteadLog},
	"log.log-file.compression": {instead: insteadLog},

	"ha.virtual-ip":         {instead: insteadHA},
	"ha.interface":          {instead: insteadHA},
	"ha.garp-burst-count":   {form: whole, instead: insteadHA},
	"ha.garp-refresh-count": {form: whole, instead: insteadHA},

	"balance.label-name":                       {},
	"balance.routing-rule":                     {words: []string{"", "port", "client_cidr", "proxy_cidr"}},
	"balance.policy":                           {words: []string{"resource", "location", "connection", ""}},
	"balance.routing-policy":                   {words: []string{"prefer-idle", "random", "idlest", ""}},
	"balance.status.migrations-per-second":     {form: decimal, high: 10000, allowed: "0 to 10000"},
	"balance.health.enabled":                   {form: boolean, instead: "has no effect: healthCheck of Service " + serviceName + " decides"},
	"balance.memory.enabled":                   {form: boolean},
	"balance.cpu.enabled":                      {form: boolean},
	"balance.cpu.min-balance-usage":            {form: decimal, high: 1, allowed: "0 to 1"},
	"balance.cpu.max-usage-gap":                {form: decimal, high: 1, allowed: "0, or 0.05 to 1"},
	"balance.location.enabled":                 {form: boolean},
	"balance.conn-count.count-ratio-threshold": {form: decimal, high: math.MaxInt32, allowed: "0, or above 1"},

	"security.require-backend-tls": {form: boolean},
	"security.encryption.key-path": {instead: "has no effect: traffic is not captured"},
}

// keys are those of TiProxy's releases up to 1.4, by their path.
var keys = makeKeys()

func makeKeys() map[string]key {
	all := maps.Clone(plainKeys)
	for _, factor := range []string{"memory", "cpu", "conn-count"} {
		all["balance."+factor+".migrations-per-second"] = key{form: decimal, high: math.MaxInt32, allowed: "0 and more"}
	}
	for _, factor := range []string{"health", "location"} {
		all["balance."+factor+".migrations-per-second"] = key{form: decimal, high: math.MaxInt32, allowed: "0 and more", instead: insteadPace}
	}
	for _, side := range []string{"frontend-keepalive", "backend-healthy-keepalive", "backend-unhealthy-keepalive"} {
		for name, form := range map[string]form{"enabled": boolean, "cnt": whole, "idle": whole, "intvl": whole, "timeout": whole} {
			all["proxy."+side+"."+name] = key{form: form, instead: insteadAlive}
		}
	}
	for _, role := range []string{"server-tls", "server-http-tls", "cluster-tls", "sql-tls"} {
		for name, k := range map[string]key{
			"ca": {}, "cert": {}, "key": {}, "skip-ca": {form: boolean}, "cert-allowed-cn": {form: texts},
			"min-tls-version": {words: []string{"1.0", "1.1", "1.2", "1.3", ""}},
			"auto-certs":      {form: boolean, instead: "has no effect: give cert and key; for a cluster's own CA see Certificate with identity"},
			"rsa-key-size":    {form: whole, instead: "has no effect: no key is generated"}, "autocert-expire-duration": {instead: "has no effect: no certificate is generated"},
		} {
			if role == "server-http-tls" {
				k.instead = insteadHTTP
			}
			all["security."+role+"."+name] = k
		}
	}
	return all
}

// tables are the paths of tables, with the keys that each may have.
var tables = makeTables()

func makeTables() map[string][]string {
	all := map[string][]string{}
	for path := range keys {
		for path != "" {
			parent, name := "", path
			if i := strings.LastIndexByte(path, '.'); i >= 0 {
				parent, name = path[:i], path[i+1:]
			}
			if !slices.Contains(all[parent], name) {
				all[parent] = append(all[parent], name)
			}
			path = parent
		}
	}
	for _, names := range all {
		slices.Sort(names)
	}
	return all
}

// read checks the keys and values of a table, and keeps the values by path.
func (c *converter) read(n *yaml.Node, path string) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i], n.Content[i+1]
		at := resource.Step(path, name.Value)
		k, isKey := keys[at]
		switch {
		case isKey:
			c.readValue(k, value, at)
		case tables[at] == nil:
			c.unknown(name, path, at)
		case value.Kind != yaml.MappingNode:
			c.fault(value, at, "must be a table", nil)
		default:
			c.read(value, at)
		}
	}
}

func (c *converter) unknown(name *yaml.Node, path, at string) {
	known := tables[path]
	hint := resource.DidYouMean(name.Value, known)
	if hint == "" {
		hint = "; known keys are " + strings.Join(known, ", ")
	}
	c.fault(name, at, "is no key of TiProxy's configuration"+hint, nil)
}

func (c *converter) readValue(k key, n *yaml.Node, at string) {
	if !k.form.fits(n) {
		c.fault(n, at, "must be "+formNames[k.form], shown(at, n))
		return
	}
	switch {
	case k.words != nil && !slices.Contains(k.words, n.Value):
		c.fault(n, at, "must be "+quoted(k.words)+resource.DidYouMean(n.Value, k.words), n.Value)
		return
	case (k.form == whole || k.form == decimal) && !k.inRange(at, n):
		allowed := k.allowed
		if allowed == "" {
			allowed = "0 and more"
		}
		c.fault(n, at, "must be "+allowed, n.Value)
		return
	}
	c.values[at] = n
	if k.instead != "" && !isNothing(n) {
		c.warn(n, at, k.instead+flagValue(at, n.Value), nil)
	}
}

// flagValue returns what follows the flag that stands in place of a setting.
func flagValue(at, value string) string {
	switch at {
	case "proxy.graceful-wait-before-shutdown", "proxy.graceful-close-conn-timeout":
		return " " + value + "s"
	case "api.addr", "log.level":
		return " " + value
	}
	return ""
}

// secretPath is the one key whose value is never shown.
const secretPath = "api.password"

func shown(at string, n *yaml.Node) any {
	if at == secretPath || n.Value == "" {
		return nil
	}
	return n.Value
}

// isNothing reports whether a value says that there is nothing to do.
func isNothing(n *yaml.Node) bool {
	switch n.Kind {
	case yaml.ScalarNode:
		return n.Value == "" || n.Tag == "!!bool" && n.Value == "false" || n.Tag == "!!int" && number(n) == 0
	default:
		return len(n.Content) == 0
	}
}

func (f form) fits(n *yaml.Node) bool {
	is := func(n *yaml.Node, tags ...string) bool {
		return n.Kind == yaml.ScalarNode && slices.Contains(tags, n.Tag)
	}
	each := func(kind yaml.Kind, tag string) bool {
		return n.Kind == kind && !slices.ContainsFunc(n.Content, func(item *yaml.Node) bool { return !is(item, tag) })
	}
	switch f {
	case text:
		return is(n, "!!str")
	case whole:
		return is(n, "!!int")
	case decimal:
		return is(n, "!!int", "!!float")
	case boolean:
		return is(n, "!!bool")
	case texts:
		return each(yaml.SequenceNode, "!!str")
	case wholes:
		return each(yaml.SequenceNode, "!!int")
	}
	return each(yaml.MappingNode, "!!str")
}

// inRange reports whether a number is allowed. Some allow 0 beside their range.
func (k *key) inRange(at string, n *yaml.Node) bool {
	v := number(n)
	high := k.high
	if high == 0 {
		high = math.MaxInt64
	}
	if math.IsNaN(v) || v < 0 || v > high {
		return false
	}
	switch at {
	case "proxy.conn-buffer-size":
		return v == 0 || v >= 1024
	case "balance.cpu.max-usage-gap":
		return v == 0 || v >= 0.05
	case "balance.conn-count.count-ratio-threshold":
		return v == 0 || v > 1
	}
	return true
}

// number returns the value of a number in TOML, or NaN.
func number(n *yaml.Node) float64 {
	s := strings.ReplaceAll(n.Value, "_", "")
	if i, err := strconv.ParseInt(s, 0, 64); err == nil {
		return float64(i)
	}
	if v, err := strconv.ParseFloat(s, 64); err == nil {
		return v
	}
	return math.NaN()
}

// quoted formats words as `"a", "b" or "c"`.
func quoted(words []string) string {
	list := make([]string, len(words))
	for i, w := range words {
		list[i] = strconv.Quote(w)
	}
	return strings.Join(list[:len(list)-1], ", ") + " or " + list[len(list)-1]
}
