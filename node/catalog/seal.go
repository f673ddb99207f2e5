package catalog

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"penstock/consensus/store"
	"penstock/node/api"
)

// Sealer encrypts secrets in logs, snapshots and traffic. A value sealed with
// one aad does not open with another.
type Sealer interface {
	Seal(aad, plain []byte) ([]byte, error)
	Open(aad, sealed []byte) ([]byte, error)
}

// A sealed value begins with sealedFormat, an unsealed one, which is JSON, with
// "{". A kind that holds secrets may have both, since a later build may have
// added its first secret field.
const sealedFormat = 1

// errSealed: this node has no key that decrypts a value. That does not stop the
// node, since the value may be fine and the key still to come: the resource
// stays in force in its previous version, Unreadable reports it, and the node
// tries again. Without a previous version the resource does not exist, and
// those that refer to it go without. Changes may overwrite or delete it.
//
// A value that decrypts but cannot be decoded is different: a later build wrote
// it, and the node stops rather than apply a part of the agreed content.
var errSealed = errors.New("cannot be decrypted")

// unreadEntry is an entry that could not be decrypted.
type unreadEntry struct {
	version uint64
	why     string
}

// seal returns the stored value of a resource's content.
func (c *Catalog) seal(k store.Key, plain []byte) ([]byte, error) {
	if !c.sealing[k.Kind] {
		return plain, nil
	}
	sealed, err := c.cfg.Sealer.Seal(aad(k), plain)
	if err != nil {
		return nil, fmt.Errorf("cannot encrypt %s/%s: %w", k.Kind, k.Name, err)
	}
	return append([]byte{sealedFormat}, sealed...), nil
}

// open returns the content of a stored value.
func (c *Catalog) open(k store.Key, value []byte) ([]byte, error) {
	if c.cfg.Sealer == nil {
		return openWith(nil, k, value)
	}
	return openWith(c.cfg.Sealer.Open, k, value)
}

// openWith is open with another function to decrypt; nil: none.
func openWith(open func(aad, sealed []byte) ([]byte, error), k store.Key, value []byte) ([]byte, error) {
	if len(value) == 0 || value[0] != sealedFormat {
		return value, nil
	}
	if open == nil {
		return nil, fmt.Errorf("%w: it is sealed and this node has no keys", errSealed)
	}
	plain, err := open(aad(k), value[1:])
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errSealed, err)
	}
	return plain, nil
}

// aad binds a sealed value to its resource, so that it does not open in
// another's place. Neither kinds nor names contain "/".
func aad(k store.Key) []byte { return []byte(k.Kind + "/" + k.Name) }

// Unreadable lists the resources that could not be decrypted, by kind and name.
// They are in force in their previous version, or not at all.
func (c *Catalog) Unreadable() []api.Fault {
	c.mu.Lock()
	unread := c.unread
	c.mu.Unlock()
	faults := make([]api.Fault, 0, len(unread))
	for k, u := range unread {
		faults = append(faults, api.Fault{Key: k.Kind + "/" + k.Name, Message: fmt.Sprintf("version %d %s", u.version, u.why)})
	}
	slices.SortFunc(faults, func(a, b api.Fault) int { return cmp.Compare(a.Key, b.Key) })
	return faults
}
