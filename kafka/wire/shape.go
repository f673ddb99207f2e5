package wire

// A shape is the layout of one version of a message, as far as a Walker has to
// know it: a flat program over which it runs as the bytes come.
type shape struct {
	ops      []op
	flexible bool
	named    bool // topics by name
}

type op struct {
	do opcode
	// n is: the length of opFixed, opID and opSession; where opArray goes on if it is
	// empty, and opNodes if it was edited; where opNext goes back to; 1 where
	// tag 0 of opEnd is node endpoints.
	n int
}

type opcode uint8

const (
	opFixed   opcode = iota // bytes of no interest
	opSession               // the number of a fetch session
	opString                // a string, or null, of no interest
	opBytes                 // records, or null: never looked at
	opTxnID                 // the transactional id of a Produce request
	opTopics                // the array of topics: its count tells how much the message grows
	opArray                 // another array
	opNext                  // the end of an array's element
	opName                  // a topic's name
	opID                    // a topic's id
	opTags                  // the tags of a structure
	opNodes                 // an array of node endpoints; as an opArray it follows
	opEnd                   // the tags of the message
)

// shapes are the messages that can be walked, by direction, key and version.
var shapes = buildShapes()

type shapeTable [2][keyShareAcknowledge + 1][]shape

func buildShapes() (t shapeTable) {
	add := func(d Direction, key int16, layout func(s *builder, v int16)) {
		_, highest, _ := Known(key)
		for v := int16(0); v <= highest; v++ {
			b := builder{shape: shape{flexible: Flexible(key, v)}}
			layout(&b, v)
			t[d][key] = append(t[d][key], b.shape)
		}
	}
	add(Request, keyProduce, layoutProduceRequest)
	add(Response, keyProduce, layoutProduceResponse)
	add(Response, keyFetch, layoutFetchResponse)
	add(Response, keyShareFetch, layoutShareFetchResponse)
	add(Response, keyShareAcknowledge, layoutShareAcknowledgeResponse)
	return t
}

// shapeOf finds the shape of a message; nil if it cannot be walked.
func shapeOf(d Direction, key, version int16) *shape {
	if d > Response || key < 0 || int(key) >= len(shapes[d]) {
		return nil
	}
	if of := shapes[d][key]; version >= 0 && int(version) < len(of) {
		return &of[version]
	}
	return nil
}

// Walkable tells whether a message can be walked: Produce requests and
// responses, and the responses to Fetch, ShareFetch and ShareAcknowledge, each
// from version 0 to the newest that is known.
func Walkable(d Direction, key, version int16) bool { return shapeOf(d, key, version) != nil }

// builder writes a shape down in the order of its fields.
type builder struct{ shape }

func (b *builder) add(do opcode, n int) { b.ops = append(b.ops, op{do, n}) }

// fixed adds n bytes if the version has them.
func (b *builder) fixed(n int, has bool) {
	if !has {
		return
	}
	if last := len(b.ops) - 1; last >= 0 && b.ops[last].do == opFixed {
		b.ops[last].n += n
		return
	}
	b.add(opFixed, n)
}

// tags adds what ends a structure.
func (b *builder) tags() {
	if b.flexible {
		b.add(opTags, 0)
	}
}

// array adds an array of structures.
func (b *builder) array(do opcode, element func()) {
	at := len(b.ops)
	b.add(do, 0)
	b.add(opFixed, 0) // ends the run of fixed bytes, and is where an element begins
	element()
	b.tags()
	b.add(opNext, at+1)
	b.ops[at].n = len(b.ops)
}

// topics adds the array of topics, each with its array of partitions.
func (b *builder) topics(named bool, partition func()) {
	b.named = named
	b.array(opTopics, func() {
		if named {
			b.add(opName, 0)
		} else {
			b.add(opID, 16)
		}
		b.array(opArray, partition)
	})
}

// nodes adds an array of node endpoints: once to be edited, once to be passed.
func (b *builder) nodes() {
	at := len(b.ops)
	b.add(opNodes, 0)
	b.array(opArray, func() {
		b.fixed(4, true)
		b.add(opString, 0)
		b.fixed(4, true)
		b.add(opString, 0)
	})
	b.ops[at].n = len(b.ops)
}

func (b *builder) end(nodes bool) {
	if !b.flexible {
		return
	}
	if nodes {
		b.add(opEnd, 1)
	} else {
		b.add(opEnd, 0)
	}
}

func layoutProduceRequest(b *builder, v int16) {
	if v >= 3 {
		b.add(opTxnID, 0)
	}
	b.fixed(2+4, true) // acks, timeout
	b.topics(v <= 12, func() {
		b.fixed(4, true)
		b.add(opBytes, 0)
	})
	b.end(false)
}

// Tag 0 is node endpoints from v10 on, of Fetch from v16. A client that reads
// it in older flexible versions too must find nothing else there.
func layoutProduceResponse(b *builder, v int16) {
	b.topics(v <= 12, func() {
		b.fixed(4+2+8, true) // partition, error, base offset
		b.fixed(8, v >= 2)   // append time
		b.fixed(8, v >= 5)   // log start offset
		if v >= 8 {
			b.array(opArray, func() {
				b.fixed(4, true)
				b.add(opString, 0)
			})
			b.add(opString, 0)
		}
	})
	b.fixed(4, v >= 1) // throttle
	b.end(true)
}

func layoutFetchResponse(b *builder, v int16) {
	b.fixed(4, v >= 1) // throttle
	if v >= 7 {
		b.fixed(2, true) // error
		b.add(opSession, 4)
	}
	b.topics(v <= 12, func() {
		b.fixed(4+2+8, true) // partition, error, high watermark
		b.fixed(8, v >= 4)   // last stable offset
		b.fixed(8, v >= 5)   // log start offset
		if v >= 4 {
			b.array(opArray, func() { b.fixed(8+8, true) }) // aborted transactions
		}
		b.fixed(4, v >= 11) // preferred replica
		b.add(opBytes, 0)
	})
	b.end(true)
}

func layoutShareFetchResponse(b *builder, v int16) {
	b.fixed(4+2, true) // throttle, error
	b.add(opString, 0)
	b.fixed(4, v >= 1) // acquisition lock timeout
	b.topics(false, func() {
		b.fixed(4+2, true)
		b.add(opString, 0)
		b.fixed(2, true)
		b.add(opString, 0)
		b.fixed(4+4, true) // leader, epoch
		b.tags()
		b.add(opBytes, 0)
		b.array(opArray, func() { b.fixed(8+8+2, true) }) // acquired records
	})
	b.nodes()
	b.end(false)
}

func layoutShareAcknowledgeResponse(b *builder, v int16) {
	b.fixed(4+2, true) // throttle, error
	b.add(opString, 0)
	b.fixed(4, v >= 2) // acquisition lock timeout
	b.topics(false, func() {
		b.fixed(4+2, true)
		b.add(opString, 0)
		b.fixed(4+4, true) // leader, epoch
		b.tags()
	})
	b.nodes()
	b.end(false)
}
