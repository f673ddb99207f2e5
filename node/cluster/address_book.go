package cluster

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
)

// Peer is another node with its addresses.
type Peer struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Cluster string `json:"cluster"` // host:port
	Gossip  string `json:"gossip"`  // host:port
}

// maxPeers bounds the peers that are kept or taken from another node.
const maxPeers = 256

// peersFile is the file of the remembered peers.
const peersFile = "peers.json"

// addressBook holds what this node has learned about other nodes' addresses,
// apart from gossip and the records in the store: their announcements, the
// reports of third nodes, and the peers remembered from before the start.
type addressBook struct {
	path string // of the file

	mu            sync.Mutex
	announced     map[string]Peer              // by ID: announced by the node itself; at most maxPeers
	lastAnnounced map[string]announcementStamp // by ID, as announced
	reported      map[string]Peer              // by ID: reported by other nodes; at most maxPeers
	remembered    map[string]Peer              // by ID: the content of the file
}

// openAddressBook reads the remembered peers. If the file cannot be read, it
// returns an empty book with the error: the file only speeds things up.
func openAddressBook(dir string) (*addressBook, error) {
	b := &addressBook{
		path:          filepath.Join(dir, peersFile),
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
	for _, p := range peers[:min(len(peers), maxPeers)] {
		if p.valid() {
			b.remembered[p.ID] = p
		}
	}
	return b, nil
}

// valid reports whether the peer can be dialled and its fields are of bounded
// length.
func (p Peer) valid() bool {
	return p.ID != "" && len(p.ID) <= 64 && len(p.Name) <= 253 && validAddress(p.Cluster) && (p.Gossip == "" || validAddress(p.Gossip))
}

// validAddress reports whether a is host:port with both and of bounded length.
func validAddress(a string) bool {
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

// addAnnounced records where a node announces itself, and reports whether that
// is new.
func (b *addressBook) addAnnounced(p Peer, instance string) bool {
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
func (b *addressBook) announcedByOther(id, instance string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	w, ok := b.lastAnnounced[id]
	return ok && w.instance != instance && time.Since(w.at) < announcementPriority
}

// addReported records where a third node reports a node to be, and reports
// whether that is new.
func (b *addressBook) addReported(p Peer) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return putPeer(b.reported, p)
}

func putPeer(in map[string]Peer, p Peer) bool {
	old, known := in[p.ID]
	if !p.valid() || !known && len(in) >= maxPeers {
		return false
	}
	in[p.ID] = p
	return old != p
}

// remove deletes what a node announced and what others reported about it.
func (b *addressBook) remove(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.announced, id)
	delete(b.lastAnnounced, id)
	delete(b.reported, id)
}

// lookup lists the known addresses of a node, the most reliable first.
func (b *addressBook) lookup(id string) (list []Peer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, from := range []map[string]Peer{b.announced, b.reported, b.remembered} {
		if p, ok := from[id]; ok {
			list = append(list, p)
		}
	}
	return list
}

// all lists the known peers by ID, each with its most reliable addresses.
func (b *addressBook) all() []Peer {
	b.mu.Lock()
	defer b.mu.Unlock()
	both := maps.Clone(b.remembered)
	maps.Copy(both, b.reported)
	maps.Copy(both, b.announced)
	return slices.SortedFunc(maps.Values(both), func(x, y Peer) int { return cmp.Compare(x.ID, y.ID) })
}

// remember writes the peers to the file, unless it holds them already.
func (b *addressBook) remember(peers []Peer) error {
	next := map[string]Peer{}
	for _, p := range peers {
		if p.valid() && len(next) < maxPeers {
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
	if err := writeFile(b.path, append(data, '\n')); err != nil {
		return err
	}
	b.remembered = next
	return nil
}

// writeFile replaces a file atomically and durably. Only its owner can read it.
func writeFile(path string, data []byte) error {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+"-*") // 0600
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return syncDir(dir)
}

// removeFile removes a file durably. A missing file is no error.
func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
