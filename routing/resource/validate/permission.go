package validate

import (
	"fmt"
	"strings"

	"penstock/routing/resource"
	"penstock/routing/urlpath"
)

// Bounds of a permission. Each pair of a client and a destination is an entry in the
// index of every node.
const (
	maxPermissionValues = 1000
	maxPermissionPairs  = 10_000
)

func validatePermission(p *resource.TrafficPermission, fault Report) {
	Fields(p, fault)
	requests := onlyKafka(p)
	clients, destinations := validatePermissionSources("from", p.From, requests, fault), 0
	switch {
	case len(p.Rules) == 0 && p.Action == "":
		fault("action", "is required, or rules: allow, deny or shadowDeny", nil)
	case len(p.Rules) > 0 && p.Action != "":
		fault("action", "conflicts with rules, which have their own: give one of the two", p.Action)
	case len(p.Rules) > 0 && len(p.From) > 0:
		fault("from", "conflicts with rules, which have their own: give one of the two", nil)
	}
	for i := range p.Rules {
		path := resource.Item("rules", i)
		if p.Rules[i].Action == "" {
			fault(path+".action", "is required: allow, deny or shadowDeny", nil)
		}
		clients += max(validatePermissionSources(path+".from", p.Rules[i].From, requests, fault), 1)
	}
	for i := range p.To {
		destinations += validateDestination(resource.Item("to", i), &p.To[i], fault)
	}
	if pairs := max(clients, 1) * max(destinations, 1); pairs > maxPermissionPairs {
		fault("", fmt.Sprintf("has %d pairs of a client and a destination, and may have at most %d: divide it into several", pairs, maxPermissionPairs), nil)
	}
}

// validatePermissionSources checks a from, and returns the number of its keys. requests says
// that the permission is about requests of Kafka alone.
func validatePermissionSources(path string, list []resource.TrafficSource, requests bool, fault Report) (keys int) {
	for i := range list {
		if !requests {
			refuseKafkaSource(resource.Item(path, i), &list[i], fault)
		}
		keys += validateSource(resource.Item(path, i), &list[i], fault)
	}
	return keys
}

// validateSource checks one entry of from, and returns the number of its keys.
func validateSource(path string, s *resource.TrafficSource, fault Report) int {
	if len(s.Identities)+len(s.Services)+len(s.Tags)+len(s.Networks)+len(s.Principals)+len(s.ClientIDs) == 0 {
		fault(path, "needs identities, services, tags, networks, principals or clientIDs; leave out from to select everyone", nil)
	}
	checkList(path+".principals", s.Principals, checkPrincipal, fault)
	checkList(path+".clientIDs", s.ClientIDs, checkClientID, fault)
	checkList(path+".identities", s.Identities, resource.CheckSPIFFEPattern, fault)
	checkList(path+".services", s.Services, tagValue, fault)
	checkTags(path+".tags", s.Tags, fault)
	networks := make([]string, len(s.Networks))
	for i, p := range s.Networks {
		networks[i] = p.String() // the decoder has checked each
	}
	checkList(path+".networks", networks, func(string) error { return nil }, fault)
	return max(len(s.Identities), len(s.Services), len(s.Networks), 1)
}

func tagValue(s string) error {
	if message := tagFault(serviceTagName, s); message != "" {
		return fmt.Errorf("%s", message)
	}
	return nil
}

// serviceTagName is the tag that holds the service of a client.
const serviceTagName = "service"

// validateDestination checks one entry of to, and returns the number of its keys.
func validateDestination(path string, to *resource.PermissionDestination, fault Report) int {
	name := func(kind string) func(string) error {
		return func(s string) error {
			if message := Name(kind, s); message != "" {
				return fmt.Errorf("%s", message)
			}
			return nil
		}
	}
	checkList(path+".services", to.Services, name("Service"), fault)
	checkList(path+".virtualClusters", to.VirtualClusters, name("VirtualCluster"), fault)
	checkList(path+".listeners", to.Listeners, name("Listener"), fault)
	switch {
	case len(to.Services)+len(to.VirtualClusters)+len(to.Listeners)+len(to.HTTP)+len(to.Kafka) == 0:
		fault(path, "needs services, virtualClusters, listeners, http or kafka; without to, everything is selected", nil)
	case len(to.Services) > 0 && len(to.VirtualClusters) > 0:
		fault(path, "can never match: a connection goes to a service or to a virtual cluster; write two entries", nil)
	case len(to.VirtualClusters) > 0 && len(to.HTTP) > 0:
		fault(path+".http", "can never match: virtual clusters have no HTTP requests", nil)
	case len(to.Kafka) > 0 && len(to.Services)+len(to.HTTP) > 0:
		fault(path+".kafka", "can never match: only virtual clusters have Kafka requests; write two entries", nil)
	}
	if len(to.Kafka) > maxKafkaRequests {
		fault(path+".kafka", fmt.Sprintf("has %d entries, and may have at most %d", len(to.Kafka), maxKafkaRequests), nil)
	}
	for i := range to.Kafka {
		validateKafkaRequests(resource.Item(path+".kafka", i), &to.Kafka[i], fault)
	}
	for i := range to.HTTP {
		validateTrafficRequest(resource.Item(path+".http", i), &to.HTTP[i], fault)
	}
	return max(len(to.Services), len(to.VirtualClusters), 1) * max(len(to.Listeners), 1)
}

func validateTrafficRequest(path string, q *resource.TrafficRequest, fault Report) {
	if len(q.Methods)+len(q.Paths) == 0 {
		fault(path, "needs methods or paths", nil)
	}
	checkList(path+".methods", q.Methods, func(s string) error {
		if s == "" || strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ-_") != "" {
			return fmt.Errorf("must be a method in capital letters, such as GET")
		}
		return nil
	}, fault)
	checkList(path+".paths", q.Paths, func(s string) error {
		plain := strings.TrimSuffix(s, "/*")
		if plain == "" && s != "" {
			plain = "/"
		}
		normal, ok := urlpath.Normal(plain)
		switch {
		case !ok:
			return fmt.Errorf("must be a path that begins with /, without dot segments")
		case strings.Contains(plain, "*"):
			return fmt.Errorf("may have * only as its last segment")
		case normal != plain:
			return fmt.Errorf("must be in normal form: %s", normal)
		}
		return nil
	}, fault)
}

// checkList reports values that check refuses, duplicates, and too many values.
func checkList(path string, list []string, check func(string) error, fault Report) {
	for i, s := range list {
		if err := check(s); err != nil {
			fault(resource.Item(path, i), err.Error(), s)
		}
	}
	if len(list) > maxPermissionValues {
		fault(path, fmt.Sprintf("has %d values, and may have at most %d: divide it among several resources", len(list), maxPermissionValues), nil)
	}
	checkDuplicates(path, list, fault)
}

func validateMesh(m *resource.Mesh, fault Report) { Fields(m, fault) }
