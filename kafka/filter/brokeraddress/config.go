package brokeraddress

import (
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"penstock/kafka/filter"
	"penstock/routing/resource"
	"penstock/routing/resource/validate"
)

// maxMapping bounds the brokers that are mapped by hand.
const maxMapping = 10_000

// Config is the filter's configuration.
type Config struct {
	// BrokerAddressMapping maps host:port of a physical broker, as it tells it
	// itself, to the one advertised to clients. The case of letters and a
	// dot at a host's end make no difference. Brokers that are not in it are
	// looked up in the virtual cluster.
	BrokerAddressMapping map[string]string `yaml:"brokerAddressMapping"`
	// Unmapped says what becomes of an answer with a broker that has no virtual
	// address: fail (the connection is closed) or hide (the broker is left out
	// of the answer). Left out: as unmappedBrokers of the virtual cluster says.
	Unmapped string `yaml:"unmapped" oneof:"fail hide"`
}

// endpoint is an address of a broker.
type endpoint struct {
	host string
	port int32
}

// canonical is one form for all ways to write an address.
func canonical(host string, port int32) endpoint {
	if ip, err := netip.ParseAddr(host); err == nil {
		return endpoint{ip.Unmap().String(), port}
	}
	return endpoint{strings.ToLower(strings.TrimSuffix(host, ".")), port}
}

// parse reads host:port. validate.Address has said that it is one.
func parse(address string) endpoint {
	host, text, _ := resource.SplitAddress(address)
	port, _ := strconv.ParseUint(text, 10, 16)
	return endpoint{host, int32(port)}
}

// Validate implements filter.Config.
func (c *Config) Validate(report func(path, message string, value any)) {
	validate.Fields(c, report)
	if n := len(c.BrokerAddressMapping); n > maxMapping {
		report("brokerAddressMapping", "must have at most "+strconv.Itoa(maxMapping)+" brokers", n)
		return
	}
	keys, values := map[endpoint]string{}, map[endpoint]string{}
	for _, from := range slices.Sorted(maps.Keys(c.BrokerAddressMapping)) {
		to := c.BrokerAddressMapping[from]
		path := "brokerAddressMapping[" + strconv.Quote(from) + "]"
		if message := checkAddress(from); message != "" {
			report(path, "the broker's address "+message, from)
		} else if first, twice := keys[parseCanonical(from)]; twice {
			report(path, "duplicate broker, first at "+first, from)
		} else {
			keys[parseCanonical(from)] = from
		}
		if message := checkAddress(to); message != "" {
			report(path, message, to)
		} else if first, twice := values[parseCanonical(to)]; twice {
			report(path, "duplicate address, first at "+first, to)
		} else {
			values[parseCanonical(to)] = from
		}
	}
}

func parseCanonical(address string) endpoint {
	e := parse(address)
	return canonical(e.host, e.port)
}

// checkAddress says what is wrong with an address; a broker has no path.
func checkAddress(address string) string {
	if strings.HasPrefix(address, "unix:") {
		return "must be host:port or [v6]:port"
	}
	return strings.Replace(validate.Address(address), ", [v6]:port or unix:PATH", " or [v6]:port", 1)
}

// Provision implements filter.Config.
func (c *Config) Provision(env filter.Env) (filter.Filter, error) {
	f := &Filter{
		mapping: make(map[endpoint]endpoint, len(c.BrokerAddressMapping)),
		address: env.Address,
		hide:    c.Unmapped == "hide" || c.Unmapped == "" && env.HideUnmapped,
	}
	for from, to := range c.BrokerAddressMapping {
		f.mapping[parseCanonical(from)] = parse(to)
	}
	f.mapWhole, f.edits.Node = f.mapNode, f.mapStreamed
	return f, nil
}

// Maps reports whether a broker is mapped by hand.
func (c *Config) Maps(host string, port int32) bool {
	for from := range c.BrokerAddressMapping {
		if parseCanonical(from) == canonical(host, port) {
			return true
		}
	}
	return false
}

// Accepts implements filter.Config: another mapping shows in the next Metadata.
func (c *Config) Accepts(older filter.Config) bool {
	_, ok := older.(*Config)
	return ok
}
