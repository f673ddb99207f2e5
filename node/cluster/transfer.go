package cluster

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"penstock/consensus"
	"penstock/node/api"
)

// HandOver gives the lead to another voter that is up and stays in service, if
// this node leads and there is one: before a drain, for example.
func (c *Cluster) HandOver(ctx context.Context) { c.transferLead(ctx, true) }

func (c *Cluster) transfer(ctx context.Context, req *api.TransferRequest) (*api.Empty, error) {
	to := ""
	if req.To != "" {
		m, err := c.Resolve(req.To)
		switch {
		case err != nil:
			return nil, err
		case m.Role == RoleNonVoter:
			return nil, api.Errorf(api.Refused, "%s is not a voter, so it cannot lead", m.Name)
		case !m.Up():
			return nil, api.Errorf(api.Refused, "%s is unreachable", m.Name)
		}
		to = m.ID
	} else if successors := c.successors(c.Silent()); len(successors) > 0 {
		to = successors[0].ID
	}
	if err := c.Store().Transfer(ctx, to); err != nil {
		if errors.Is(err, consensus.ErrNotLeader) {
			return nil, err
		}
		return nil, api.Errorf(api.Refused, "%v", err)
	}
	return &api.Empty{}, nil
}

// transferLead gives the lead to another voter that is up, if there is one;
// with servingOnly, only to one that answers and stays in service. It returns
// when another node leads: the new leader may need this node's vote, which is
// lost if the node stops at once.
func (c *Cluster) transferLead(ctx context.Context, servingOnly bool) {
	if c.Store().Leadership().Role != consensus.RoleLeader {
		return
	}
	silent := c.Silent()
	successors := c.successors(silent)
	for i, m := range successors {
		if servingOnly && (silent[m.ID] || fitness(m.Facts) == fitnessLeaving) {
			continue
		}
		one, cancel := ctx, func() {}
		if end, ok := ctx.Deadline(); ok { // a dead successor must leave time for the others
			one, cancel = context.WithTimeout(ctx, time.Until(end)/time.Duration(len(successors)-i))
		}
		err := c.Store().Transfer(one, m.ID)
		cancel()
		if c.awaitLeader(ctx) != c.ID() {
			return
		}
		c.log.Info("the lead could not be handed over", "to", m.Name, "error", err)
	}
}

// awaitLeader waits until there is a leader, and returns its ID; "" if there is
// none before ctx ends.
func (c *Cluster) awaitLeader(ctx context.Context) string {
	for {
		changes := c.Store().Changes()
		if leader := c.Store().Leadership().Leader; leader != "" {
			return leader
		}
		select {
		case <-changes:
		case <-ctx.Done():
			return ""
		case <-c.Store().Failed():
			return ""
		}
	}
}

// successors returns the other voters that are up, the fittest to lead first:
// those that answer, then by phase (fitness), then the most advanced. One that
// is silent may only have been busy for a moment.
func (c *Cluster) successors(silent map[string]bool) []Member {
	entries := c.gossipEntries()
	list := slices.DeleteFunc(c.Members(), func(m Member) bool {
		return m.Self || m.Role != RoleVoter || !m.Up()
	})
	last := func(m Member) int {
		if silent[m.ID] {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(list, func(a, b Member) int {
		return cmp.Or(
			cmp.Compare(last(a), last(b)),
			cmp.Compare(fitness(a.Facts), fitness(b.Facts)),
			cmp.Compare(entries[b.ID].index, entries[a.ID].index),
		)
	})
	return list
}

// The fitness of a node to lead, by its phase; lower is better.
const (
	fitnessServing = iota
	fitnessUnknown // no phase yet, or one that this build does not know
	fitnessStarting
	fitnessLeaving // it drains, or is about to end
)

func fitness(f Facts) int {
	switch f.Phase {
	case "serving":
		return fitnessServing
	case "starting":
		return fitnessStarting
	case "draining", "drained", "stopping":
		return fitnessLeaving
	}
	return fitnessUnknown
}
