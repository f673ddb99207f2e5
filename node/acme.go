package node

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"penstock/node/acme"
	"penstock/node/api"
	"penstock/node/rpc"
	"penstock/routing/resource"
	"penstock/routing/resource/validate"
)

// settleTimeout bounds the wait for the nodes that are to answer a challenge. One
// that does not apply an entry for so long serves an old configuration anyway.
const settleTimeout = 10 * time.Second

// acmeConfig makes the configuration of what obtains certificates. What it refers
// to is there before that runs.
func (n *Node) acmeConfig() acme.Config {
	cfg := acme.Config{
		Store: n.store, Log: n.log, UserAgent: "penstock/" + n.cfg.Version,
		Leads: func() bool {
			if n.cluster != nil && !n.cluster.Store().Leadership().Ready {
				return false
			}
			return len(n.catalog.Unreadable()) == 0 // else it would take certificates for gone
		},
		Await: func(ctx context.Context, index uint64) error { return n.catalog.Await(ctx, index) },
		Apply: func(set *validate.Set, changes []resource.Change) { n.svids.Apply(set, changes) },
	}
	if n.cluster != nil {
		cfg.Sealer, cfg.Settle = n.cluster.Sealer(), n.settleChallenges
	}
	return cfg
}

// settleChallenges waits until the other nodes that are up answer the challenges of
// an index, and returns the names of those that did not say so in time.
func (n *Node) settleChallenges(ctx context.Context, index uint64) (behind []string) {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	var mu sync.Mutex
	var asked sync.WaitGroup
	for _, m := range n.cluster.Directory.Members() {
		if m.Self || !m.Up() {
			continue
		}
		asked.Go(func() {
			client, err := n.cluster.Directory.Pool.Get(ctx, m.ID)
			if err == nil {
				_, err = rpc.Call[api.AwaitResult](ctx, client, api.MethodChallenges, &api.AwaitRequest{Index: index})
			}
			if err != nil {
				mu.Lock()
				behind = append(behind, m.Name)
				mu.Unlock()
			}
		})
	}
	asked.Wait()
	slices.Sort(behind)
	return behind
}

// awaitChallenges returns when this node answers the challenges of an index.
func (n *Node) awaitChallenges(ctx context.Context, r *api.AwaitRequest) (*api.AwaitResult, error) {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	if err := n.acme.AwaitApplied(ctx, r.Index); err != nil {
		return nil, err
	}
	return &api.AwaitResult{Index: r.Index}, nil
}

// certificateStatus returns the status of a Certificate whose content is not in its
// spec; not ok: it is. That of files, and of what each node gets, is what this node has.
func (n *Node) certificateStatus(o *resource.Object, now time.Time) (s acme.Status, ok bool) {
	spec, _ := o.Spec.(*resource.Certificate)
	s = acme.Status{Source: "files", State: "missing"}
	if have, ok := n.svids.Of(o.Name); ok {
		if s.Source = have.Source; have.Fault != nil {
			s.Fault = have.Fault.Error()
		}
	} else if spec == nil || !spec.Follow {
		return n.acme.StatusOf(o, now)
	}
	if have, ok := n.expiry.Of(o.Key, now); ok {
		s.State, s.NotAfter = have.Trouble.String(), have.Until.UTC()
	}
	return s, true
}

// resourceStatus returns the function that gives the status of the objects of a
// set whose kind has one.
func (n *Node) resourceStatus(set *validate.Set) func(o *resource.Object, since time.Time) []byte {
	gateways := sync.OnceValue(func() func(o *resource.Object, since time.Time) []byte { return n.gateways().Status(set) })
	return func(o *resource.Object, since time.Time) []byte {
		var status any
		var ok bool
		switch o.Kind {
		case "Certificate":
			status, ok = n.certificateStatus(o, time.Now())
		case resource.KindTrustBundle:
			status, ok = n.federation.StatusOf(o)
		default:
			return gateways()(o, since)
		}
		if !ok {
			return nil
		}
		text, err := json.Marshal(status)
		if err != nil {
			return nil // cannot happen: texts, numbers and times only
		}
		return text
	}
}
