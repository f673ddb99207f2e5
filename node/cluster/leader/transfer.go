package leader

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"penstock/consensus/replica"
	"penstock/consensus/store"
	"penstock/node/api"
	"penstock/node/cluster/directory"
)

// HandOver moves the lead from this node to another voter.
type HandOver struct {
	Tracker *Tracker
	Replica func() *replica.Replica
	Nodes   Nodes
	Log     *slog.Logger
}

// Nodes is what HandOver has to know about the nodes (directory.Directory).
type Nodes interface {
	Members() []directory.Member
	Resolve(nameOrID string) (directory.Member, error)
	GossipEntries() map[string]directory.GossipEntry
	// Silent returns the members that did not answer this node's last probe.
	Silent() map[string]bool
}

// Transfer hands the lead to a node, by ID or name; "": to the fittest.
func (h *HandOver) Transfer(ctx context.Context, req *api.TransferRequest) (*api.Empty, error) {
	to := ""
	if req.To != "" {
		m, err := h.Nodes.Resolve(req.To)
		switch {
		case err != nil:
			return nil, err
		case m.Role == directory.RoleNonVoter:
			return nil, api.Errorf(api.Refused, "%s is not a voter, so it cannot lead", m.Name)
		case !m.Up():
			return nil, api.Errorf(api.Refused, "%s is unreachable", m.Name)
		}
		to = m.ID
	} else if successors := h.Successors(h.Nodes.Silent()); len(successors) > 0 {
		to = successors[0].ID
	}
	if err := h.Replica().Transfer(ctx, to); err != nil {
		if errors.Is(err, store.ErrNotLeader) {
			return nil, err
		}
		return nil, api.Errorf(api.Refused, "%v", err)
	}
	return &api.Empty{}, nil
}

// Do gives the lead to another voter that is up, if this node leads and there is
// one; with servingOnly, only to one that answers and stays in service. It
// returns when another node leads: the new leader may need this node's vote,
// which is lost if the node stops at once.
func (h *HandOver) Do(ctx context.Context, servingOnly bool) {
	if h.Replica().Leadership().Role != replica.RoleLeader {
		return
	}
	silent := h.Nodes.Silent()
	successors := h.Successors(silent)
	for i, m := range successors {
		if servingOnly && (silent[m.ID] || Fitness(m.Facts) == FitnessLeaving) {
			continue
		}
		one, cancel := ctx, func() {}
		if end, ok := ctx.Deadline(); ok { // a dead successor must leave time for the others
			one, cancel = context.WithTimeout(ctx, time.Until(end)/time.Duration(len(successors)-i))
		}
		err := h.Replica().Transfer(one, m.ID)
		cancel()
		if h.awaitLeader(ctx) != h.Tracker.self {
			return
		}
		h.Log.Info("the lead could not be handed over", "to", m.Name, "error", err)
	}
}

// awaitLeader waits until there is a leader, and returns its ID; "" if there is
// none before ctx ends.
func (h *HandOver) awaitLeader(ctx context.Context) string {
	for {
		changes := h.Replica().Changes()
		if leader := h.Replica().Leadership().Leader; leader != "" {
			return leader
		}
		select {
		case <-changes:
		case <-ctx.Done():
			return ""
		case <-h.Replica().Failed():
			return ""
		}
	}
}

// Successors returns the other voters that are up, the fittest to lead first:
// those that answer, then by phase (Fitness), then the most advanced. One that
// is silent may only have been busy for a moment.
func (h *HandOver) Successors(silent map[string]bool) []directory.Member {
	entries := h.Nodes.GossipEntries()
	list := slices.DeleteFunc(h.Nodes.Members(), func(m directory.Member) bool {
		return m.Self || m.Role != directory.RoleVoter || !m.Up()
	})
	last := func(m directory.Member) int {
		if silent[m.ID] {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(list, func(a, b directory.Member) int {
		return cmp.Or(
			cmp.Compare(last(a), last(b)),
			cmp.Compare(Fitness(a.Facts), Fitness(b.Facts)),
			cmp.Compare(entries[b.ID].Index, entries[a.ID].Index),
		)
	})
	return list
}

// The fitness of a node to lead, by its phase; lower is better.
const (
	FitnessServing = iota
	FitnessUnknown // no phase yet, or one that this build does not know
	FitnessStarting
	FitnessLeaving // it drains, or is about to end
)

// Fitness returns how fit a node with these facts is to lead.
func Fitness(f directory.Facts) int {
	switch f.Phase {
	case "serving":
		return FitnessServing
	case "starting":
		return FitnessStarting
	case "draining", "drained", "stopping":
		return FitnessLeaving
	}
	return FitnessUnknown
}
