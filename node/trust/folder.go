package trust

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"penstock/node/files"
)

// The files of a node in its data folder. Each is written to a temporary file
// and renamed, so that it is complete at any time. The order of the writes
// (planWrites) ensures that a node killed between any two of them starts in
// either its old or its new state:
//
//   - node.json says whether the node is in a cluster, and is written last. Before
//     that, the other files are ignored.
//   - node.key and ca.crt hold old and new together while node.crt changes. The
//     key that matches the certificate is the valid one.
const (
	nodeFile = "node.json"
	certFile = "node.crt"
	keyFile  = "node.key"
	caFile   = "ca.crt"
	ringFile = "cluster.key"
)

// The errors of data folders. They name the file and say what to do.
var (
	// ErrFolder: a file is missing, unreadable, or inconsistent with others.
	ErrFolder = errors.New("the data folder cannot be used")
	// ErrForeignFolder: the folder belongs to another node or cluster.
	ErrForeignFolder = errors.New("the data folder belongs to another node or cluster")
	// ErrFormat: another build wrote the folder.
	ErrFormat = errors.New("unknown format")
)

var errMissing = errors.New("the file is missing")

// folderFormat is the format of node.json, and thus of the folder.
const folderFormat = 1

// maxFile bounds each of the files, in bytes.
const maxFile = 64 << 10

// nodeInfo is the content of node.json.
type nodeInfo struct {
	Format    int    `json:"format"`
	NodeID    string `json:"nodeId"` // "": the node has left; the folder is like new
	ClusterID string `json:"clusterId,omitempty"`
	Name      string `json:"name,omitempty"`
	Starts    uint64 `json:"starts,omitempty"`
}

// HasIdentity reports whether a folder belongs to a node, even if its files are
// unreadable.
func HasIdentity(dir string) bool {
	if dir == "" {
		return false
	}
	a, err := readNodeInfo(dir)
	return err == nil && a.NodeID != "" || err != nil && !errors.Is(err, os.ErrNotExist)
}

func (a nodeInfo) marshal() []byte {
	b, err := json.MarshalIndent(a, "", "  ")
	if err != nil {
		panic(err) // strings and numbers always marshal
	}
	return append(b, '\n')
}

func (id *Identity) nodeInfo() nodeInfo {
	return nodeInfo{folderFormat, id.NodeID, id.ClusterID, id.Name, id.Starts}
}

