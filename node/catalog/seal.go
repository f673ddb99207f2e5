package catalog

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"penstock/consensus"
	"penstock/node/admin"
)

// Sealer keeps secrets from whoever reads logs, snapshots and traffic. What is
// sealed for one aad does not open for another.
type Sealer interface {
	Seal(aad, plain []byte) ([]byte, error)
	Open(aad, sealed []byte) ([]byte, error)
}

// A sealed value begins with sealedFormat; the JSON of one that is not begins
// with "{". A kind that holds secrets may have both: it may have got its first
// secret field with a later version.
const sealedFormat = 1

// errSealed: a value cannot be opened with the keys that this node has. That
// does not stop the node, since the value may be fine and the keys on their
// way: what the resource was before goes on, its fault is shown by Unreadable,
// and it is tried again. Where it was nothing before, it is not there: what
// refers to it does without. Changes may overwrite or delete it.
//
// What opens and cannot be understood is another matter: it is of a later
// version, and the node stops rather than act on a part of what was agreed.
var errSealed = errors.New("cannot be opened")

// unread is an entry that could not be opened.
type unread struct {
	version uint64
	why     string
}

// seal gives what is stored for a resource's content.
func (c *Catalog) seal(k consensus.Key, plain []byte) ([]byte, error) {
	if !c.sealing[k.Kind] {
		return plain, nil
	}
	sealed, err := c.cfg.Sealer.Seal(aad(k), plain)
	if err != nil {
		return nil, fmt.Errorf("%s/%s cannot be sealed: %w", k.Kind, k.Name, err)
	}
	return append([]byte{sealedFormat}, sealed...), nil
}

// open gives the content of what is stored.
func (c *Catalog) open(k consensus.Key, value []byte) ([]byte, error) {
	if c.cfg.Sealer == nil {
		return openWith(nil, k, value)
	}
	return openWith(c.cfg.Sealer.Open, k, value)
}

// openWith is open with another sealer's Open; nil: none.
func openWith(open func(aad, sealed []byte) ([]byte, error), k consensus.Key, value []byte) ([]byte, error) {
	if len(value) == 0 || value[0] != sealedFormat {
		return value, nil
	}
	if open == nil {
		return nil, fmt.Errorf("%w: it is sealed, and this node has no keys", errSealed)
	}
	plain, err := open(aad(k), value[1:])
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errSealed, err)
	}
	return plain, nil
}

// aad binds a sealed value to its resource: put in the place of another it
// does not open. Neither kinds nor names have a "/".
func aad(k consensus.Key) []byte { return []byte(k.Kind + "/" + k.Name) }

// Unreadable lists the resources that could not be opened, by kind and name;
// they act as they were before, or not at all.
func (c *Catalog) Unreadable() []admin.Fault {
	c.mu.Lock()
	unread := c.unread
	c.mu.Unlock()
	faults := make([]admin.Fault, 0, len(unread))
	for k, u := range unread {
		faults = append(faults, admin.Fault{Key: k.Kind + "/" + k.Name, Message: fmt.Sprintf("version %d %s", u.version, u.why)})
	}
	slices.SortFunc(faults, func(a, b admin.Fault) int { return cmp.Compare(a.Key, b.Key) })
	return faults
}
