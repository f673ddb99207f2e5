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
	// maxPacketRecord is how large a record may be to go into a packet beside
	// memberlist's own news.
	maxPacketRecord = 1100
	// streamPeers is to how many others a node streams what does not fit.
	streamPeers = 3
	// everyonePeers is to how many at most a node streams what all are to hear.
	everyonePeers = 64
	// factsMult makes each node pass a record on factsMult*log10(members)
	// times, less often than memberlist's own news: what gets lost comes with
	// the next push/pull.
	factsMult = 2
	// maxLarge bounds what waits to be streamed, in bytes.
	maxLarge = 256 << 10
)

// broadcast is a record on its way in packets. A newer one of the same node takes its place.
type broadcast struct {
	id  string
	msg []byte
}

var _ memberlist.NamedBroadcast = broadcast{}

func (n broadcast) Name() string    { return n.id }
func (n broadcast) Message() []byte { return n.msg }
func (n broadcast) Finished()       {}

// Invalidates is not asked of broadcasts that have names.
func (n broadcast) Invalidates(other memberlist.Broadcast) bool {
	o, ok := other.(broadcast)
	return ok && o.id == n.id
}

// pass passes a record on.
func (g *Gossip) pass(r record) {
	if msg := encodeRecords(r); len(msg) <= maxPacketRecord {
		g.queue.QueueBroadcast(broadcast{r.ID, msg})
		return
	}
	g.large.put(r)
}

// changedOwn says that this node has something new to say.
func (g *Gossip) changedOwn() {
	select {
	case g.dirty <- struct{}{}:
	default:
	}
}

// spread spreads this node's facts, not more often than timing says, and what
// does not fit into packets.
func (g *Gossip) spread() {
	for {
		select {
		case <-g.dirty:
			_, said := g.members.own()
			g.pass(said)
			if g.everyone.Swap(false) {
				g.stream([]record{said}, everyonePeers)
			}
		case <-g.large.some:
		case <-g.ctx.Done():
			return
		}
		g.stream(g.large.take(), streamPeers)
		select {
		case <-time.After(g.timing.facts):
		case <-g.ctx.Done():
			return
		}
	}
}

// stream sends records to others, as many as that at most.
func (g *Gossip) stream(records []record, most int) {
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
				g.log.Debug("gossip: facts cannot be streamed", "to", m.Addr, "error", err)
			}
		})
	}
	wg.Wait()
}

// large holds records that wait to be streamed, the newest of each node.
type large struct {
	some chan struct{} // holds one while there are any

	mu      sync.Mutex
	records map[string]record
	size    int
}

func newLarge() *large {
	return &large{some: make(chan struct{}, 1), records: map[string]record{}}
}

func (l *large) put(r record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	size := l.size - len(l.records[r.ID].Facts) + len(r.Facts)
	if size > maxLarge {
		return // it comes with the next push/pull
	}
	l.records[r.ID], l.size = r, size
	select {
	case l.some <- struct{}{}:
	default:
	}
}

func (l *large) take() (records []record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.records {
		records = append(records, r)
	}
	clear(l.records)
	l.size = 0
	return records
}
