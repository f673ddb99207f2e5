package gossip

import (
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

const (
	// maxPacketRecord bounds a record in a packet, which also carries memberlist's
	// broadcasts.
	maxPacketRecord = 1100
	// streamPeers is the number of members to which a node streams a large record.
	streamPeers = 3
	// streamAllPeers bounds the members to which a node streams a record for all.
	streamAllPeers = 64
	// factsMult: a node sends a record factsMult*log10(members) times, less often
	// than memberlist's own broadcasts; lost ones come with the next push/pull.
	factsMult = 2
	// maxLarge bounds the bytes of facts that wait to be streamed.
	maxLarge = 256 << 10
)

// broadcast is a record to be sent in packets. A newer one of the same node
// replaces it.
type broadcast struct {
	id  string
	msg []byte
}

var _ memberlist.NamedBroadcast = broadcast{}

func (n broadcast) Name() string    { return n.id }
func (n broadcast) Message() []byte { return n.msg }
func (n broadcast) Finished()       {}

// Invalidates is not called for broadcasts with names.
func (n broadcast) Invalidates(other memberlist.Broadcast) bool {
	o, ok := other.(broadcast)
	return ok && o.id == n.id
}

// queueRecord queues a record to be sent.
func (g *Gossip) queueRecord(r record) {
	if msg := encodeRecords(r); len(msg) <= maxPacketRecord {
		g.queue.QueueBroadcast(broadcast{r.ID, msg})
		return
	}
	g.large.put(r)
}

// triggerSpread triggers spread after a change of this node's record.
func (g *Gossip) triggerSpread() {
	select {
	case g.ownChanged <- struct{}{}:
	default:
	}
}

// spread sends this node's facts, no more often than timing.facts, and the
// large records.
func (g *Gossip) spread() {
	for {
		select {
		case <-g.ownChanged:
			_, own := g.members.ownEntry()
			g.queueRecord(own)
			if g.streamToAll.Swap(false) {
				g.streamRecords([]record{own}, streamAllPeers)
			}
		case <-g.large.ready:
		case <-g.ctx.Done():
			return
		}
		g.streamRecords(g.large.drain(), streamPeers)
		select {
		case <-time.After(g.timing.facts):
		case <-g.ctx.Done():
			return
		}
	}
}

// streamRecords sends records to up to most random living members.
func (g *Gossip) streamRecords(records []record, most int) {
	if len(records) == 0 {
		return
	}
	var peers []Member
	for _, m := range g.members.list() {
		if m.State == Alive && m.ID != g.id {
			peers = append(peers, m)
		}
	}
	rand.Shuffle(len(peers), func(i, j int) { peers[i], peers[j] = peers[j], peers[i] })
	msg := encodeRecords(records...)
	var wg sync.WaitGroup
	for _, m := range peers[:min(most, len(peers))] {
		host, text, _ := net.SplitHostPort(m.Addr)
		port, err := strconv.ParseUint(text, 10, 16)
		if err != nil {
			continue
		}
		wg.Go(func() {
			to := &memberlist.Node{Name: m.ID, Addr: net.ParseIP(host), Port: uint16(port)}
			if err := g.list.SendReliable(to, msg); err != nil {
				g.log.Debug("gossip: cannot stream facts", "to", m.Addr, "error", err)
			}
		})
	}
	wg.Wait()
}

// largeQueue holds records that wait to be streamed, the newest of each node.
type largeQueue struct {
	ready chan struct{} // capacity 1; filled when records wait

	mu      sync.Mutex
	records map[string]record
	size    int
}

func newLargeQueue() *largeQueue {
	return &largeQueue{ready: make(chan struct{}, 1), records: map[string]record{}}
}

func (l *largeQueue) put(r record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	size := l.size - len(l.records[r.ID].Facts) + len(r.Facts)
	if size > maxLarge {
		return // sent with the next push/pull instead
	}
	l.records[r.ID], l.size = r, size
	select {
	case l.ready <- struct{}{}:
	default:
	}
}

func (l *largeQueue) drain() (records []record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.records {
		records = append(records, r)
	}
	clear(l.records)
	l.size = 0
	return records
}
