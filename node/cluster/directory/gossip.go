package directory

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"penstock/gossip"
	"penstock/node/cluster/record"
)

// advertisedFacts is what a node publishes as gossip's facts, in JSON.
type advertisedFacts struct {
	Facts
	Index uint64 `json:"i"` // of its snapshot of the store
}

// gossiping returns the gossip; nil until it runs.
func (d *Directory) gossiping() *gossip.Gossip {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.gossip
}

// GossipAddress returns the host:port at which others reach this node's gossip;
// "" until gossip runs.
func (d *Directory) GossipAddress() string {
	if g := d.gossiping(); g != nil {
		return g.Addr()
	}
	return ""
}

// GossipChanged returns a channel that is closed when gossip reports a change;
// nil until gossip runs.
func (d *Directory) GossipChanged() <-chan struct{} {
	if g := d.gossiping(); g != nil {
		return g.Changed()
	}
	return nil
}

// SetGossipKeys replaces the keys of gossip if it runs; otherwise it will start
// with those of the store.
func (d *Directory) SetGossipKeys(keys [][]byte) error {
	if g := d.gossiping(); g != nil {
		if err := g.SetKeys(keys); err != nil && d.ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// SetFirstKeys sets the keys of gossip until the store has them.
func (d *Directory) SetFirstKeys(keys [][]byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.keys = keys
}

// LeaveGossip announces that this node stops: the others need not detect it, and
// accept it at another address as soon as it returns.
func (d *Directory) LeaveGossip(ctx context.Context) {
	if g := d.gossiping(); g != nil {
		if err := g.Leave(ctx); err != nil {
			d.Log.Debug("cannot announce to gossip that this node stops", "error", err)
		}
	}
}

// PlannedGossip returns the address at which others will reach gossip; "" if
// the system picks the port.
func (d *Directory) PlannedGossip() string {
	host, port, err := net.SplitHostPort(d.Gossip)
	if err != nil || port == "0" {
		return ""
	}
	if d.Advertise != "" {
		host = d.Advertise
	}
	return net.JoinHostPort(host, port)
}

// GossipKeys returns the current gossip keys: those of the store, or those from
// bootstrap or join until the store has them.
func (d *Directory) GossipKeys() ([][]byte, error) {
	s, _, ok, err := record.Unseal[record.GossipSecret](d.Entries.Sealer(), d.Entries.Snapshot(), record.KeyGossip)
	if err != nil {
		return nil, err
	}
	if ok {
		return s.Ring(), nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.keys, nil
}

// meta returns the metadata that gossip publishes about this node.
func (d *Directory) meta() gossip.Meta {
	id := d.Entries.Identity()
	return gossip.Meta{
		Name: id.Name, Cluster: d.Address, HTTP: d.HTTP, Version: d.Version, Zone: d.Zone, Instance: id.Instance,
	}
}

// advertisedGossip returns the address that gossip advertises, which has to be
// an IP address, with port 0 for the bound one; "" without Config.Advertise.
func (d *Directory) advertisedGossip() (string, error) {
	host := d.Advertise
	if host == "" {
		return "", nil
	}
	if _, err := netip.ParseAddr(host); err != nil {
		ctx, cancel := context.WithTimeout(d.ctx, CallTimeout)
		defer cancel()
		ips, err := net.DefaultResolver.LookupHost(ctx, host)
		if err != nil {
			return "", fmt.Errorf("--advertise %s: %w", host, err)
		}
		host = ips[0]
	}
	return net.JoinHostPort(host, "0"), nil
}

// OpenGossip starts gossip if the keys are known; otherwise they come with the
// log.
func (d *Directory) OpenGossip() error {
	if d.gossiping() != nil {
		return nil
	}
	keys, err := d.GossipKeys()
	if err != nil || len(keys) == 0 {
		return err
	}
	advertise, err := d.advertisedGossip()
	if err != nil {
		return err
	}
	g, err := gossip.Open(gossip.Config{
		ID: d.ID(), Meta: d.meta(), Bind: d.Gossip, Advertise: advertise, Label: d.Entries.Identity().ClusterID, Keys: keys,
		Log: d.Log, Conflict: d.HandleConflict,
	})
	if err != nil {
		return fmt.Errorf("--gossip %s: %w", d.Gossip, err)
	}
	d.mu.Lock()
	over := d.ctx.Err() != nil // close ran before there was gossip to close
	if !over {
		d.gossip = g
	}
	d.mu.Unlock()
	if over {
		return errors.Join(g.Close(), d.ctx.Err())
	}
	d.Moved()
	// The store may have got newer keys before d.gossip was set.
	if keys, err = d.GossipKeys(); err != nil {
		return err
	}
	return g.SetKeys(keys)
}

// HandleConflict handles another process that runs as this node. The younger
// one yields: the older has the connections. Gossip alone is no proof, since
// anyone with its key could end nodes; so the other process must show this
// node's certificate.
func (d *Directory) HandleConflict(other gossip.Member) {
	if res, err := d.Locate(d.ctx, d.ID(), []string{other.Cluster}); err != nil || res.Last.Instance == d.Entries.Identity().Instance {
		d.Log.Warn("gossip reports a copy of this node, but none answers at its address", "at", other.Cluster, "gossip", other.Addr)
		return
	}
	if other.Since.After(d.opened) {
		d.Log.Error("another process runs with a copy of this node's data folder and must stop", "at", other.Cluster, "gossip", other.Addr)
		return
	}
	d.Stop(fmt.Errorf("%w: node %s runs at %s: stop one of the two; a second node needs its own data folder",
		ErrCopied, d.ID(), other.Cluster))
}

// newGossipEntry converts a member of gossip.
func newGossipEntry(m gossip.Member) GossipEntry {
	s := GossipEntry{
		Peer: Peer{ID: m.ID, Name: m.Name, Cluster: m.Cluster, Gossip: m.Addr},
		HTTP: m.HTTP, Zone: m.Zone, Version: m.Version, Instance: m.Instance, Since: m.Since, State: StateUnreachable,
	}
	switch m.State {
	case gossip.Alive:
		s.State = StateUp
	case gossip.Left:
		s.State = StateLeft
	}
	var t advertisedFacts
	if json.Unmarshal(m.Facts, &t) == nil {
		s.Facts, s.Index = t.Facts, t.Index
	}
	return s
}

const (
	// joinEvery is the least time between two attempts to join the same unseen
	// nodes in gossip.
	joinEvery = 10 * time.Second
	// joinTimeout bounds one attempt.
	joinTimeout = 5 * time.Second
	// maxSeeds bounds the addresses of one attempt.
	maxSeeds = 16
)

// JoinGossip joins the members that gossip does not see, as long as there are
// any, so that partitions merge again. It first opens gossip if need be.
func (d *Directory) JoinGossip() {
	ticker := time.NewTicker(d.Tick)
	defer ticker.Stop()
	var last []string
	var at time.Time
	logged := LogOnce{}
	for {
		if g := d.gossiping(); g != nil {
			seeds := d.unseen()
			if len(seeds) > 0 && (!slices.Equal(seeds, last) || time.Since(at) > joinEvery) {
				last, at = seeds, time.Now()
				ctx, cancel := context.WithTimeout(d.ctx, joinTimeout)
				if n, err := g.Join(ctx, seeds); err != nil {
					d.Log.Debug("gossip: not all nodes answered", "asked", len(seeds), "answered", n, "error", err)
				}
				cancel()
			}
		} else if err := d.OpenGossip(); err != nil {
			logged.Warn(d.Log, "cannot start gossip yet", d.Entries.Identity().Name, err)
		}
		select {
		case <-ticker.C:
		case <-d.ctx.Done():
			return
		}
	}
}

// unseen lists gossip addresses of members that gossip does not see, at most
// maxSeeds: one that answers reports the others.
func (d *Directory) unseen() (seeds []string) {
	entries := d.GossipEntries()
	for _, p := range d.Known() {
		if entries[p.ID].State == StateUp {
			continue
		}
		at := []string{p.Gossip}
		for _, h := range d.Book.Lookup(p.ID) {
			at = append(at, h.Gossip)
		}
		for _, a := range at {
			if a != "" && !slices.Contains(seeds, a) && len(seeds) < maxSeeds {
				seeds = append(seeds, a)
			}
		}
	}
	slices.Sort(seeds)
	return seeds
}

// published is what was last passed to gossip.
type published struct {
	facts []byte
	phase string
	meta  gossip.Meta
}

// Publish collects this node's facts and passes them to gossip if it runs. One
// goroutine calls it.
func (d *Directory) Publish() {
	f := d.OwnFacts()
	if len(f.Hints) > maxHints {
		f.Hints = nil
	}
	d.mu.Lock()
	d.facts = f
	g := d.gossip
	d.mu.Unlock()
	if g == nil {
		return
	}
	last := &d.published
	facts, err := json.Marshal(advertisedFacts{f, d.Entries.Snapshot().Index()})
	if err == nil && !bytes.Equal(facts, last.facts) {
		err = g.SetFacts(facts, f.Phase != last.phase)
		last.facts, last.phase = facts, f.Phase
	}
	if meta := d.meta(); meta != last.meta {
		last.meta = meta
		err = errors.Join(err, g.SetMeta(meta))
	}
	if err != nil && d.ctx.Err() == nil {
		d.Log.Warn("cannot publish this node's facts through gossip", "error", err)
	}
}

// RecordUpStates records which nodes are up and since when, by this node's own
// clock, so that a new leader has this history.
func (d *Directory) RecordUpStates(now time.Time) {
	up := map[string]bool{}
	entries := d.GossipEntries()
	servers, _ := d.Entries.Replica().Servers()
	for _, s := range servers { // departing nodes are not in Members, but may be up
		up[s.ID] = entries[s.ID].State == StateUp
	}
	for _, m := range d.Members() {
		up[m.ID] = m.Up()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	next := make(map[string]UpState, len(up))
	for id, up := range up {
		if up && id != d.ID() {
			d.contacted.Store(true)
		}
		old, known := d.upStates[id]
		if !known || old.Up != up {
			old = UpState{up, now}
		}
		next[id] = old
	}
	d.upStates = next
}

// Facts are what a node publishes about itself through gossip. They may be
// stale; no decision that needs agreement rests on them.
type Facts struct {
	Phase        string  `json:"p,omitempty"` // starting, serving, draining, ...
	Connections  int64   `json:"c,omitempty"` // open now
	AppliedIndex uint64  `json:"a,omitempty"` // index of the snapshot that its data plane acts on
	Load         float64 `json:"l,omitempty"` // share of its CPUs in use, 0 to 1
	// Hints is further data for the other nodes, at most 2 KiB; more is
	// dropped.
	Hints []byte `json:"h,omitempty"`
}

// maxHints bounds Facts.Hints.
const maxHints = 2 << 10

// UpStates returns which nodes are up, by ID, as last recorded. Callers must not
// change it.
func (d *Directory) UpStates() map[string]UpState {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.upStates
}
