package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"penstock/node/catalog"
	"penstock/node/cluster"
	"penstock/node/cluster/directory"
	"penstock/node/mux"
	"penstock/node/rpc"
)

// The metrics of the cluster and of the cluster port, as this node sees them.
var (
	mAlone        = desc("cluster_alone", "1 if this node can commit no changes, such as without a leader.")
	mLeads        = desc("cluster_leader", "1 if this node is the leader.")
	mMembers      = desc("cluster_members", "Members of the cluster, by role and state as seen by this node.", "role", "state")
	mTerm         = desc("raft_term", "Current Raft term.")
	mCommit       = desc("raft_commit_index", "Index of the last entry known to be committed.")
	mLast         = desc("raft_last_index", "Index of the last entry in this node's log.")
	mApplied      = desc("raft_applied_index", "Index of the last entry applied to this node's store.")
	mContact      = desc("raft_last_contact_seconds", "Time since the last contact with the leader; -1: never.")
	mFault        = desc("raft_fault", "1 if the last write to the log failed.")
	mStoreEntries = desc("store_entries", "Entries in the store, including the cluster's own.")
	mStoreBytes   = desc("store_bytes", "Bytes of users' entries with their keys, without history.")

	mAdminConns   = desc("admin_connections", "Current admin RPC connections of commands and nodes.", "who")
	mAdminTokens  = desc("admin_tokens_total", "Tokens received, by result.", "result")
	mAdminRefused = desc("admin_refused_total", "Refused requests and connections, by reason.", "reason")
	mPortPending  = desc("cluster_port_pending", "Connections to the cluster port that have not named their protocol yet.")
	mPortAccepted = desc("cluster_port_accepted_total", "Accepted connections to the cluster port.")
	mPortRefused  = desc("cluster_port_refused_total",
		"Connections to the cluster port closed before they reached a protocol, by reason.", "reason")

	mIdentities       = desc("identities", "Workload certificates that are recorded, by state.", "state")
	mIdentityRequests = desc("identity_requests_total", "Workload certificates requested from this node as the leader, by result.", "result")

	mXDSPortPending  = desc("xds_port_pending", "Connections to --xds whose handshake is not over.")
	mXDSPortAccepted = desc("xds_port_accepted_total", "Accepted connections to --xds.")
	mXDSPortRefused  = desc("xds_port_refused_total",
		"Connections to --xds closed before they reached the discovery server, by reason.", "reason")
)

// Store collects the size of a store.
func Store(s catalog.Store) prometheus.Collector {
	return collector(func(to sink) {
		view := s.Snapshot()
		to.gauge(mStoreEntries, float64(view.Len()))
		to.gauge(mStoreBytes, float64(view.Bytes()))
	})
}

// Admin collects the connections and tokens of an admin server.
func Admin(s *rpc.Server) prometheus.Collector {
	return collector(func(to sink) {
		a := s.Stats()
		to.gauge(mAdminConns, float64(a.Unauthenticated), "unknown")
		to.gauge(mAdminConns, float64(a.Connections-a.Unauthenticated), "known")
		to.counter(mAdminTokens, a.Authenticated, "good")
		to.counter(mAdminTokens, a.AuthFailed, "wrong")
		to.counter(mAdminTokens, a.AuthLimited, "not_looked_at")
		to.counter(mAdminRefused, a.Forbidden, "role")
		to.counter(mAdminRefused, a.OverLimit, "too_many")
	})
}

// Cluster collects the state of the cluster as this node sees it; c is nil with
// --dev.
func Cluster(c *cluster.Cluster) prometheus.Collector {
	return collector(func(to sink) {
		if c == nil {
			to.gauge(mAlone, 0)
			return
		}
		to.gauge(mAlone, boolValue(c.Directory.Alone() != ""))
		raft(c, to)
		members(c, to)
		ids := c.Identities.Stats()
		to.gauge(mIdentities, float64(ids.Recorded-ids.Revoked), "issued")
		to.gauge(mIdentities, float64(ids.Revoked), "revoked")
		to.counter(mIdentityRequests, ids.Issued, "issued")
		to.counter(mIdentityRequests, ids.Refused, "refused")
		p := c.PortStats()
		to.gauge(mPortPending, float64(p.Pending))
		to.counter(mPortAccepted, p.Accepted)
		for reason, v := range p.Refused {
			to.counter(mPortRefused, v, reason)
		}
	})
}

// XDSPort collects the connections to --xds.
func XDSPort(m *mux.Mux) prometheus.Collector {
	return collector(func(to sink) {
		p := m.Stats()
		to.gauge(mXDSPortPending, float64(p.Pending))
		to.counter(mXDSPortAccepted, p.Accepted)
		for reason, v := range p.Refused {
			to.counter(mXDSPortRefused, v, reason)
		}
	})
}

// raft sends the state of Raft.
func raft(c *cluster.Cluster, to sink) {
	s := c.Store().Leadership()
	to.gauge(mLeads, boolValue(s.Leader == c.ID()))
	to.gauge(mTerm, float64(s.Term))
	to.gauge(mCommit, float64(s.Commit))
	to.gauge(mLast, float64(s.Last))
	to.gauge(mApplied, float64(s.Applied))
	to.gauge(mContact, s.Contact.Seconds())
	to.gauge(mFault, boolValue(s.Fault != nil))
}

// members sends the number of nodes by role and state, zeros included.
func members(c *cluster.Cluster, to sink) {
	members := map[[2]string]int{}
	for _, role := range []string{directory.RoleLeader, directory.RoleVoter, directory.RoleNonVoter} {
		for _, state := range []string{directory.StateUp, directory.StateUnreachable} {
			members[[2]string{role, state}] = 0
		}
	}
	for _, m := range c.Directory.Members() {
		members[[2]string{m.Role, m.State}]++
	}
	for k, v := range members {
		to.gauge(mMembers, float64(v), k[0], k[1])
	}
}
