package kafka

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"penstock/kafka/model"
	"penstock/routing"
)

// ClusterStatus is the state of a virtual cluster on this node.
type ClusterStatus struct {
	Name, Physical string
	// Filters are the types of its chain, in the order of requests.
	Filters []string
	Brokers []BrokerStatus
	// Connections are all of them, those included that are being made.
	Connections int64
	// Err says why its brokers cannot be looked up; "": they can, or need not.
	Err string
}

// BrokerStatus is the state of a virtual broker on this node.
type BrokerStatus struct {
	Name string
	// Advertised is the address advertised to clients, Address where it leads;
	// several addresses have a blank between them. "": not known, or of a
	// broker without a virtual address, none.
	Advertised, Address string
	Connections         int64
	// Err is how the last attempt to connect failed, or why clients do not see
	// the broker; "": neither.
	Err string
}

// brokerTallies counts the connections to each virtual broker of one virtual cluster.
// Names come from the configuration, or are node ids in its range, so they are
// bounded.
type brokerTallies struct{ m sync.Map } // broker -> *brokerTally

type brokerTally struct {
	active  atomic.Int64
	failure atomic.Pointer[failure]
}

type failure struct {
	err error
	at  time.Time
}

func (t *brokerTallies) of(broker string) *brokerTally {
	if b, ok := t.m.Load(broker); ok {
		return b.(*brokerTally)
	}
	b, _ := t.m.LoadOrStore(broker, new(brokerTally))
	return b.(*brokerTally)
}

// Status returns the state of all virtual clusters, sorted by name.
func (r *Proxy) Status() []ClusterStatus {
	var list []ClusterStatus
	for v := range r.model.Table().Virtuals() {
		list = append(list, r.status(v))
	}
	slices.SortFunc(list, func(a, b ClusterStatus) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

func (r *Proxy) status(v *model.Virtual) ClusterStatus {
	s := ClusterStatus{Name: v.Name(), Physical: v.Physical().Name()}
	for _, link := range v.Chain() {
		s.Filters = append(s.Filters, link.Type)
	}
	if v.Discovered() {
		if looked, ok := r.watches.status(v.Physical().Name()); ok && looked.Err != nil {
			s.Err = looked.Err.Error()
		}
	}
	stats := r.clusters.of(v.State())
	s.Connections = stats.open.Load()
	for _, b := range v.Known() {
		one := BrokerStatus{Name: b.Name(), Advertised: v.Advertised(b)}
		targets, reason := v.Targets(b)
		var addresses []string
		for _, t := range targets {
			addresses = append(addresses, t.Address)
		}
		one.Address = strings.Join(addresses, " ")
		t := stats.brokers.of(b.Name())
		one.Connections = t.active.Load()
		if f := t.failure.Load(); f != nil {
			one.Err = fmt.Sprintf("%v (%s ago)", f.err, time.Since(f.at).Round(time.Second))
		}
		if reason != routing.OK {
			one.Err = string(reason)
		}
		s.Brokers = append(s.Brokers, one)
	}
	for _, u := range v.Unmapped() {
		s.Brokers = append(s.Brokers, BrokerStatus{Name: strconv.Itoa(int(u.NodeID)), Address: u.Address, Err: u.Explain(v)})
	}
	return s
}

// Explain explains how a connection would be routed now, down to the physical
// broker and the filters, and tells how the last attempt to connect to that
// broker failed, if it did.
func (r *Proxy) Explain(listener, serverName string, has bool) routing.Explanation {
	table := r.model.Table()
	e := table.Explain(listener, serverName, has)
	if v, ok := table.Virtual(e.Cluster); ok && e.Reason == routing.OK && len(e.Steps) > 0 {
		if f := r.clusters.of(v.State()).brokers.of(e.Broker).failure.Load(); f != nil {
			e.Steps[len(e.Steps)-1].Result += fmt.Sprintf("; the last attempt failed %s ago: %v",
				time.Since(f.at).Round(time.Second), f.err)
		}
	}
	return routing.Explanation{
		Steps: e.Steps, Destination: e.Cluster, Service: e.Cluster, Endpoint: e.Address, Reason: e.Reason,
	}
}
