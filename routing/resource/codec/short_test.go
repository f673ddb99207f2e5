package codec

import (
	"testing"

	"penstock/routing/resource"
)

// What users write in short is the same as the full form.
func TestShortFormsAreFullOnes(t *testing.T) {
	for _, c := range []struct{ what, short, full string }{
		{
			"the permission of the interface", `
kind: TrafficPermission
name: web-to-shop
spec:
  to: {service: shop}
  rules:
  - {action: allow, from: [{identity: "spiffe://prod/web/*"}, {network: 10.1.0.0/16}, {networks: [10.2.0.0/16]}, {tags: {service: web}}]}
  - {action: deny, from: {service: batch}}
  onChange: drain`, `
kind: TrafficPermission
name: web-to-shop
spec:
  to: [{services: [shop]}]
  rules:
  - action: allow
    from: [{identities: ["spiffe://prod/web/*"]}, {networks: [10.1.0.0/16]}, {networks: [10.2.0.0/16]}, {tags: {service: web}}]
  - {action: deny, from: [{services: [batch]}]}
  onChange: drain`,
		},
		{
			"destinations and Kafka's clients", `
kind: TrafficPermission
name: p
spec: {action: allow, from: {principal: "User:a"}, to: [{virtualCluster: c, listener: l, kafka: [{topics: [t]}]}]}`, `
kind: TrafficPermission
name: p
spec: {action: allow, from: [{principals: ["User:a"]}], to: [{virtualClusters: [c], listeners: [l], kafka: [{topics: [t]}]}]}`,
		},
		{
			"the limit of the interface", `
kind: RateLimit
name: shop-connections
spec: {to: {service: shop}, by: network, connectionsPerSecond: 100, burst: 150, connections: 50, over: refuse}`, `
kind: RateLimit
name: shop-connections
spec: {to: [{services: [shop]}], by: network, connections: {rate: 100, burst: 150}, concurrent: 50, over: refuse}`,
		},
		{
			"other rates, by a tag", `
kind: RateLimit
name: l
spec: {by: "tag:team", requestsPerSecond: 5, bytesPerSecondIn: 1MiB, bytesPerSecondOut: 2MiB}`, `
kind: RateLimit
name: l
spec: {by: tag, tag: team, requests: {rate: 5}, bytesIn: {rate: 1MiB}, bytesOut: {rate: 2MiB}}`,
		},
	} {
		short, faults := Decode("short.yaml", []byte(c.short), resource.RoutingKinds())
		if len(faults) > 0 {
			t.Errorf("%s: %v", c.what, faults)
			continue
		}
		full, faults := Decode("full.yaml", []byte(c.full), resource.RoutingKinds())
		if len(faults) > 0 || len(short) != 1 || len(full) != 1 {
			t.Fatalf("%s: %v", c.what, faults)
		}
		if a, b := string(EncodeYAML(short[0])), string(EncodeYAML(full[0])); a != b {
			t.Errorf("%s is\n%s\nwant\n%s", c.what, a, b)
		}
	}
}
