package wire

import (
	"fmt"
	"slices"
)

// CarriesAddress tells whether a response has addresses of brokers or
// controllers in it, or settings that tell them. These are all of them:
//
//	Metadata                     the brokers
//	FindCoordinator              v0-3 one coordinator, v4+ several
//	DescribeCluster              brokers, or from v1 on controllers
//	Produce v10+, Fetch v16+     node endpoints, tag 0 (KIP-951)
//	ShareFetch, ShareAcknowledge node endpoints, an array
//	DescribeQuorum v2+           the controllers' listeners
//	DescribeConfigs              listeners and the quorum in a broker's settings
//
// User endpoints of streams groups are the clients' own.
func CarriesAddress(key, version int16) bool {
	switch key {
	case keyMetadata, keyFindCoordinator, keyDescribeCluster, keyShareFetch, keyShareAcknowledge, keyDescribeConfigs:
		return true
	case keyProduce:
		return version >= 10
	case keyFetch:
		return version >= 16
	case keyDescribeQuorum:
		return version >= 2
	}
	return false
}

// Streams tells whether the responses of an API have records in them: they may
// be as large as a frame can be, and are walked rather than collected.
func Streams(key int16) bool { return key == keyFetch || key == keyShareFetch }

// MapAddresses puts other addresses into the body of a response that
// CarriesAddress. What to gives no address for is left out of lists, or becomes
// a coordinator that is not available. Addresses of controllers are nobody's
// business and are never asked for: lists of them become empty. Settings that
// tell addresses become sensitive ones, whose value is not shown.
//
// The new body is out with tail behind it. out is dst with everything up to
// the last change, tail a view of the rest of body: all of it if nothing
// changed. hidden counts what was left out or masked.
func MapAddresses(dst []byte, key, version int16, body []byte, to NodeFunc) (out, tail []byte, hidden int, err error) {
	switch key {
	case keyProduce, keyFetch, keyShareFetch, keyShareAcknowledge:
		return mapEndpoints(dst, key, version, body, to)
	}
	e := addressEditor{r: NewReader(body, Flexible(key, version)), v: version, out: dst, to: to, base: len(dst), shown: noNode}
	switch key {
	case keyMetadata:
		e.metadata()
	case keyFindCoordinator:
		e.coordinators()
	case keyDescribeCluster:
		e.cluster()
	case keyDescribeQuorum:
		e.quorum()
	case keyDescribeConfigs:
		e.configs()
	default:
		return dst, body, 0, nil
	}
	if e.err == nil {
		e.err = e.r.Err()
	}
	if e.err != nil {
		return nil, nil, 0, fmt.Errorf("response to %s v%d: %w", Name(key), version, e.err)
	}
	return e.out, body[e.done:], e.hidden, nil
}

// addressEditor reads a body and writes its changed copy as far as it changes.
type addressEditor struct {
	r      Reader
	v      int16
	out    []byte
	done   int // up to here body is in out, changed or not
	hidden int
	to     NodeFunc
	err    error // of to
	base   int   // length of out before the body

	shown int32   // the first broker that is left in a list
	gone  []int32 // node ids of the brokers that were left out of a list, sorted
}

// keep copies what was read up to offset and not copied yet.
func (e *addressEditor) keep(offset int) {
	if e.err == nil && e.r.err == nil {
		e.out = append(e.out, e.r.b[e.done:offset]...)
		e.done = offset
	}
}

// mapped asks for the address of a broker. ok false: there is none, or there
// was an error before.
func (e *addressEditor) mapped(id int32, host []byte, port int32) (vhost string, vport int32, ok bool) {
	if e.err != nil || e.r.err != nil {
		return "", 0, false
	}
	vhost, vport, ok, e.err = e.to(id, string(host), port)
	if len(vhost) > maxVersion {
		e.err = fmt.Errorf("host of %d bytes: %w", len(vhost), ErrTooLarge)
	}
	return vhost, vport, ok
}

// array reads the length of an array of brokers and makes room for another.
func (e *addressEditor) array() (n, at int) {
	from := e.r.at
	n = e.r.Array()
	e.out = slices.Grow(e.out, from-e.done+64*min(max(n, 0), 1000))
	e.keep(from)
	at = len(e.out)
	if size := e.r.at - from; e.r.Flexible {
		e.out = AppendUvarintSize(e.out, uint32(n+1), size)
	} else {
		e.out = AppendInt32(e.out, int32(n))
	}
	e.done = e.r.at
	return n, at
}

// count corrects the length of an array that was written at.
func (e *addressEditor) count(n, kept, at, size int) {
	switch {
	case e.err != nil || e.r.err != nil || n == kept:
	case e.r.Flexible:
		AppendUvarintSize(e.out[:at], uint32(kept+1), size)
	default:
		AppendInt32(e.out[:at], int32(kept))
	}
	e.hidden += max(n, 0) - max(kept, 0)
}

