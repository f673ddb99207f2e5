package wire

// A shape is the part of the layout of a message version that a Walker needs: a
// flat program that runs as the bytes arrive.
type shape struct {
	ops      []op
	flexible bool
	named    bool // topics by name
}

type op struct {
	do opcode
	// n depends on the op: the length of opFixed, opID and opSession; the next op
	// if opArray or opTopics is empty, or if opNodes was edited; the first op of
	// an element for opNext; 1 if tag 0 of opEnd is node endpoints.
	n int
}

type opcode uint8

const (
	opFixed   opcode = iota // bytes that are never edited
	opSession               // the id of a fetch session
	opString                // a string, or null, that is never edited
	opBytes                 // records, or null: never decoded
	opTxnID                 // the transactional id of a Produce request
	opTopics                // the array of topics, whose count determines the growth of the message
	opArray                 // another array
	opNext                  // the end of an array's element
	opName                  // a topic's name
	opID                    // a topic's id
	opTags                  // the tags of a structure
	opNodes                 // an array of node endpoints; the same as an opArray follows it
	opEnd                   // the tags of the message
)

// shapes has the messages that can be walked, by direction, key and version.
var shapes = buildShapes()

type shapeTable [2][keyShareAcknowledge + 1][]shape

func buildShapes() (t shapeTable) {
	add := func(d Direction, key int16, layout func(b *builder, version int16)) {
		if layout == nil {
			return
		}
		_, highest, _ := Known(key)
		for v := int16(0); v <= highest; v++ {
			b := builder{shape: shape{flexible: Flexible(key, v)}}
			layout(&b, v)
			t[d][key] = append(t[d][key], b.shape)
		}
	}
	for _, s := range specs {
		add(Request, s.key, s.walkRequest)
		add(Response, s.key, s.walkResponse)
	}
	return t
}

// shapeOf returns the shape of a message, or nil if it cannot be walked.
func shapeOf(d Direction, key, version int16) *shape {
	if d > Response || key < 0 || int(key) >= len(shapes[d]) {
		return nil
	}
	if of := shapes[d][key]; version >= 0 && int(version) < len(of) {
		return &of[version]
	}
	return nil
}

// Walkable reports whether a message can be walked: Produce requests and
// responses, and responses to Fetch, ShareFetch and ShareAcknowledge, in every
// known version.
func Walkable(d Direction, key, version int16) bool { return shapeOf(d, key, version) != nil }

// builder writes a shape in the order of the fields.
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

// tags adds the tags at the end of a structure.
func (b *builder) tags() {
	if b.flexible {
		b.add(opTags, 0)
	}
}

// array adds an array of structures.
func (b *builder) array(do opcode, element func()) {
	at := len(b.ops)
	b.add(do, 0)
	b.add(opFixed, 0) // stops merging of fixed bytes; an element begins here
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

// nodes adds an array of node endpoints twice: as opNodes to edit it, and as
// opArray to pass it.
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

// messageTags adds the tags at the end of a message. nodes marks tag 0 as node endpoints.
func (b *builder) messageTags(nodes bool) {
	if !b.flexible {
		return
	}
	if nodes {
		b.add(opEnd, 1)
	} else {
		b.add(opEnd, 0)
	}
}
