package wire

import (
	"encoding/binary"
	"slices"
)

// noNode is the node id that stands for no broker.
const noNode int32 = -1

// left tells whether a broker was left out of the list.
func (e *addressEditor) left(id int32) bool {
	_, ok := slices.BinarySearch(e.gone, id)
	return ok
}

// replaceController puts a broker that clients see in the place of a controller
// that they do not, at an offset of out. Clients of Kafka since 2.8 send what is
// for the controller to that broker, and any broker forwards it.
func (e *addressEditor) replaceController(at int) {
	field := e.out[at : at+4]
	if e.left(int32(binary.BigEndian.Uint32(field))) {
		binary.BigEndian.PutUint32(field, uint32(e.shown))
	}
}

// withoutLeaders edits what follows the brokers in Metadata where some were
// left out: partitions that these lead have no leader, as if their broker were
// down (LEADER_NOT_AVAILABLE, which clients retry). Lists of replicas keep the
// ids, as Kafka keeps those of brokers that are down. All edits keep the length.
func (e *addressEditor) withoutLeaders() {
	shift := len(e.out) - e.done // from an offset in the body to that in out
	e.keep(len(e.r.b))
	if e.v >= 2 {
		e.r.String() // cluster id
	}
	if e.v >= 1 {
		at := shift + e.r.at
		if e.r.Int32(); e.r.err == nil {
			e.replaceController(at)
		}
	}
	for range e.r.Array() {
		e.r.Int16() // error
		e.r.String()
		if e.v >= 10 {
			e.r.Span(16)
		}
		if e.v >= 1 {
			e.r.Bool() // internal
		}
		for range e.r.Array() {
			if e.leader(shift); e.r.err != nil {
				return
			}
		}
		if e.v >= 8 {
			e.r.Int32() // authorized operations
		}
		if e.r.Tags(); e.r.err != nil {
			return
		}
	}
}

// leader edits one partition.
func (e *addressEditor) leader(shift int) {
	failed := shift + e.r.at
	code := e.r.Int16()
	e.r.Int32() // partition
	at := shift + e.r.at
	leader := e.r.Int32()
	if e.r.err == nil && e.left(leader) {
		leader = noNode
		binary.BigEndian.PutUint32(e.out[at:], uint32(leader))
		if code == 0 {
			binary.BigEndian.PutUint16(e.out[failed:], errLeaderNotAvailable)
		}
	}
	if e.v >= 7 {
		e.r.Int32() // leader epoch
	}
	lists := 2 // replicas, in sync
	if e.v >= 5 {
		lists++ // offline
	}
	for range lists {
		e.r.Span(4 * max(e.r.Array(), 0))
	}
	e.r.Tags()
}
