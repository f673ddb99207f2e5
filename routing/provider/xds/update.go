package xds

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"penstock/routing/provider"
)

// assignment is the state of an EDS resource subscribed to.
type assignment struct {
	// endpoints are those of the last resource accepted; known is false before the
	// first. A resource that was removed is known, without endpoints.
	endpoints []provider.Endpoint
	known     bool
	err       error // why there is no newer one; nil: this is the newest
	// pending is true until the control plane has answered on this stream, or was
	// due to.
	pending bool
	due     time.Time
}

// cluster is what CDS says of a cluster.
type cluster struct {
	service string // the EDS resource; "" if it is not known
	err     error  // why this is not the newest, or has no EDS resource
	removed bool   // it was listed, and is not any more
}

// faults are why a response is refused, whole or in part.
type faults []error

// String returns the first of them, for the control plane.
func (f faults) String() string {
	if len(f) == 0 {
		return ""
	}
	text := fmt.Sprintf("%.300s", f[0].Error())
	if len(f) > 1 {
		text += fmt.Sprintf(" (and %d more)", len(f)-1)
	}
	return text
}

// handle takes what is new from a response, and accepts or refuses it. The valid
// resources of a response that is refused are used all the same.
func (s *session) handle(e event) error {
	r := e.response
	if err := r.check(); err != nil {
		return err
	}
	sub, update := &s.eds, s.updateEndpoints
	if r.typeURL == clusterType && s.cfg.Clusters {
		sub, update = &s.cds, s.updateClusters
	}
	if r.typeURL != sub.typeURL || !sub.opened || s.streams[s.cfg.methodOf(r.typeURL)] != e.stream {
		s.unasked = r.typeURL // an answer would subscribe to it
		return nil
	}
	before := s.nameless[r.typeURL]
	delete(s.nameless, r.typeURL)
	fault := update(r).String()
	if err := s.nameless[r.typeURL]; err != nil {
		for _, queries := range s.queries {
			s.fail(queries, err)
		}
	}
	if fault != "" {
		if err := s.nacks.Wait(s.ctx); err != nil {
			return err
		}
	}
	if err := s.send(sub.answer(r, fault)); err != nil {
		return err
	}
	if r.typeURL == clusterType {
		if err := s.resolve(); err != nil {
			return err
		}
	}
	if before != nil && s.nameless[r.typeURL] == nil {
		for name, queries := range s.wanting {
			s.deliver(name, queries)
		}
	}
	return nil
}

// updateEndpoints takes the EDS resources of a response.
func (s *session) updateEndpoints(r *response) (refused faults) {
	s.edsAnswers = true
	seen := make(map[string]bool, len(r.resources))
	for i := range r.resources {
		res := &r.resources[i]
		cla := &endpointv3.ClusterLoadAssignment{}
		err := res.decode(s.eds.typeURL, cla, s.cfg.MaxEndpoints*messagesPerEndpoint)
		name := cmp.Or(res.name, cla.GetClusterName())
		a := s.assignments[name]
		if err == nil && res.body == nil || name != "" && a == nil {
			continue // a heartbeat, or not asked for
		}
		var list []provider.Endpoint
		if err == nil {
			list, err = endpoints(cla, s.cfg.MaxEndpoints)
		}
		if err = s.checkName(name, seen, err); err != nil {
			refused = append(refused, s.refuse(s.eds.typeURL, name, err))
		}
		switch {
		case a == nil:
			continue
		case err == nil:
			*a = assignment{endpoints: list, known: true}
			s.eds.known[name] = res.version
		default:
			a.err, a.pending = refused[len(refused)-1], false
		}
		s.deliver(name, s.wanting[name])
	}
	for _, name := range r.removed {
		if a := s.assignments[name]; a != nil {
			s.remove(name, a)
		}
	}
	for _, e := range r.errors {
		name := e.GetResourceName().GetName()
		if a := s.assignments[name]; a != nil {
			a.err, a.pending = s.reported(name, e), false
			s.deliver(name, s.wanting[name])
		}
	}
	return refused
}

// remove takes note that a resource does not exist.
func (s *session) remove(name string, a *assignment) {
	delete(s.eds.known, name)
	*a = assignment{known: a.known}
	if !a.known {
		a.err = fmt.Errorf("%s has no endpoints under the name %q: check the name, and what it serves to node %q", s.at(), name, s.cfg.Node.ID)
	}
	s.deliver(name, s.wanting[name])
}