// brokers edits an array of brokers: id, host, port, and what rest reads.
func (e *addressEditor) brokers(rest func(), hide bool) {
	n, at := e.array()
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
			vhost, vport, ok = e.mapped(id, host, port)
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
				e.shown = id
			}
		} else if !hide {
			e.gone = append(e.gone, id)
		}
		e.done = e.r.at
	}
	e.count(n, kept, at, size)
	slices.Sort(e.gone)
}

// metadata: the brokers come first; the rest is read only where one of them is
// left out (rule 10).
func (e *addressEditor) metadata() {
	if e.v >= 3 {
		e.r.Int32() // throttle
	}
	e.brokers(func() {
		if e.v >= 1 {
			e.r.String() // rack
		}
	}, false)
	if len(e.gone) > 0 && e.err == nil && e.r.err == nil {
		e.withoutLeaders()
	}
}

// cluster: brokers are endpoint type 1; anything else is no broker's.
func (e *addressEditor) cluster() {
	e.r.Int32() // throttle
	e.r.Int16() // error
	e.r.String()
	hide := e.v >= 1 && e.r.Int8() != 1
	e.r.String() // cluster id
	controller := e.base + e.r.at
	e.r.Int32()
	e.brokers(func() {
		e.r.String() // rack
		if e.v >= 2 {
			e.r.Bool() // fenced
		}
	}, hide)
	if len(e.gone) > 0 && e.err == nil && e.r.err == nil {
		e.replaceController(controller)
	}
}

func (e *addressEditor) coordinators() {
	if e.v >= 1 {
		e.r.Int32() // throttle
	}
	if e.v <= 3 {
		e.coordinator()
		return
	}
	for range e.r.Array() {
		if e.coordinator4(); e.err != nil || e.r.err != nil {
			return
		}
	}
}

// coordinator: error, message from v1 on, broker.
func (e *addressEditor) coordinator() {
	from := e.r.at
	code := e.r.Int16()
	middle := e.r.at
	if e.v >= 1 {
		e.r.String()
	}
	end := e.r.at
	id := e.r.Int32()
	host, _ := e.r.String()
	port := e.r.Int32()
	if id == -1 && len(host) == 0 || e.r.err != nil {
		return // none: the answer is an error
	}
	vhost, vport, ok := e.mapped(id, host, port)
	if !ok {
		id, vport, vhost = -1, -1, ""
		if e.hidden++; code == 0 {
			code = errCoordinatorNotAvailable
		}
	}
	e.keep(from)
	e.out = AppendInt16(e.out, code)
	e.done = middle
	e.keep(end)
	e.out = AppendInt32(e.out, id)
	e.out = AppendString(e.out, vhost, e.r.Flexible)
	e.out = AppendInt32(e.out, vport)
	e.done = e.r.at
}

// coordinator4: key, broker, error, message.
func (e *addressEditor) coordinator4() {
	e.r.String()
	from := e.r.at
	id := e.r.Int32()
	host, _ := e.r.String()
	port := e.r.Int32()
	code := e.r.Int16()
	end := e.r.at
	e.r.String()
	e.r.Tags()
	if id == -1 && len(host) == 0 || e.r.err != nil {
		return
	}
	vhost, vport, ok := e.mapped(id, host, port)
	if !ok {
		id, vport, vhost = -1, -1, ""
		if e.hidden++; code == 0 {
			code = errCoordinatorNotAvailable
		}
	}
	e.keep(from)
	e.out = AppendInt32(e.out, id)
	e.out = AppendString(e.out, vhost, true)
	e.out = AppendInt32(e.out, vport)
	e.out = AppendInt16(e.out, code)
	e.done = end
}

// quorum: the listeners of each node go, the node stays.
func (e *addressEditor) quorum() {
	if e.v < 2 {
		return
	}
	e.r.Int16() // error
	e.r.String()
	for range e.r.Array() { // topics
		e.r.String()
		for range e.r.Array() { // partitions
			e.r.Span(4 + 2)
			e.r.String()
			e.r.Span(4 + 4 + 8)
			for range 2 { // voters, observers
				for range e.r.Array() {
					e.r.Span(4 + 16 + 8 + 8 + 8)
					e.r.Tags()
				}
			}
			e.r.Tags()
		}
		e.r.Tags()
	}
	for range e.r.Array() { // nodes
		e.r.Int32()
		from := e.r.at
		n := e.r.Array()
		for range n {
			e.r.String()
			e.r.String()
			e.r.Span(2) // port
			e.r.Tags()
		}
		if n > 0 {
			e.keep(from)
			e.out = AppendArray(e.out, 0, true)
			e.done = e.r.at
			e.hidden += n
		}
		e.r.Tags()
	}
}

// mapEndpoints edits Produce, Fetch and the share APIs, whole.
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
