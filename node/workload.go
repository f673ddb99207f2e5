package node

import (
	"os"

	"penstock/node/cluster/record"
	"penstock/node/svid"
	"penstock/node/trust"
	"penstock/node/workload"
	"penstock/routing/resource"
)

// openWorkloads makes what keeps the SVIDs that this node holds, what puts those of
// Certificates in force, and what serves them at --spiffe-socket. A --dev node has no CA.
func (n *Node) openWorkloads() {
	defer func() {
		n.svids = svid.New(svid.Config{Held: n.identities, Apply: n.followed.Apply, DataDir: n.cfg.DataDir, Log: n.log})
	}()
	if n.cluster == nil {
		return
	}
	n.identities = workload.New(workload.Config{
		Issue: n.cluster.IssueIdentity, TrustDomain: n.cluster.TrustDomain(), Revoked: n.cluster.Identities.Revoked, Log: n.log,
	})
	if n.cfg.SPIFFESocket != "" {
		n.spiffe = workload.NewAPI(n.identities, n.cluster.TrustDomain(), n.bundles, n.log)
		n.spiffe.Tokens = n.cluster.Tokens
		if !n.cfg.withClients {
			n.spiffe.Self = os.Getpid()
		}
	}
}

// closeWorkloads ends the Workload API and the renewals.
func (n *Node) closeWorkloads() {
	if n.spiffe != nil {
		n.spiffe.Stop()
	}
	if n.svids != nil {
		n.svids.Close()
	}
	if n.identities != nil {
		n.identities.Close()
	}
}

// applyWorkloads applies changes of WorkloadIdentity resources.
func (n *Node) applyWorkloads(changes []resource.Change) {
	if n.spiffe != nil {
		n.spiffe.Apply(changes)
	}
}

// followTrustBundle passes each trust bundle of the cluster to what holds SVIDs.
func (n *Node) followTrustBundle() {
	if n.cluster == nil {
		return
	}
	var version uint64
	for view := n.store.Snapshot(); ; {
		if e, ok := view.Get(record.KeyCluster); ok && e.Version != version {
			version = e.Version
			n.useTrustBundle()
			r, err := record.Unmarshal[record.Cluster](record.KeyCluster, e.Value)
			if err == nil {
				err = n.identities.SetRoots(trust.SelfSigned(r.CAs))
			}
			if err != nil { // the cluster stops the node for it
				n.log.Error("cannot use the trust bundle", "error", err)
			}
		}
		next, err := n.store.Wait(n.ctx, view.Index())
		if err != nil {
			return
		}
		view = next
	}
}

// serveSPIFFE serves the Workload API at --spiffe-socket.
func (n *Node) serveSPIFFE(set *listenerSet) {
	l := set.spiffe
	if l == nil {
		return
	}
	set.spiffe = nil
	n.background.Go(func() {
		if err := n.spiffe.Serve(l); err != nil {
			n.log.Error("the SPIFFE Workload API failed", "socket", n.cfg.SPIFFESocket, "error", err)
		}
	})
}
