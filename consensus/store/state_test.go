package store

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// model is a naive implementation of the store.
type model struct {
	limits   Limits
	index    uint64
	sequence uint64
	now      map[Key]Revision
	past     []modelRevision // of all keys, in order of replacement
	ids      []remembered
	touched  map[uint64][]Key // by index of the batch
}

type modelRevision struct {
	key   Key
	until uint64
	Revision
}

// apply applies the batch, or returns why it is refused.
func (m *model) apply(index uint64, b *Batch) (Result, error) {
	m.index = index
	for _, r := range m.ids[max(0, len(m.ids)-maxSeen):] {
		if r.id == b.ID {
			return Result{Index: r.index, Repeated: true}, nil
		}
	}
	sequence := m.sequence
	if b.IfSequence != nil {
		if *b.IfSequence != m.sequence {
			return Result{}, ErrStale
		}
		if sequence++; b.Sequence != 0 {
			sequence = b.Sequence
		}
	}
	next := maps.Clone(m.now)
	var touched []Key
	for _, op := range b.Ops {
		if op.IfVersion != nil && *op.IfVersion != next[op.Key].Version {
			return Result{}, ErrVersion
		}
		touched = append(touched, op.Key)
		if delete(next, op.Key); op.Value != nil {
			next[op.Key] = Revision{index, op.Value, b.Note}
		}
	}
	if users, internal := sizes(next); users > m.limits.Total || internal > m.limits.Internal {
		return Result{}, ErrTooLarge
	}
	m.replace(index, next, b.Note)
	m.now, m.sequence, m.touched[index] = next, sequence, touched
	if b.ID != (ID{}) {
		m.ids = append(m.ids, remembered{b.ID, index})
	}
	return Result{Index: index}, nil
}

// replace records the replaced revisions and evicts those beyond the limits.
func (m *model) replace(index uint64, next map[Key]Revision, note Note) {
	keys := slices.SortedFunc(maps.Keys(m.now), func(a, b Key) int { return bytes.Compare(a.path(), b.path()) })
	for _, k := range keys {
		if n, ok := next[k]; !strings.HasPrefix(k.Kind, "_") && (!ok || n.Version == index) {
			m.past = append(m.past, modelRevision{k, index, m.now[k]})
			if !ok {
				m.past = append(m.past, modelRevision{k, index, Revision{Version: index, Note: note}})
			}
		}
	}
	count, total := map[Key]int{}, 0
	for k := range next {
		count[k] = 1
	}
	for i := len(m.past) - 1; i >= 0; i-- {
		if r := m.past[i]; count[r.key] == m.limits.Revisions {
			m.past = slices.Delete(m.past, i, i+1)
		} else {
			count[r.key]++
			total += r.size()
		}
	}
	for changed := len(m.past) > 0 && m.past[len(m.past)-1].until == index; changed && total > m.limits.Past; {
		first := m.past[0]
		m.past = slices.DeleteFunc(m.past, func(r modelRevision) bool {
			drop := r.key == first.key && r.until == first.until
			if drop {
				total -= r.size()
			}
			return drop
		})
	}
}

func (r modelRevision) size() int {
	return revisionOverhead + len(r.key.Kind) + 1 + len(r.key.Name) + len(r.Value) + len(r.Who) + len(r.What)
}

func sizes(entries map[Key]Revision) (users, internal int) {
	for k, r := range entries {
		if n := len(k.Kind) + len(k.Name) + len(r.Value); strings.HasPrefix(k.Kind, "_") {
			internal += n
		} else {
			users += n
		}
	}
	return users, internal
}

func (m *model) history(k Key) (h []Revision) {
	if r, ok := m.now[k]; ok {
		h = append(h, r)
	}
	for i := len(m.past) - 1; i >= 0; i-- {
		if m.past[i].key == k {
			h = append(h, m.past[i].Revision)
		}
	}
	return h
}

