package wire

// DescribeConfigs (API key 32) returns settings of topics, groups and brokers.
//
//	request   v0+    passed; filters see it decoded
//	response  v0+    a broker's settings that contain addresses become sensitive
//	                 and lose their value
//	          v1+    so do their synonyms (KIP-226)
//
// A broker's settings include its listeners and the quorum's voters, so this API
// would reveal what Metadata and DescribeQuorum hide. MultiTenant also hides
// settings of other tenants (filter/multitenant/configs.go).
var describeConfigs = apiSpec{key: keyDescribeConfigs, mapAddresses: (*addressEditor).mapConfigs}

// addressSettings are settings of a broker that contain addresses of it or of
// others. So do settings that end in one of addressSuffixes, since listeners may
// have settings of their own.
var addressSettings = map[string]bool{
	"listeners":                           true,
	"advertised.listeners":                true,
	"controller.quorum.voters":            true,
	"controller.quorum.bootstrap.servers": true,
	"host.name":                           true,
	"advertised.host.name":                true,
	"port":                                true,
	"advertised.port":                     true,
	"zookeeper.connect":                   true,
}

var addressSuffixes = []string{"bootstrap.servers", "advertised.listeners", "host.name"}

const resourceBroker = 4 // resource type of a broker

// isAddressSetting reports whether the value of a broker's setting is an address.
func isAddressSetting(name []byte) bool {
	if addressSettings[string(name)] {
		return true
	}
	for _, s := range addressSuffixes {
		if n := len(name) - len(s); n > 0 && name[n-1] == '.' && string(name[n:]) == s {
			return true
		}
	}
	return false
}

// mapConfigs makes settings of brokers that contain addresses sensitive.
func (e *addressEditor) mapConfigs() {
	e.r.Int32() // throttle
	for range e.r.Array() {
		e.r.Int16() // error
		e.r.String()
		kind := e.r.Int8()
		e.r.String() // name
		for range e.r.Array() {
			if e.mapConfig(kind == resourceBroker); e.r.err != nil {
				return
			}
		}
		e.r.Tags()
	}
}

// mapConfig edits one setting: name, value, read-only, default (v0) or source,
// sensitive, synonyms (v1+), type and documentation (v3+).
func (e *addressEditor) mapConfig(broker bool) {
	name, _ := e.r.String()
	mask := broker && isAddressSetting(name)
	e.maskValue(mask)
	e.r.Span(2)
	e.markSensitive(mask)
	if e.v >= 1 {
		for range e.r.Array() {
			synonym, _ := e.r.String()
			e.maskValue(mask || broker && isAddressSetting(synonym))
			e.r.Int8() // source
			e.r.Tags()
		}
	}
	if e.v >= 3 {
		e.r.Int8()
		e.r.String()
	}
	e.r.Tags()
}

// maskValue reads a value and, if mask is set, replaces it with null.
func (e *addressEditor) maskValue(mask bool) {
	from := e.r.at
	_, null := e.r.String()
	if mask && !null && e.r.err == nil {
		e.copyTo(from)
		e.out = AppendNull(e.out, e.r.Flexible)
		e.done = e.r.at
	}
}

// markSensitive reads whether a setting is sensitive and, if mask is set, makes
// it so.
func (e *addressEditor) markSensitive(mask bool) {
	from := e.r.at
	was := e.r.Bool()
	if mask && e.r.err == nil {
		e.hidden++
		if !was {
			e.copyTo(from)
			e.out = append(e.out, 1)
			e.done = e.r.at
		}
	}
}