// LoadIdentity reads the identity in a data folder. If there is none, the error
// is os.ErrNotExist.
func LoadIdentity(dir string) (*Identity, error) {
	id, err := loadIdentity(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	return id, err
}

func loadIdentity(dir string) (*Identity, error) {
	a, err := readNodeInfo(dir)
	if err != nil {
		return nil, err
	}
	id := &Identity{NodeID: a.NodeID, ClusterID: a.ClusterID, Name: a.Name, Starts: a.Starts, Instance: randomHex(8)}
	var raw [4][]byte
	names := []string{keyFile, certFile, caFile, ringFile}
	if a.ClusterID == "" {
		names = names[:1]
	}
	for i, name := range names {
		var note string
		if raw[i], note, err = readPrivate(dir, name); err != nil {
			return nil, damaged(name, err)
		}
		if note != "" {
			id.Notes = append(id.Notes, note)
		}
	}
	_, keys, err := parsePEM(raw[0])
	if err != nil || len(keys) == 0 {
		return nil, damaged(keyFile, errors.Join(err, atLeastOne(len(keys))))
	}
	id.key = keys[0]
	if a.ClusterID == "" {
		return id, nil
	}
	return id, id.parseClusterFiles(keys, raw[1], raw[2], raw[3])
}

// parseClusterFiles parses the files of a node that is in a cluster.
func (id *Identity) parseClusterFiles(keys []*ecdsa.PrivateKey, crt, ca, ring []byte) error {
	leaves, _, err := parsePEM(crt)
	if err != nil || len(leaves) == 0 {
		return damaged(certFile, errors.Join(err, atLeastOne(len(leaves))))
	}
	id.leaf = leaves[0]
	if id.cas, _, err = parsePEM(ca); err != nil {
		return damaged(caFile, err)
	}
	if id.ring, err = ParseKeyring(ring); err != nil {
		return damaged(ringFile, err)
	}
	if _, _, err := checkBundle(id.cas); err != nil {
		return damaged(caFile, err)
	}
	for _, key := range keys {
		if key.PublicKey.Equal(id.leaf.PublicKey) {
			id.key = key
		}
	}
	if !id.key.PublicKey.Equal(id.leaf.PublicKey) {
		return damaged(keyFile, fmt.Errorf("%w: it does not belong to %s", ErrCertificate, certFile))
	}
	if err := id.validate(); err != nil {
		return damaged(certFile, err)
	}
	return nil
}

func atLeastOne(n int) error {
	if n > 0 {
		return nil
	}
	return fmt.Errorf("%w: it is empty", ErrCertificate)
}

// damaged returns an error that names the unusable file and the remedy.
func damaged(name string, err error) error {
	if errors.Is(err, os.ErrNotExist) {
		// os.ErrNotExist is not wrapped: a folder that lacks a file must not be
		// mistaken for a new one, in which the node would get another ID.
		err = errMissing
	}
	return fmt.Errorf("%w: %s: %w: restore the file from a backup of this node, "+
		"or empty the folder and join again", ErrFolder, name, err)
}

// readNodeInfo reads node.json. The error is os.ErrNotExist if the folder is
// new.
func readNodeInfo(dir string) (nodeInfo, error) {
	b, _, err := readPrivate(dir, nodeFile)
	if errors.Is(err, os.ErrNotExist) {
		// A certificate is never written before node.json.
		if _, err := os.Lstat(filepath.Join(dir, certFile)); err == nil {
			return nodeInfo{}, damaged(nodeFile, fmt.Errorf("it is missing although %s exists", certFile))
		}
		return nodeInfo{}, fmt.Errorf("no node in %s: %w", dir, os.ErrNotExist)
	}
	if err != nil {
		return nodeInfo{}, damaged(nodeFile, err)
	}
	var a nodeInfo
	if err := json.Unmarshal(b, &a); err != nil {
		return nodeInfo{}, damaged(nodeFile, err)
	}
	switch {
	case a.Format != folderFormat:
		return nodeInfo{}, fmt.Errorf("%w: %s has format %d, this build supports %d: use the version that wrote it",
			ErrFormat, nodeFile, a.Format, folderFormat)
	case a.NodeID == "":
		return nodeInfo{}, fmt.Errorf("the node in %s has left its cluster: %w", dir, os.ErrNotExist)
	}
	err = errors.Join(checkID("node", a.NodeID), checkName(a.Name))
	if a.ClusterID != "" {
		err = errors.Join(err, checkID("cluster", a.ClusterID))
	}
	if err != nil {
		return nodeInfo{}, damaged(nodeFile, err)
	}
	return a, nil
}

// readPrivate reads one of the files. If others have access to it, readPrivate
// removes that access and reports it in note.
func readPrivate(dir, name string) (b []byte, note string, err error) {
	f, err := files.Open(filepath.Join(dir, name))
	if err != nil {
		return nil, "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, "", err
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		if err := f.Chmod(0o600); err != nil {
			return nil, "", fmt.Errorf("other users have access to it (mode %04o): %w", mode, err)
		}
		note = fmt.Sprintf("other users had access to %s (mode %04o); it is 0600 now", name, mode)
	}
	b, err = io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(b) > maxFile {
		err = fmt.Errorf("more than %d bytes", maxFile)
	}
	return b, note, err
}

// Save writes the identity to its data folder, and returns once it is synced to
// disk. The folder must be new, or this node's own.
func (id *Identity) Save(dir string) error {
	writes, err := id.planWrites(dir)
	if err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for _, w := range writes {
		if err := w.apply(dir); err != nil {
			return fmt.Errorf("%s: %w", filepath.Join(dir, w.name), err)
		}
	}
	return nil
}

// Start increments and saves the number of starts.
func (id *Identity) Start(dir string) (*Identity, error) {
	next := *id
	next.Starts++
	return &next, next.Save(dir)
}

// removalOrder has node.json last: while it exists, it says that the others do
// not count.
var removalOrder = []string{certFile, keyFile, caFile, ringFile, nodeFile}

// Forget clears the data folder of a node that has left its cluster, so that
// the node returns under a new ID. It also removes what an interrupted Save
// left.
func Forget(dir string) error {
	if !slices.ContainsFunc(removalOrder, func(name string) bool { return containsAny(dir, name, name+tempSuffix) }) {
		return nil
	}
	cleared := fileWrite{nodeFile, nodeInfo{Format: folderFormat}.marshal()}
	if err := cleared.apply(dir); err != nil {
		return err
	}
	for _, name := range removalOrder {
		for _, path := range []string{name + tempSuffix, name} {
			if err := os.Remove(filepath.Join(dir, path)); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
		if err := syncFolder(dir); err != nil {
			return err
		}
	}
	return nil
}

// containsAny reports whether a folder has one of the files, or cannot be read.
func containsAny(dir string, names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		_, err := os.Lstat(filepath.Join(dir, name))
		return !errors.Is(err, os.ErrNotExist)
	})
}

