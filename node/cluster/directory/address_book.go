package directory

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"penstock/node/cluster/datadir"
)

// Peer is another node with its addresses.
type Peer struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Cluster string `json:"cluster"` // host:port
	Gossip  string `json:"gossip"`  // host:port
}

// MaxPeers bounds the peers that are kept or taken from another node.
const MaxPeers = 256

// PeersFile is the file of the remembered peers.
const PeersFile = "peers.json"

// AddressBook holds what this node has learned about other nodes' addresses,
// apart from gossip and the records in the store: their announcements, the
// reports of third nodes, and the peers remembered from before the start.
type AddressBook struct {
	path string // of the file

	mu            sync.Mutex
	announced     map[string]Peer              // by ID: announced by the node itself; at most MaxPeers
	lastAnnounced map[string]announcementStamp // by ID, as announced
	reported      map[string]Peer              // by ID: reported by other nodes; at most MaxPeers
	remembered    map[string]Peer              // by ID: the content of the file
}

// openAddressBook reads the remembered peers. If the file cannot be read, it
// returns an empty book with the error: the file only speeds things up.
func openAddressBook(dir string) (*AddressBook, error) {
	b := &AddressBook{
		path:          filepath.Join(dir, PeersFile),
		announced:     map[string]Peer{},
		lastAnnounced: map[string]announcementStamp{},
		reported:      map[string]Peer{},
		remembered:    map[string]Peer{},
	}
	data, err := os.ReadFile(b.path)
	if errors.Is(err, os.ErrNotExist) {
		return b, nil
	}
	if err != nil {
		return b, err
	}
	var peers []Peer
	if err := json.Unmarshal(data, &peers); err != nil {
		return b, fmt.Errorf("%s: %w", b.path, err)
	}
	for _, p := range peers[:min(len(peers), MaxPeers)] {
		if p.Valid() {
			b.remembered[p.ID] = p
		}
	}
	return b, nil
}

// Valid reports whether the peer can be dialled and its fields are of bounded
// length.
func (p Peer) Valid() bool {
	return p.ID != "" && len(p.ID) <= 64 && len(p.Name) <= 253 && ValidAddress(p.Cluster) && (p.Gossip == "" || ValidAddress(p.Gossip))
}

// ValidAddress reports whether a is host:port with both and of bounded length.
func ValidAddress(a string) bool {
	host, port, err := net.SplitHostPort(a)
	return err == nil && host != "" && port != "" && port != "0" && len(a) <= 300
}

// announcementStamp is the time of a node's last announcement and the process
// that sent it.
type announcementStamp struct {
	instance string
	at       time.Time
}

// announcementPriority is how long a node's own announcement outranks gossip
// that has seen only its former process: gossip accepts a node at another
// address half a minute after it saw the node gone.
const announcementPriority = 40 * time.Second

// AddAnnounced records where a node announces itself, and reports whether that
// is new.
func (b *AddressBook) AddAnnounced(p Peer, instance string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	news := putPeer(b.announced, p)
	if _, known := b.announced[p.ID]; known {
		b.lastAnnounced[p.ID] = announcementStamp{instance, time.Now()}
	}
	return news
}

// announcedByOther reports whether a node has announced itself within
// announcementPriority from a process other than instance, the one that gossip
// knows.
func (b *AddressBook) announcedByOther(id, instance string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	w, ok := b.lastAnnounced[id]
	return ok && w.instance != instance && time.Since(w.at) < announcementPriority
}

// AddReported records where a third node reports a node to be, and reports
// whether that is new.
func (b *AddressBook) AddReported(p Peer) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return putPeer(b.reported, p)
}

func putPeer(in map[string]Peer, p Peer) bool {
	old, known := in[p.ID]
	if !p.Valid() || !known && len(in) >= MaxPeers {
		return false
	}
	in[p.ID] = p
	return old != p
}

// Remove deletes what a node announced and what others reported about it.
func (b *AddressBook) Remove(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.announced, id)
	delete(b.lastAnnounced, id)
	delete(b.reported, id)
}

// Lookup lists the known addresses of a node, the most reliable first.
func (b *AddressBook) Lookup(id string) (list []Peer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, from := range []map[string]Peer{b.announced, b.reported, b.remembered} {
		if p, ok := from[id]; ok {
			list = append(list, p)
		}
	}
	return list
}

// All lists the known peers by ID, each with its most reliable addresses.
func (b *AddressBook) All() []Peer {
	b.mu.Lock()
	defer b.mu.Unlock()
	both := maps.Clone(b.remembered)
	maps.Copy(both, b.reported)
	maps.Copy(both, b.announced)
	return slices.SortedFunc(maps.Values(both), func(x, y Peer) int { return cmp.Compare(x.ID, y.ID) })
}

// Remember writes the peers to the file, unless it holds them already.
func (b *AddressBook) Remember(peers []Peer) error {
	next := map[string]Peer{}
	for _, p := range peers {
		if p.Valid() && len(next) < MaxPeers {
			next[p.ID] = p
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if maps.Equal(next, b.remembered) {
		return nil
	}
	list := slices.SortedFunc(maps.Values(next), func(x, y Peer) int { return cmp.Compare(x.ID, y.ID) })
	data, err := json.MarshalIndent(list, "", "  ")
	if err != nil {
		return err
	}
	if err := datadir.WriteFile(b.path, append(data, '\n')); err != nil {
		return err
	}
	b.remembered = next
	return nil
}
