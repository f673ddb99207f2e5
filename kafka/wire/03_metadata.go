package wire

import "encoding/binary"

// Metadata (API key 3) lists the brokers, the controller, and the topics with
// their partitions and leaders.
//
//	request   v0+    passed; filters see it decoded
//	response  v0+    brokers get virtual addresses; one without any is left out
//	          v1+    a controller that was left out is replaced with a broker that
//	                 is shown; any broker forwards requests for the controller
//	                 (KIP-590)
//	          v0+    a partition whose leader was left out has none
//	                 (LEADER_NOT_AVAILABLE); its lists of replicas stay
//	          v13+   a session that drains answers REBOOTSTRAP_REQUIRED itself
//	                 (KIP-1102; session/rebootstrap.go)
//
// Brokers come first, so everything behind them is copied unless one of them is
// left out. Topics have ids from v10 on (KIP-516). MultiTenant edits topics as
// bytes (filter/multitenant/metadata.go); TopicMetrics collects names and ids of
// topics. Both use ReadMetadataTopic.
var metadata = apiSpec{key: keyMetadata, mapAddresses: (*addressEditor).mapMetadata}

// mapMetadata edits the brokers. The fields behind them are read only if a
// broker is left out.
func (e *addressEditor) mapMetadata() {
	if e.v >= 3 {
		e.r.Int32() // throttle
	}
	e.mapBrokers(func() {
		if e.v >= 1 {
			e.r.String() // rack
		}
	}, false)
	if len(e.removed) > 0 && e.err == nil && e.r.err == nil {
		e.clearLeaders()
	}
}

// clearLeaders edits the fields behind the brokers if some brokers were left
// out: partitions led by them get no leader, as if the broker were down
// (LEADER_NOT_AVAILABLE, which clients retry). Lists of replicas keep the ids,
// as Kafka keeps those of brokers that are down. No edit changes the length.
func (e *addressEditor) clearLeaders() {
	shift := len(e.out) - e.done // from an offset in the body to that in out
	e.copyTo(len(e.r.b))
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
			if e.mapLeader(shift); e.r.err != nil {
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

// mapLeader edits one partition.
func (e *addressEditor) mapLeader(shift int) {
	failed := shift + e.r.at
	code := e.r.Int16()
	e.r.Int32() // partition
	at := shift + e.r.at
	leader := e.r.Int32()
	if e.r.err == nil && e.isRemoved(leader) {
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

// SkipMetadataBrokers skips the fields before the topics of a response.
func SkipMetadataBrokers(r *Reader, version int16) {
	if version >= 3 {
		r.Int32() // throttle
	}
	for range r.Array() {
		r.Int32()
		r.String()
		r.Int32()
		if version >= 1 {
			r.String() // rack
		}
		r.Tags()
	}
	if version >= 2 {
		r.String() // cluster id
	}
	if version >= 1 {
		r.Int32() // controller
	}
}

// MetadataTopic is a topic of a response. Offsets are relative to the body.
type MetadataTopic struct {
	ErrorCode int16
	Name      []byte // a view of the body
	NoName    bool   // null: the request named an unknown id (v12+)
	NameAt    int    // offset of the name's length
	NameEnd   int
	IDAt      int
	ID        [16]byte // v10+
}

// ReadMetadataTopic reads a topic and skips its partitions.
func ReadMetadataTopic(r *Reader, version int16) (t MetadataTopic) {
	t.ErrorCode = r.Int16()
	t.NameAt = r.at
	t.Name, t.NoName = r.String()
	t.NameEnd, t.IDAt = r.at, r.at
	if version >= 10 {
		copy(t.ID[:], r.Span(len(t.ID)))
	}
	if version >= 1 {
		r.Bool() // internal
	}
	n := r.Array()
	if r.Flexible {
		n = skipPlainPartitions(r, n)
	}
	for range n {
		r.Span(2 + 4 + 4) // error, index, leader
		if version >= 7 {
			r.Int32() // epoch
		}
		skipInts(r) // replicas
		skipInts(r) // in sync
		if version >= 5 {
			skipInts(r) // offline
		}
		r.Tags()
	}
	if version >= 8 {
		r.Int32() // operations
	}
	r.Tags()
	return t
}

// skipPlainPartitions skips partitions of a flexible version while they have no
// tags and no list longer than 126. It returns how many of n are left. It is a
// fast path: a response may have thousands of partitions, nearly all of this
// form.
func skipPlainPartitions(r *Reader, n int) int {
	b := r.Rest()
	at := 0
	for ; n > 0; n-- {
		to := at + 2 + 4 + 4 + 4 // error, index, leader, epoch
		for range 3 {
			if to >= len(b) || b[to] > 0x7f {
				r.Span(at)
				return n
			}
			to += 1 + 4*int(max(b[to], 1)-1)
		}
		if to >= len(b) || b[to] != 0 {
			break
		}
		at = to + 1
	}
	r.Span(at)
	return n
}

func skipInts(r *Reader) {
	if n := r.Array(); n > 0 {
		r.Span(4 * n)
	}
}
