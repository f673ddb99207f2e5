package node

import (
	"maps"
	"slices"

	"penstock/node/cluster"
)

// The metrics of the cluster and of its ports, as this node sees them.
var (
	mAlone        = desc("cluster_alone", "1 where this node can decide nothing, such as without a leader.")
	mLeads        = desc("cluster_leader", "1 where this node leads.")
	mMembers      = desc("cluster_members", "Nodes of the cluster, by what this one sees of them.", "role", "state")
	mTerm         = desc("raft_term", "Term of Raft.")
	mCommit       = desc("raft_commit_index", "Index of the last entry that is known to be agreed.")
	mLast         = desc("raft_last_index", "Index of the last entry in this node's log.")
	mApplied      = desc("raft_applied_index", "Index of the last entry that this node's content has.")
	mContact      = desc("raft_last_contact_seconds", "How long ago the leader was heard; -1: never.")
	mFault        = desc("raft_fault", "1 where the log could not be written last.")
	mStoreEntries = desc("store_entries", "Entries in the store, the cluster's own included.")
	mStoreBytes   = desc("store_bytes", "Bytes of them, their history not included.")

	mAdminConns   = desc("admin_connections", "Connections of commands and nodes.", "who")
	mAdminTokens  = desc("admin_tokens_total", "Tokens that were shown, by what became of them.", "result")
	mAdminRefused = desc("admin_refused_total", "Requests and connections that were refused.", "reason")
	mPortPending  = desc("cluster_port_pending", "Connections to the cluster port that have not said what they want.")
	mPortAccepted = desc("cluster_port_accepted_total", "Connections to the cluster port.")
	mPortRefused  = desc("cluster_port_refused_total", "Those of them that were closed before they were anybody's.", "reason")
	mSynced       = desc("resources_synced", "1 where what the files of --resources say acts, 0 where they have faults or could not be applied yet. Only with --resources-mode sync.")
	mUnreadable   = desc("unreadable_resources", "Resources that this node has no key for: they act as they were before.")
)

// cluster tells what this node sees of its cluster.
func (c collector) cluster(gauge gaugeFunc, count countFunc) {
	n := c.n
	a := n.admin.Stats()
	gauge(mAdminConns, float64(a.Unauthenticated), "unknown")
	gauge(mAdminConns, float64(a.Connections-a.Unauthenticated), "known")
	count(mAdminTokens, a.Authenticated, "good")
	count(mAdminTokens, a.AuthFailed, "wrong")
	count(mAdminTokens, a.AuthLimited, "not_looked_at")
	count(mAdminRefused, a.Forbidden, "role")
	count(mAdminRefused, a.OverLimit, "too_many")
	gauge(mUnreadable, float64(len(n.catalog.Unreadable())))
	if f := n.cfg.ResourceFiles; f != nil && f.Sync {
		gauge(mSynced, truth(n.reread.synced.Load()))
	}
	view := n.store.Snapshot()
	gauge(mStoreEntries, float64(view.Len()))
	gauge(mStoreBytes, float64(view.Bytes()))
	gauge(mAlone, truth(n.alone() != ""))
	if n.cluster == nil {
		return
	}
	s := n.cluster.Store().Leadership()
	gauge(mLeads, truth(s.Leader == n.id))
	gauge(mTerm, float64(s.Term))
	gauge(mCommit, float64(s.Commit))
	gauge(mLast, float64(s.Last))
	gauge(mApplied, float64(s.Applied))
	gauge(mContact, s.Contact.Seconds())
	gauge(mFault, truth(s.Fault != nil))
	members := map[[2]string]int{}
	for _, role := range []string{cluster.RoleLeader, cluster.RoleVoter, cluster.RoleNonVoter} {
		for _, state := range []string{cluster.StateUp, cluster.StateUnreachable} {
			members[[2]string{role, state}] = 0
		}
	}
	for _, m := range n.cluster.Members() {
		members[[2]string{m.Role, m.State}]++
	}
	for k, v := range members {
		gauge(mMembers, float64(v), k[0], k[1])
	}
	p := n.cluster.PortStats()
	gauge(mPortPending, float64(p.Pending))
	count(mPortAccepted, p.Accepted)
	for _, reason := range slices.Sorted(maps.Keys(p.Refused)) {
		count(mPortRefused, p.Refused[reason], reason)
	}
}
