package acme

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"penstock/consensus/store"
	"penstock/routing/resource"
)

// kind is that of the store's entries. It is internal to the cluster: it has no
// history, and the catalog ignores it.
const kind = "_acme"

// The prefixes of the entries' names. The separator is not printable, so no name
// of a resource contains it.
const (
	statePrefix   = "certificate\x01"
	accountPrefix = "account\x01"
)

// format is that of the entries. Fields may be added without a new one.
const format = 1

// commitTimeout bounds the wait for one change.
const commitTimeout = 10 * time.Second

// State is what the cluster knows of one certificate.
type State struct {
	Format int `json:"format"`
	// Issued is what nodes serve; nil: nothing yet.
	Issued *Issued `json:"issued,omitempty"`
	// Order is the one in progress; nil: none.
	Order *Order `json:"order,omitempty"`
	// Tried is the digest of the settings of the last attempt (settingsDigest).
	Tried string `json:"tried,omitempty"`
	// Failures counts the failed attempts since the last success, or since the
	// settings have changed. Fault says why the last one failed, at Failed.
	Failures int       `json:"failures,omitempty"`
	Fault    string    `json:"fault,omitempty"`
	Failed   time.Time `json:"failed,omitzero"`
	// Next is when to try again after a failure, by the clock of the leader that
	// failed. Limited says that the authority asked for that.
	Next    time.Time `json:"next,omitzero"`
	Limited bool      `json:"limited,omitempty"`
}

// Issued is a certificate.
type Issued struct {
	Chain string `json:"chain"` // PEM, leaf first
	Key   string `json:"key"`   // PEM
	// For is the digest of what was asked for (contentDigest).
	For string    `json:"for"`
	At  time.Time `json:"at"`
}

// Order is an order in progress.
type Order struct {
	URL string `json:"url"`
	Key string `json:"key"` // PEM: of the certificate to come
	// For is the digest of the settings that it was made with (settingsDigest).
	For string    `json:"for"`
	At  time.Time `json:"at"`
	// Challenges are the answers that nodes give.
	Challenges []Challenge `json:"challenges,omitempty"`
}

// Challenge is the answer to one challenge.
type Challenge struct {
	Type string `json:"type"` // http-01 or tls-alpn-01
	Name string `json:"name"` // server name, in normal form
	// Token is the authority's, Answer the key authorization (RFC 8555, section 8.1).
	Token  string `json:"token"`
	Answer string `json:"answer"`
}

// account is the cluster's account with one authority.
type account struct {
	Format    int    `json:"format"`
	Directory string `json:"directory"`
	Email     string `json:"email,omitempty"`
	Key       []byte `json:"key"`           // PKCS #8
	URI       string `json:"uri,omitempty"` // "": not registered yet
}

func stateKey(name string) store.Key { return store.Key{Kind: kind, Name: statePrefix + name} }

// accountKey returns the key of the account of a certificate: certificates with
// the same directory, address and external account share one.
func accountKey(a *resource.ACME) store.Key {
	parts := []string{a.Directory, a.Email, ""}
	if a.ExternalAccount != nil {
		parts[2] = a.ExternalAccount.KID
	}
	return store.Key{Kind: kind, Name: accountPrefix + digest(parts)}
}

// digest returns the digest of a value that encodes as JSON.
func digest(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // cannot happen: texts and lists of them
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// get reads an entry of a snapshot, and its version; a missing one has version 0.
func get[T State | account](s Sealer, view store.Snapshot, key store.Key) (v *T, version uint64, err error) {
	e, ok := view.Get(key)
	if !ok {
		return nil, 0, nil
	}
	plain := e.Value
	if s != nil {
		if plain, err = s.Open(sealContext(key), e.Value); err != nil {
			return nil, e.Version, fmt.Errorf("cannot decrypt %s: %w", printable(key), err)
		}
	}
	var head struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(plain, &head); err != nil {
		return nil, e.Version, fmt.Errorf("cannot decode %s", printable(key)) // err may quote it
	}
	if head.Format != format {
		return nil, e.Version, fmt.Errorf("%s has format %d, this build supports %d", printable(key), head.Format, format)
	}
	v = new(T)
	if err := json.Unmarshal(plain, v); err != nil {
		return nil, e.Version, fmt.Errorf("cannot decode %s", printable(key))
	}
	return v, e.Version, nil
}

// put returns the operation that stores an entry, on condition that it still has a
// version.
func put[T State | account](s Sealer, key store.Key, v *T, version uint64) (store.Op, error) {
	value, err := json.Marshal(v)
	if err != nil {
		return store.Op{}, err
	}
	if s != nil {
		if value, err = s.Seal(sealContext(key), value); err != nil {
			return store.Op{}, fmt.Errorf("cannot encrypt %s: %w", printable(key), err)
		}
	}
	return store.Op{Key: key, Value: value, IfVersion: &version}, nil
}

// sealContext ties a sealed value to its entry.
func sealContext(k store.Key) []byte { return []byte(k.Kind + "\x00" + k.Name) }

func printable(k store.Key) string { return k.Kind + "/" + strings.ReplaceAll(k.Name, "\x01", "/") }

// commit stores operations and returns the index.
func (m *Manager) commit(ctx context.Context, what string, ops ...store.Op) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	b := &store.Batch{Ops: ops, Note: store.Note{Who: "acme", What: what, At: time.Now().UTC()}}
	_, _ = rand.Read(b.ID[:]) // never fails
	pending, err := m.cfg.Store.Propose(ctx, b)
	if err != nil {
		return 0, err
	}
	result, err := pending.Wait(ctx)
	return result.Index, err
}
