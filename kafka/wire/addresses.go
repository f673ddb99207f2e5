package wire

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
)

const (
	errLeaderNotAvailable      = 5
	errCoordinatorNotAvailable = 15
)

// noNode is the node id for no broker.
const noNode int32 = -1

// CarriesAddress reports whether a response has addresses of brokers or
// controllers, or settings that contain them. User endpoints of streams groups
// do not count, since they are addresses of clients.
func CarriesAddress(key, version int16) bool {
	s := specOf(key)
	return s != nil && version >= s.addressesFrom
}

// CarriesRecords reports whether the responses of an API contain records. They
// may have the size of the largest frame, so they are walked rather than
// collected.
func CarriesRecords(key int16) bool {
	s := specOf(key)
	return s != nil && s.carriesRecords
}

// MapAddresses replaces the addresses in the body of a response that
// CarriesAddress. A broker for which to returns ok false is left out of lists,
// or becomes a coordinator that is not available. to is never called for
// controllers: lists of them become empty. Settings that contain addresses
// become sensitive and lose their value.
//
// The new body is out followed by tail. out is dst with everything up to the
// last change, tail a view of the rest of body: all of it if nothing changed.
// hidden counts what was left out or masked.
func MapAddresses(dst []byte, key, version int16, body []byte, to NodeFunc) (out, tail []byte, hidden int, err error) {
	s := specOf(key)
	switch {
	case s == nil || s.addressesFrom == noVersion:
		return dst, body, 0, nil
	case s.mapAddresses == nil:
		return mapEndpoints(dst, key, version, body, to)
	}
	e, _ := editors.Get().(*addressEditor)
	*e = addressEditor{
		r: NewReader(body, Flexible(key, version)), v: version, out: dst, to: to, base: len(dst),
		firstKept: noNode, removed: e.removed[:0],
	}
	s.mapAddresses(e)
	if e.err == nil {
		e.err = e.r.Err()
	}
	out, tail, hidden, err = e.out, body[e.done:], e.hidden, e.err
	e.r, e.out, e.to, e.err = Reader{}, nil, nil, nil // keep no reference to the message
	editors.Put(e)
	if err != nil {
		return nil, nil, 0, fmt.Errorf("response to %s v%d: %w", Name(key), version, err)
	}
	return out, tail, hidden, nil
}

// editors are pooled: mapAddresses is called through a function value, so that
// each editor would be allocated.
var editors = sync.Pool{New: func() any { return new(addressEditor) }}

// addressEditor parses a body and writes a changed copy up to the last change.
type addressEditor struct {
	r      Reader
	v      int16
	out    []byte
	done   int // up to here body is in out, edited or not
	hidden int
	to     NodeFunc
	err    error // of to
	base   int   // length of out before the body

	firstKept int32   // the first broker that was kept in a list
	removed   []int32 // ids of the brokers that were left out of a list, sorted
}

// copyTo copies the bytes of the body from done up to offset.
func (e *addressEditor) copyTo(offset int) {
	if e.err == nil && e.r.err == nil {
		e.out = append(e.out, e.r.b[e.done:offset]...)
		e.done = offset
	}
}

// mapNode returns the virtual address of a broker. ok is false if there is
// none, or after an error.
func (e *addressEditor) mapNode(id int32, host []byte, port int32) (vhost string, vport int32, ok bool) {
	if e.err != nil || e.r.err != nil {
		return "", 0, false
	}
	vhost, vport, ok, e.err = e.to(id, string(host), port)
	if len(vhost) > maxString {
		e.err = fmt.Errorf("host of %d bytes: %w", len(vhost), ErrTooLarge)
	}
	return vhost, vport, ok
}

// beginArray reads the length of an array of brokers, and writes one of the
// same size for count to correct.
func (e *addressEditor) beginArray() (n, at int) {
	from := e.r.at
	n = e.r.Array()
	e.out = slices.Grow(e.out, from-e.done+64*min(max(n, 0), 1000))
	e.copyTo(from)
	at = len(e.out)
	if size := e.r.at - from; e.r.Flexible {
		e.out = AppendUvarintSize(e.out, uint32(n+1), size)
	} else {
		e.out = AppendInt32(e.out, int32(n))
	}
	e.done = e.r.at
	return n, at
}

// fixCount corrects the length of an array, which was written at offset at of
// out.
func (e *addressEditor) fixCount(n, kept, at, size int) {
	switch {
	case e.err != nil || e.r.err != nil || n == kept:
	case e.r.Flexible:
		AppendUvarintSize(e.out[:at], uint32(kept+1), size)
	default:
		AppendInt32(e.out[:at], int32(kept))
	}
	e.hidden += max(n, 0) - max(kept, 0)
}

// mapBrokers edits an array of brokers: id, host, port, and the fields that
// rest reads. hide leaves all of them out.
func (e *addressEditor) mapBrokers(rest func(), hide bool) {
	n, at := e.beginArray()
	size := len(e.out) - at
	kept := min(n, 0)
	for range n {
		id := e.r.Int32()
		host, _ := e.r.String()
		port := e.r.Int32()
		from := e.r.at
		rest()
		e.r.Tags()
		vhost, vport, ok := "", int32(0), false
		if !hide {
			vhost, vport, ok = e.mapNode(id, host, port)
		}
		if e.err != nil || e.r.err != nil {
			return
		}
		if ok {
			e.out = AppendInt32(e.out, id)
			e.out = AppendString(e.out, vhost, e.r.Flexible)
			e.out = AppendInt32(e.out, vport)
			e.out = append(e.out, e.r.b[from:e.r.at]...)
			if kept++; kept == 1 {
				e.firstKept = id
			}
		} else if !hide {
			e.removed = append(e.removed, id)
		}
		e.done = e.r.at
	}
	e.fixCount(n, kept, at, size)
	slices.Sort(e.removed)
}

// mapEndpoints edits the node endpoints of a whole response to Produce, Fetch or
// the share APIs.
func mapEndpoints(dst []byte, key, version int16, body []byte, to NodeFunc) (out, tail []byte, hidden int, err error) {
	w := struct {
		Walker
		edits Edits
	}{edits: Edits{Node: to}}
	out, err = w.rewrite(dst, Response, key, version, body, &w.edits)
	if err != nil {
		return nil, nil, 0, fmt.Errorf("response to %s v%d: %w", Name(key), version, err)
	}
	if len(out) == len(body) && len(body) > 0 && &out[0] == &body[0] {
		return dst, body, w.hidden, nil
	}
	return out, nil, w.hidden, nil
}

// isRemoved reports whether a broker was left out of the list.
func (e *addressEditor) isRemoved(id int32) bool {
	_, ok := slices.BinarySearch(e.removed, id)
	return ok
}

// replaceController replaces a controller that was left out with a broker that is
// shown, at an offset of out. Clients since Kafka 2.8 send requests for the
// controller to that broker, and any broker forwards them.
func (e *addressEditor) replaceController(at int) {
	field := e.out[at : at+4]
	if e.isRemoved(int32(binary.BigEndian.Uint32(field))) {
		binary.BigEndian.PutUint32(field, uint32(e.firstKept))
	}
}
