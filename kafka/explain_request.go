package kafka

import (
	"errors"
	"fmt"
	"net/netip"

	"penstock/kafka/filter"
	"penstock/kafka/filter/authorize"
	"penstock/kafka/session"
	"penstock/routing"
)

// RequestDenied is the reason of an explained request that permissions deny.
const RequestDenied = routing.Reason(session.Denied)

// Request is what a request to Kafka asks for, to be explained.
type Request struct {
	Listener                      string
	Client                        netip.Addr
	Identity, Principal, ClientID string
	Tags                          map[string]string
	Service                       string
	Operation                     string // a word of KafkaRequests; "": describe
	Topic, Group, TransactionalID string // at most one; none: the cluster
}

// ExplainRequest explains what the permissions of a virtual cluster say about a request,
// and returns RequestDenied if they deny it. Its error says what is wrong with the request.
func (r *Proxy) ExplainRequest(cluster string, q *Request) (steps []routing.Step, why routing.Reason, err error) {
	what, name, err := q.resource()
	if err != nil {
		return nil, "", err
	}
	word := q.Operation
	if word == "" {
		word = authorize.Describe.String()
	}
	operation, err := authorize.ParseOperation(word)
	if err != nil {
		return nil, "", err
	}
	step := routing.Step{Name: "permission", Looked: fmt.Sprintf("%s on %v", word, what)}
	if what != authorize.Cluster {
		step.Looked += " " + name
	}
	step.Looked += " by " + q.Principal
	rules := r.permissions.of(cluster)
	if rules == nil {
		step.Result = "no TrafficPermission is about requests to " + cluster + ": allowed"
		return []routing.Step{step}, routing.OK, nil
	}
	applicable := rules.For(&filter.Client{
		Listener: q.Listener, Address: q.Client, Identity: q.Identity, Tags: q.Tags, Service: q.Service, Principal: q.Principal,
	}, q.ClientID)
	d := applicable.Decide(operation, what, name)
	switch {
	case d.Allowed && d.Rule == "":
		step.Result = "no TrafficPermission denies it, and none allows others: allowed"
	case d.Allowed:
		step.Result = "TrafficPermission " + d.Rule + " allows it"
	case d.Rule == "":
		step.Result = "no TrafficPermission allows it: denied"
	default:
		step.Result = "TrafficPermission " + d.Rule + " denies it"
	}
	if d.Shadow != "" {
		step.Result += "; TrafficPermission " + d.Shadow + " (shadowDeny) would deny it"
	}
	if !d.Allowed {
		why = RequestDenied
	}
	return []routing.Step{step}, why, nil
}

// resource returns what the request is about.
func (q *Request) resource() (what authorize.ResourceType, name string, err error) {
	what, name = authorize.Cluster, authorize.ClusterName
	n := 0
	for _, one := range []struct {
		t    authorize.ResourceType
		name string
	}{{authorize.Topic, q.Topic}, {authorize.Group, q.Group}, {authorize.TransactionalID, q.TransactionalID}} {
		if one.name != "" {
			what, name = one.t, one.name
			n++
		}
	}
	if n > 1 {
		return what, name, errors.New("a request is explained for a topic, a group or a transactional id: give one of them")
	}
	return what, name, nil
}
