package kafka

import (
	"crypto/tls"
	"fmt"
	"maps"
	"os"
	"regexp"
	"strings"
	"testing"

	"penstock/integration/realkafka"
	"penstock/internal/testkit"
	"penstock/internal/testkit/process"
)

// TestEquivalenceThroughPenstock runs every program on virtual clusters without
// filters: in plain text by port, and with TLS on both sides by server name.
func TestEquivalenceThroughPenstock(t *testing.T) {
	c := cluster(t)
	v := startVirtual(t, c)
	var some []string
	if !wholeSuite() { // one of each kind
		some = []string{"transactions", "large records", "compression zstd", "consumer group (KIP-848)", "fetch sessions"}
	}
	comparePrograms(t, some, direct(c), v.plain, v.tls)
}

// TestEquivalenceAsTenant runs the programs as a tenant, whose names have a
// prefix at the broker. What tenants are not shown, such as internal topics, is
// omitted.
func TestEquivalenceAsTenant(t *testing.T) {
	c := cluster(t)
	own := direct(c)
	own.withoutInternal = true
	comparePrograms(t, nil, own, startVirtual(t, c).red)
}

func TestEquivalenceOfEveryAPIThroughPenstock(t *testing.T) {
	c := cluster(t)
	v := startVirtual(t, c)
	if wholeSuite() {
		compareSweeps(t, direct(c), v.plain, v.tls)
	}
	own := direct(c)
	own.withoutInternal = true
	compareSweeps(t, own, v.red)
}

// TestIsolationOfTenants runs the probes of one tenant against another.
func TestIsolationOfTenants(t *testing.T) {
	c := cluster(t)
	v := startVirtual(t, c)
	wantIsolated(t, tenancy{victim: v.red, attacker: v.blue, physical: direct(c), addresses: v.real})
}

// virtual holds the virtual clusters of one node, all in front of the same
// brokers.
type virtual struct {
	plain, tls, red, blue target
	real                  []string // addresses that must not be shown to clients
}

const domain = "kafka.example.com"

// startVirtual starts a node in front of the brokers.
func startVirtual(t testing.TB, c *realkafka.Cluster) virtual {
	t.Helper()
	cert, key, _ := issued(t, &c.CA, "*."+domain)
	secured, err := process.FreePorts(1)
	must(t, err)
	var text strings.Builder
	fmt.Fprintf(&text, "kind: PhysicalCluster\nname: big\nspec: {bootstrap: [%s]}\n", quoted(c.Bootstrap(realkafka.Plain)))
	fmt.Fprintf(&text, "---\n"+
		"kind: PhysicalCluster\n"+
		"name: big-tls\n"+
		"spec: {bootstrap: [%s], tls: {ca: %q}}\n", quoted(c.Bootstrap(realkafka.TLS)), c.CA.File)
	fmt.Fprintf(&text, "---\nkind: Certificate\nname: kafka\nspec: {certFile: %q, keyFile: %q}\n", cert, key)
	fmt.Fprintf(&text, "---\nkind: Listener\nname: kafka\nspec: {address: \"127.0.0.1:%d\", protocol: kafka, tls: {}}\n", secured[0])
	fmt.Fprintf(&text, `---
kind: VirtualCluster
name: tls
spec:
  physicalClusterRef: big-tls
  tls: {certificateRef: kafka}
  brokers: {discover: {endpointRef: kafka, bootstrap: bootstrap.%s, sniPattern: "broker-$(nodeId).%s"}}
`, domain, domain)
	v := virtual{tls: target{
		name: "Penstock by server name, TLS", bootstrap: []string{fmt.Sprintf("bootstrap.%s:%d", domain, secured[0])},
		tls: &tls.Config{RootCAs: c.CA.Pool}, caFile: c.CA.File, hosts: func(string) string { return "127.0.0.1" },
	}}
	for i, one := range []struct {
		at      *target
		name    string
		filters string
	}{
		{&v.plain, "plain", ""},
		{&v.red, "red", "  filters: [{type: MultiTenant, config: {tenantKey: red}}]\n"},
		{&v.blue, "blue", "  filters: [{type: MultiTenant, config: {tenantKey: blue}}]\n"},
	} {
		// Each has its own loopback address, so that consecutive ports are free.
		at := fmt.Sprintf("127.%d.%d.%d", 20+os.Getpid()%200, 251, 1+i)
		fmt.Fprintf(&text, "---\nkind: VirtualCluster\nname: %s\nspec:\n  physicalClusterRef: big\n%s"+
			"  brokers: {discover: {address: %s, bootstrapPort: 9092, brokerPorts: 9093-9099}}\n", one.name, one.filters, at)
		*one.at = target{name: "Penstock, " + one.name, bootstrap: []string{at + ":9092"}}
	}
	v.plain.deviations, v.tls.deviations = proxyDeviations, proxyDeviations
	v.red.withoutInternal, v.blue.withoutInternal = true, true
	v.red.deviations, v.blue.deviations = tenantDeviations, tenantDeviations
	for _, b := range c.Brokers {
		v.real = append(v.real, b.IP)
	}
	for _, g := range []*target{&v.plain, &v.tls, &v.red, &v.blue} {
		g.hidden = v.real
	}
	startPenstock(t, text.String())
	for _, g := range []target{v.plain, v.tls, v.red, v.blue} {
		waitAnswers(t, g)
	}
	return v
}

