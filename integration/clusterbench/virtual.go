package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"time"

	"penstock/internal/testkit/certs"
	"penstock/node/api"
)

const (
	virtualClusters = 1000
	virtualBrokers  = 6
)

// measureVirtual fills three nodes with virtual Kafka clusters and changes one
// at a time, measuring the time from sending the change until all three nodes
// act on it. A new connection to each node, with a server name that only the
// change introduces, proves that they do.
func measureVirtual(e *env) error {
	f, err := startCluster(e, plan{size: 3})
	if err != nil {
		return err
	}
	defer f.stop()
	docs, err := virtualBasis()
	if err != nil {
		return err
	}
	began := time.Now()
	for i := range virtualClusters {
		if docs = append(docs, virtualCluster(i, "first")); len(docs) < 100 && i < virtualClusters-1 {
			continue
		}
		if _, err := ask[api.ApplyResult](f.nodes[0], 60*time.Second, api.MethodApply, api.ApplyRequest{Documents: docs}); err != nil {
			return err
		}
		docs = nil
	}
	e.note(fmt.Sprintf("%d virtual clusters of %d brokers, applied by 100 to 3 nodes",
		virtualClusters, virtualBrokers), "s", time.Since(began).Seconds())
	const warm = 60
	var times []time.Duration
	for i := range warm + 100*e.rounds {
		n, which, turn := f.nodes[i%len(f.nodes)], i*7919%virtualClusters, fmt.Sprintf("turn%d", i)
		began := time.Now()
		r, err := ask[api.ApplyResult](n, 30*time.Second, api.MethodApply,
			api.ApplyRequest{Documents: [][]byte{virtualCluster(which, turn)}})
		if err != nil {
			return err
		}
		took := time.Since(began)
		if r.Reached.Nodes != 3 || len(r.Reached.Late) > 0 {
			return fmt.Errorf("change %d reached %d nodes: %v", i, r.Reached.Nodes, r.Reached.Late)
		}
		if i >= warm {
			times = append(times, took)
		}
		for _, n := range f.nodes {
			if err := n.serves(virtualName(which, turn)); err != nil {
				return fmt.Errorf("change %d, %s: %w", i, n.name, err)
			}
		}
	}
	name := fmt.Sprintf("change 1 of %d virtual clusters -> active on 3 nodes", virtualClusters)
	e.atMost(name+", p50", "ms", ms(percentile(times, 50)), 10)
	e.note(name+", p99", "ms", ms(percentile(times, 99)))
	e.note(name+", most", "ms", ms(percentile(times, 100)))
	e.note("the same, RSS of the largest node", "MiB", f.mostRSS())
	return nil
}

// virtualBasis returns what the virtual clusters share: a physical cluster, a
// TLS port and a wildcard certificate.
func virtualBasis() ([][]byte, error) {
	own := certs.SelfSigned("*.kafka.test")
	var brokers []string
	for b := range virtualBrokers {
		brokers = append(brokers, fmt.Sprintf(`{"name":"b%d","address":"127.0.0.1:%d"}`, b, 1+b))
	}
	certificate, err := json.Marshal(map[string]any{"kind": "Certificate", "name": "all", "spec": map[string]string{
		"cert": own.Cert, "key": own.Key,
	}})
	return [][]byte{
		certificate,
		[]byte(`{"kind":"Listener","name":"kafka","spec":{"address":":7443","protocol":"kafka","tls":{}}}`),
		fmt.Appendf(nil, `{"kind":"PhysicalCluster","name":"big","spec":{"brokers":[%s]}}`, strings.Join(brokers, ",")),
	}, err
}

func virtualName(i int, turn string) string { return fmt.Sprintf("%s-%d.kafka.test", turn, i) }

// virtualCluster returns a tenant; the name of its first broker contains turn.
func virtualCluster(i int, turn string) []byte {
	var brokers []string
	for b := range virtualBrokers {
		name := virtualName(i, turn)
		if b > 0 {
			name = fmt.Sprintf("b%d-%d.kafka.test", b, i)
		}
		brokers = append(brokers, fmt.Sprintf(`{"name":"b%d","endpointRef":"kafka","sniMatchAddress":%q,"physicalBrokerRef":"b%[1]d"}`, b, name))
	}
	return fmt.Appendf(nil, `{"kind":"VirtualCluster","name":"tenant-%d","spec":{"physicalClusterRef":"big","tls":{"certificateRef":"all"},`+
		`"filters":[{"type":"MultiTenant","config":{"tenantKey":"t%[1]d"}}],"brokers":[%s]}}`, i, strings.Join(brokers, ","))
}

// serves makes a TLS connection to a node's Kafka port with a server name.
func (n *node) serves(name string) error {
	ctx, cancel := context.WithTimeout(n.e.ctx, 5*time.Second)
	defer cancel()
	d := tls.Dialer{
		NetDialer: new(net.Dialer),
		Config:    &tls.Config{ServerName: name, InsecureSkipVerify: true}, //nolint:gosec // the issuer does not matter
	}
	c, err := d.DialContext(ctx, "tcp", n.ip+":7443")
	if err != nil {
		return err
	}
	return c.Close()
}
