package catalog

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"

	"penstock/consensus/store"
	"penstock/node/api"
	"penstock/routing/resource"
	"penstock/routing/resource/codec"
	"penstock/routing/resource/validate"
)

// Get lists the resources of a kind that have the labels, or one resource by
// name, as they are in force here, with secrets hidden.
func (c *Catalog) Get(r *api.GetRequest) (*api.GetResult, error) {
	key, err := c.key(r.Kind, r.Name)
	if err != nil {
		return nil, err
	}
	if faults := validate.Labels(r.Labels); len(faults) > 0 {
		return nil, api.Errorf(api.Invalid, "%s", faults[0])
	}
	s := c.snapshot()
	result := &api.GetResult{Index: s.view.Index(), Kind: key.Kind, Documents: []api.Document{}}
	status := c.statusOf(&s, key.Kind)
	if key.Name != "" {
		o, ok := s.set.Get(key)
		if !ok || !o.HasLabels(r.Labels) {
			return nil, notFound(key)
		}
		result.Documents = append(result.Documents, status(o))
		return result, nil
	}
	for _, o := range s.set.WithLabels(key.Kind, r.Labels) {
		result.Documents = append(result.Documents, status(o))
	}
	return result, nil
}

// snapshot is the state in force at one moment.
type snapshot struct {
	set    *validate.Set
	view   store.Snapshot
	unread map[store.Key]unreadEntry
}

func (c *Catalog) snapshot() snapshot {
	c.mu.Lock()
	defer c.mu.Unlock()
	return snapshot{c.set, c.view, c.unread}
}

// document encodes an object. An object in force in an older version than the
// stored one has no version, so that no writer overwrites content that it has
// not read.
func (s *snapshot) document(o resource.Object) api.Document {
	k := store.Key(o.Key)
	if e, ok := s.view.Get(k); ok {
		if _, old := s.unread[k]; !old {
			o.Version = e.Version
		}
	}
	return api.Document{Kind: o.Kind, Name: o.Name, Data: codec.EncodeJSON(o)}
}

// statusOf returns document, which for kinds with a status adds that status.
func (c *Catalog) statusOf(s *snapshot, kind string) func(resource.Object) api.Document {
	if c.cfg.Status == nil || !slices.ContainsFunc(c.cfg.Kinds, func(k resource.Kind) bool { return k.Name == kind && k.Status }) {
		return s.document
	}
	status := c.cfg.Status(s.set)
	return func(o resource.Object) api.Document {
		d := s.document(o)
		e, _ := s.view.Get(store.Key(o.Key))
		o.Version = e.Version
		text := status(&o, e.At)
		whole, isObject := bytes.CutSuffix(bytes.TrimSpace(d.Data), []byte("}"))
		if text == nil || !isObject {
			return d
		}
		var out bytes.Buffer
		out.Write(bytes.TrimRight(whole, " \n"))
		out.WriteString(",\n  \"status\": ")
		// Indent fails only on invalid JSON, which the status is not.
		_ = json.Indent(&out, text, "  ", "  ")
		out.WriteString("\n}\n")
		d.Data = out.Bytes()
		return d
	}
}

// History lists the revisions of a resource, newest first, with secrets hidden.
func (c *Catalog) History(kind, name string) (*api.HistoryResult, error) {
	key, err := c.key(kind, name)
	if err != nil {
		return nil, err
	}
	_, view := c.InForce()
	result := &api.HistoryResult{Kind: key.Kind, Name: key.Name}
	for _, r := range view.History(store.Key(key)) {
		one := api.Revision{Version: r.Version, At: r.At, Who: r.Who, What: r.What, Deleted: r.Value == nil}
		if r.Value != nil {
			o, err := c.decodeEntry(store.Entry{Key: store.Key(key), Value: r.Value})
			if err != nil {
				one.YAML = "# unreadable on this node\n" // err may quote it
			} else {
				one.YAML = string(codec.EncodeYAML(o))
			}
		}
		result.Revisions = append(result.Revisions, one)
	}
	if len(result.Revisions) == 0 {
		return nil, api.Errorf(api.NotFound, "there is no %s %q, and no history of it", key.Kind, key.Name)
	}
	return result, nil
}

// Watch sends the resources of a kind, or one of them, as they are in force
// here, and then their changes, until ctx ends or send fails. Changes made
// while send runs are merged into one item: a slow watcher costs no memory, and
// skips intermediate states. Secrets are hidden. A resource that does not exist
// can be watched.
func (c *Catalog) Watch(ctx context.Context, kind, name string, send func(*api.WatchItem) error) error {
	key, err := c.key(kind, name)
	if err != nil {
		return err
	}
	last := c.snapshot()
	first := &api.WatchItem{Index: last.view.Index()}
	for _, o := range last.matching(key) {
		first.Put = append(first.Put, last.document(o))
	}
	if err := send(first); err != nil {
		return err
	}
	for {
		if err := c.until(ctx, func() bool { return c.set != last.set }); err != nil {
			return err
		}
		next := c.snapshot()
		if item := differences(&last, &next, key); item != nil {
			if err := send(item); err != nil {
				return err
			}
		}
		last = next
	}
}

// matching returns the objects of a kind, or one of them.
func (s *snapshot) matching(key resource.Key) []resource.Object {
	if key.Name == "" {
		return s.set.WithLabels(key.Kind, nil)
	}
	if o, ok := s.set.Get(key); ok {
		return []resource.Object{o}
	}
	return nil
}

// differences returns the item for a watcher of a key; nil: nothing changed.
func differences(last, next *snapshot, key resource.Key) *api.WatchItem {
	keys := changedKeys(last.view, next.view)
	for k := range last.unread { // may have been decrypted since
		keys = append(keys, k)
	}
	item := &api.WatchItem{Index: next.view.Index()}
	seen := map[store.Key]bool{}
	for _, k := range keys {
		if k.Kind != key.Kind || key.Name != "" && k.Name != key.Name || seen[k] {
			continue
		}
		seen[k] = true
		before, had := last.set.Get(resource.Key(k))
		o, has := next.set.Get(resource.Key(k))
		switch {
		case has && (!had || before.Spec != o.Spec):
			item.Put = append(item.Put, next.document(o))
		case had && !has:
			item.Deleted = append(item.Deleted, api.Document{Kind: k.Kind, Name: k.Name})
		}
	}
	if len(item.Put)+len(item.Deleted) == 0 {
		return nil
	}
	return item
}