// tempSuffix ends the name of a file while it is written.
const tempSuffix = ".tmp"

// fileWrite is one file to write. Its name is not secret.
type fileWrite struct {
	name string
	data []byte
}

// planWrites returns the files to write, in order, given the content of the
// folder.
func (id *Identity) planWrites(dir string) ([]fileWrite, error) {
	old, err := loadIdentity(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		old = nil
	case err != nil:
		return nil, err
	case old.NodeID != id.NodeID || old.Joined() && old.ClusterID != id.ClusterID:
		return nil, fmt.Errorf("%w: %s, not %s", ErrForeignFolder, old, id)
	}
	key, err := marshalKey(id.key)
	if err != nil {
		return nil, err
	}
	if old == nil || !old.Joined() {
		return id.planFirstWrites(old, key), nil
	}
	var writes []fileWrite
	if !id.key.Equal(old.key) {
		oldKey, err := marshalKey(old.key)
		if err != nil {
			return nil, err
		}
		writes = append(writes, fileWrite{keyFile, append(bytes.Clone(key), oldKey...)})
	}
	if !bytes.Equal(id.leaf.Raw, old.leaf.Raw) {
		both := append([]*x509.Certificate{}, id.cas...)
		for _, ca := range old.cas {
			both = appendUnique(both, ca)
		}
		writes = append(writes,
			fileWrite{caFile, marshalCerts(both)},
			fileWrite{certFile, marshalCerts([]*x509.Certificate{id.leaf})})
	}
	writes = append(writes,
		fileWrite{keyFile, key},
		fileWrite{caFile, marshalCerts(id.cas)},
		fileWrite{ringFile, id.ring.Marshal()},
		fileWrite{nodeFile, id.nodeInfo().marshal()})
	return writes, nil
}

// planFirstWrites is planWrites for a new folder, or for a node in no cluster.
func (id *Identity) planFirstWrites(old *Identity, key []byte) []fileWrite {
	var writes []fileWrite
	unjoined := id.nodeInfo()
	unjoined.ClusterID = ""
	if old == nil {
		// An ID without its key would be useless; a key without an ID is replaced.
		writes = append(writes, fileWrite{keyFile, key}, fileWrite{nodeFile, unjoined.marshal()})
	} else {
		writes = append(writes, fileWrite{keyFile, key})
	}
	if id.Joined() {
		writes = append(writes,
			fileWrite{caFile, marshalCerts(id.cas)},
			fileWrite{ringFile, id.ring.Marshal()},
			fileWrite{certFile, marshalCerts([]*x509.Certificate{id.leaf})})
	}
	return append(writes, fileWrite{nodeFile, id.nodeInfo().marshal()})
}

func appendUnique(certs []*x509.Certificate, cert *x509.Certificate) []*x509.Certificate {
	for _, c := range certs {
		if c.Equal(cert) {
			return certs
		}
	}
	return append(certs, cert)
}

// apply writes and renames the file, unless it has the right content already.
func (w fileWrite) apply(dir string) error {
	path := filepath.Join(dir, w.name)
	if old, _, err := readPrivate(dir, w.name); err == nil && bytes.Equal(old, w.data) {
		return nil
	}
	// The folder's lock admits one process at a time, so an existing temporary
	// file is from a process that was killed.
	temp := path + tempSuffix
	if err := os.Remove(temp); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(w.data)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(temp, path)
	}
	if err != nil {
		_ = os.Remove(temp) // frees space on a full disk
		return err
	}
	return syncFolder(dir)
}

func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