// matches compares the snapshot with the model.
func (m *model) matches(v Snapshot) error {
	users, internal := sizes(m.now)
	if v.Index() != m.index || v.Sequence() != m.sequence || v.Len() != len(m.now) || v.Bytes() != users || v.internal != internal {
		return fmt.Errorf("index %d, sequence %d, %d entries, %d+%d bytes; want %d, %d, %d, %d+%d",
			v.Index(), v.Sequence(), v.Len(), v.Bytes(), v.internal, m.index, m.sequence, len(m.now), users, internal)
	}
	for _, k := range modelKeys() {
		e, ok := v.Get(k)
		if r, exists := m.now[k]; ok != exists || !reflect.DeepEqual(e.revision(), r) {
			return fmt.Errorf("%v is %+v, want %+v", k, e, r)
		}
		if got, want := v.History(k), m.history(k); len(got)+len(want) > 0 && !reflect.DeepEqual(got, want) {
			return fmt.Errorf("history of %v: %+v, want %+v", k, got, want)
		}
	}
	total, order := 0, map[string]bool{}
	for _, r := range m.past {
		total += r.size()
		order[string(orderKey(r.until, r.key.path()))] = true
	}
	if want := slices.Sorted(maps.Keys(order)); v.past.bytes != total || !slices.Equal(keysOf(v.past), want) {
		return fmt.Errorf("%d bytes of the past in the order %q, want %d, %q", v.past.bytes, keysOf(v.past), total, want)
	}
	for after := range m.index + 1 {
		var want []Key
		for _, index := range slices.Sorted(maps.Keys(m.touched)) {
			if index > after {
				want = append(want, m.touched[index]...)
			}
		}
		if keys, known := v.Changed(after); !known || !slices.Equal(keys, want) {
			return fmt.Errorf("changed after %d: %v (%v), want %v", after, keys, known, want)
		}
	}
	return nil
}

func modelKeys() (keys []Key) {
	for _, kind := range []string{"A", "AB", "_node"} {
		for _, name := range []string{"a", "b", "bc"} {
			keys = append(keys, Key{kind, name})
		}
	}
	return keys
}

func drawChange(t *rapid.T, v Snapshot) *Batch {
	op := rapid.Custom(func(t *rapid.T) Op {
		o := Op{Key: rapid.SampledFrom(modelKeys()).Draw(t, "key")}
		if rapid.IntRange(0, 2).Draw(t, "put") > 0 {
			o.Value = []byte(rapid.StringN(0, 40, 80).Draw(t, "value"))
		}
		if rapid.IntRange(0, 9).Draw(t, "with a version") == 0 {
			e, _ := v.Get(o.Key)
			o.IfVersion = ref(e.Version)
		}
		return o
	})
	b := &Batch{ID: ID{byte(rapid.IntRange(0, 30).Draw(t, "id"))}, Ops: rapid.SliceOfN(op, 0, 6).Draw(t, "ops")}
	b.Note = Note{Who: rapid.StringN(0, 5, 10).Draw(t, "who"), At: time.Unix(rapid.Int64Range(0, 1e9).Draw(t, "at"), 0).UTC()}
	if rapid.Bool().Draw(t, "with a sequence") {
		b.IfSequence = ref(v.Sequence() + uint64(rapid.SampledFrom([]int{0, 0, 0, 1}).Draw(t, "stale")))
		b.Sequence = uint64(rapid.SampledFrom([]int{0, 0, 1000}).Draw(t, "sequence")) * v.Index()
	}
	return b
}

// TestSnapshotsMatchModel compares snapshots with the model: content,
// bounded histories, IDs, sequences and indexes with gaps. Earlier snapshots
// must not change; a snapshot that was written and read back, and a second
// store, must behave the same.
func TestSnapshotsMatchModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limits := Limits{
			Entry:     200,
			Total:     250,
			Internal:  200,
			Revisions: rapid.IntRange(1, 4).Draw(t, "revisions"),
			Past:      rapid.SampledFrom([]int{1, 1500, 1 << 20}).Draw(t, "past"),
		}
		m := &model{limits: limits, now: map[Key]Revision{}, touched: map[uint64][]Key{}}
		var v, twin Snapshot
		kept, blocks := []Snapshot{{}}, [][][]byte{blocksOf(t, Snapshot{})}
		for range rapid.IntRange(1, 15).Draw(t, "batches") {
			index := v.Index() + uint64(rapid.IntRange(1, 3).Draw(t, "gap"))
			b := drawChange(t, v)
			want, refused := m.apply(index, b)
			next, got, err := v.Apply(index, b, limits)
			if got != want || !errors.Is(err, refused) {
				t.Fatalf("batch %+v: %+v, %v; want %+v, %v", b, got, err, want, refused)
			}
			data, err := EncodeBatch(b)
			if err != nil {
				t.Fatal(err)
			}
			decoded, err := DecodeBatch(data)
			if err != nil {
				t.Fatal(err)
			}
			if twin, _, _ = twin.Apply(index, decoded, limits); rapid.Bool().Draw(t, "restart") {
				twin = fromBlocks(t, blocksOf(t, twin), limits)
			}
			clear(data) // snapshots share no memory with data
			v = next
			if err := m.matches(v); err != nil {
				t.Fatal(err)
			}
			kept, blocks = append(kept, v), append(blocks, blocksOf(t, v))
			if !sameBlocks(blocksOf(t, twin), blocks[len(blocks)-1]) {
				t.Fatal("a store with the same batches has different blocks")
			}
		}
		for i := range kept {
			if !sameBlocks(blocksOf(t, kept[i]), blocks[i]) {
				t.Fatalf("snapshot %d has changed", kept[i].Index())
			}
		}
	})
}