// waitAnswers waits until a broker answers through the target.
func waitAnswers(t testing.TB, g target) {
	t.Helper()
	testkit.WaitFor(t, g.name+" to answer", func() bool {
		raw, err := g.raw(t.Context(), g.bootstrap[0])
		if err != nil {
			return false
		}
		defer raw.Close()
		_, _, err = raw.ask(request(18, 0))
		return err == nil
	})
}

func quoted(all []string) string {
	var q []string
	for _, a := range all {
		q = append(q, fmt.Sprintf("%q", a))
	}
	return strings.Join(q, ", ")
}

// proxyDeviations are the deviations of every virtual cluster.
var proxyDeviations = func() map[string]deviation {
	all := map[string]deviation{"SASLHandshake": {why: "v0 is followed by tokens without frames", offered: &[2]int16{1, 1}}}
	for _, api := range []string{"AddRaftVoter", "RemoveRaftVoter"} {
		all[api] = deviation{why: "of controllers"}
	}
	for _, api := range []string{
		"InitializeShareGroupState", "ReadShareGroupState", "WriteShareGroupState", "DeleteShareGroupState", "ReadShareGroupStateSummary",
	} {
		all[api] = deviation{why: "between brokers"}
	}
	return all
}()

// tenantDeviations are the deviations of a tenant.
var tenantDeviations = func() map[string]deviation {
	all := maps.Clone(proxyDeviations)
	for _, api := range []string{
		"WriteTxnMarkers", "CreateDelegationToken", "RenewDelegationToken", "ExpireDelegationToken", "DescribeDelegationToken",
		"AlterClientQuotas", "AlterUserSCRAMCredentials",
		"DescribeQuorum", "UpdateFeatures", "UnregisterBroker",
	} {
		all[api] = deviation{why: "of the whole cluster, or cannot be told apart by tenant"}
	}
	maps.Copy(all, map[string]deviation{
		"quotas":                       {why: "of the whole cluster", lacks: []int16{49}},
		"users":                        {why: "of the whole cluster", lacks: []int16{51}},
		"DescribeUserSCRAMCredentials": {why: "users are the cluster's", offered: &[2]int16{0, 0}, differs: withoutUsers},
		"ListConfigResources":          {why: "the brokers' loggers are not a tenant's", offered: &[2]int16{0, 1}, differs: withoutLoggers},
		"ListTransactions":             {why: "v2 has expressions, which the broker evaluates", offered: &[2]int16{0, 1}},
	})
	return all
}()

// withoutUsers removes the users from an answer of
// DescribeUserScramCredentials.
func withoutUsers(lines string) string { return users.ReplaceAllString(lines, "}") }

var users = regexp.MustCompile(` Results:\[\{User:"admin".*\]\}`)

// withoutLoggers removes broker loggers, which tenants are not shown, from an
// answer of ListConfigResources.
func withoutLoggers(line string) string { return loggers.ReplaceAllString(line, "") }

var loggers = regexp.MustCompile(` ?\{Name:"[0-9]+" Type:8\}`)