// updateClusters takes the clusters of a response.
func (s *session) updateClusters(r *response) (refused faults) {
	s.cdsAnswers, s.clustersDue = true, time.Time{}
	seen := make(map[string]bool, len(r.resources))
	for i := range r.resources {
		res := &r.resources[i]
		m := &clusterv3.Cluster{}
		err := res.decode(s.cds.typeURL, m, s.cfg.MaxEndpoints*messagesPerEndpoint)
		name := cmp.Or(res.name, m.GetName())
		if err == nil && res.body == nil {
			seen[name] = true
			continue
		}
		err = s.checkName(name, seen, err)
		if _, listed := s.clusters[name]; err == nil && !listed && len(s.clusters) >= maxClusters {
			err = fmt.Errorf("there are more than %d clusters", maxClusters)
		}
		if err != nil {
			err = s.refuse(s.cds.typeURL, name, err)
			refused = append(refused, err)
			if s.queries[name] != nil {
				s.clusters[name] = cluster{service: s.clusters[name].service, err: err}
			}
			continue
		}
		s.clusters[name] = s.clusterOf(name, m)
		s.cds.known[name] = res.version
	}
	if !s.cfg.Delta && len(refused) == 0 { // all clusters are in each response
		for name := range s.clusters {
			if !seen[name] {
				s.unlist(name)
			}
		}
	}
	for _, name := range r.removed {
		s.unlist(name)
	}
	for _, e := range r.errors {
		if name := e.GetResourceName().GetName(); s.queries[name] != nil {
			s.clusters[name] = cluster{service: s.clusters[name].service, err: s.reported(name, e)}
		}
	}
	return refused
}

// clusterOf returns what matters of a cluster.
func (s *session) clusterOf(name string, m *clusterv3.Cluster) cluster {
	if m.GetType() != clusterv3.Cluster_EDS || m.GetClusterType() != nil {
		kind := cmp.Or(m.GetClusterType().GetName(), m.GetType().String())
		return cluster{err: fmt.Errorf("%s: cluster %q is of type %.100q; only clusters of type EDS have endpoints in EDS", s.at(), name, kind)}
	}
	service := cmp.Or(m.GetEdsClusterConfig().GetServiceName(), name)
	if service == "*" || len(service) > maxName { // "*" means all resources
		return cluster{err: fmt.Errorf("%s: cluster %q has the service name %.40q, which cannot be asked for", s.at(), name, service)}
	}
	return cluster{service: service}
}

// unlist removes a cluster.
func (s *session) unlist(name string) {
	delete(s.cds.known, name)
	if _, listed := s.clusters[name]; listed && s.queries[name] != nil {
		s.clusters[name] = cluster{removed: true}
	} else {
		delete(s.clusters, name)
	}
}

// checkName adds to the error of a resource what is wrong with its name.
func (s *session) checkName(name string, seen map[string]bool, err error) error {
	again := seen[name]
	seen[name] = true
	switch {
	case err != nil:
		return err
	case name == "":
		return errors.New("it has no name")
	case len(name) > maxName:
		return fmt.Errorf("its name has %d bytes; the maximum is %d", len(name), maxName)
	case again:
		return errors.New("it is in the response twice")
	}
	return nil
}

// refuse returns the error for a resource. Of one without a name, any query may be
// concerned.
func (s *session) refuse(typeURL, name string, err error) error {
	kind := typeURL[strings.LastIndexByte(typeURL, '.')+1:]
	if name == "" {
		err = fmt.Errorf("%s sent a %s of unknown name that is refused: %w", s.at(), kind, err)
		s.nameless[typeURL] = err
		return err
	}
	return fmt.Errorf("%s sent the %s %.100q, which is refused: %w", s.at(), kind, name, err)
}

// decode decodes a resource, which must be of a type, into m. In the state of the
// world it may be wrapped, and then gets its name.
func (r *resource) decode(typeURL string, m proto.Message, limit int) error {
	if r.body.GetTypeUrl() == wrapperType {
		wrapper := &discoveryv3.Resource{}
		if err := unmarshal(r.body.GetValue(), wrapper, limit); err != nil {
			return err
		}
		r.name, r.body = wrapper.GetName(), wrapper.GetResource()
	}
	switch {
	case r.body == nil:
		return nil
	case r.body.GetTypeUrl() != typeURL:
		return fmt.Errorf("it is of type %.100q", r.body.GetTypeUrl())
	}
	return unmarshal(r.body.GetValue(), m, limit)
}
