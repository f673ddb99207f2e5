package multitenant

import (
	"encoding/binary"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/kafka/filter"
)

// What members of a group that uses the classic protocol tell each other is
// opaque to the broker in principle. In fact it reads what consumers say: who
// is subscribed to a topic keeps its offsets from being deleted, and a group
// that is turned into one of the new protocol (KIP-848) is given what its
// members subscribed to, by the broker. So the names in it are changed like
// any others, wherever the type of protocol is consumerProtocol; other types
// (connect, sr) have other contents, which nobody but the members reads.
//
// The contents are a version, names, and more (ConsumerProtocolSubscription and
// ConsumerProtocolAssignment v0 to v3; newer ones begin in the same way, and
// brokers read them as v3). A custom assignor may write something else. So what
// cannot be read stays as it is, and here is read whatever any broker reads:
// some look at the topics alone, whatever the version and what follows them,
// and some take a negative length for that of nothing.
// If something else can be read by chance, its readers get it as it was, since
// what is put in on the way to the broker is taken out on the way back.

const consumerProtocol = "consumer"

// maxMemberNames bounds the names in one message's member metadata, since each
// grows by the prefix.
const maxMemberNames = 500_000

// memberNames changes the names in member metadata.
type memberNames struct {
	// edit appends what becomes of a name; false leaves it out.
	edit func(dst, name []byte) ([]byte, bool)
	left int // names
}

func (c *call) prefixMemberNames() *memberNames {
	return &memberNames{left: maxMemberNames, edit: func(dst, name []byte) ([]byte, bool) {
		return append(dst, c.prefixedTopic(string(name))...), true
	}}
}

// unprefixMemberNames leaves out names that are not the tenant's: no member that
// came through the proxy has sent them.
func (c *call) unprefixMemberNames() *memberNames {
	return &memberNames{left: maxMemberNames, edit: func(dst, name []byte) ([]byte, bool) {
		s := string(name)
		ok := c.unprefix(&s) == nil
		return append(dst, s...), ok
	}}
}

// err returns an error if there were too many names. Then the changed message
// must not be used.
func (e *memberNames) err() error {
	if e.left < 0 {
		return fmt.Errorf("%w: more than %d topics in the member metadata of a group", filter.ErrDenied, maxMemberNames)
	}
	return nil
}

// subscription changes a ConsumerProtocolSubscription: topics, user data, and
// from v1 on the partitions that are owned.
func (e *memberNames) subscription(b []byte) []byte {
	if len(b) < 2 {
		return b
	}
	version := int16(binary.BigEndian.Uint16(b))
	out, rest, ok := e.topics(b[:2:2], b[2:], false)
	if ok && version >= 1 && len(rest) >= 4 {
		if n := arrayLen(rest); n <= len(rest)-4 {
			out, rest, _ = e.topics(append(out, rest[:4+n]...), rest[4+n:], true)
		}
	}
	return append(out, rest...)
}

// assignment changes a ConsumerProtocolAssignment: partitions, user data.
func (e *memberNames) assignment(b []byte) []byte {
	if len(b) < 2 {
		return b
	}
	out, rest, _ := e.topics(b[:2:2], b[2:], true)
	return append(out, rest...)
}

// topics appends to dst an array of changed names, each with its partitions if
// there are any. ok is false if rest does not begin with such an array.
func (e *memberNames) topics(dst, rest []byte, partitions bool) (_, behind []byte, ok bool) {
	size, ok := topicsSize(rest, partitions)
	if !ok {
		return dst, rest, false
	}
	at, kept, all := len(dst), 0, arrayLen(rest)
	dst = append(dst, rest[:4]...)
	for b := rest[4:size]; len(b) > 0 && e.left >= 0; {
		e.left--
		n := 2 + int(binary.BigEndian.Uint16(b))
		name := b[2:n]
		b = b[n:]
		if n = 0; partitions {
			n = 4 + 4*arrayLen(b)
		}
		from := len(dst)
		with, ok := e.edit(append(dst, 0, 0), name)
		if ok {
			binary.BigEndian.PutUint16(with[from:], uint16(len(with)-from-2)) // prefixedTopic makes it fit
			dst = append(with, b[:n]...)
			kept++
		}
		b = b[n:]
	}
	if kept < all {
		binary.BigEndian.PutUint32(dst[at:], uint32(kept))
	}
	return dst, rest[size:], true
}

// arrayLen is the length of an array, or of bytes, which b begins with.
func arrayLen(b []byte) int { return max(int(int32(binary.BigEndian.Uint32(b))), 0) }

// topicsSize returns how many bytes such an array takes.
func topicsSize(b []byte, partitions bool) (size int, ok bool) {
	if len(b) < 4 {
		return 0, false
	}
	all := arrayLen(b)
	size = 4
	if all > len(b)-size {
		return 0, false
	}
	for range all {
		if len(b)-size < 2 {
			return 0, false
		}
		n := int(int16(binary.BigEndian.Uint16(b[size:])))
		size += 2
		if n < 0 || n > len(b)-size {
			return 0, false
		}
		size += n
		if !partitions {
			continue
		}
		if len(b)-size < 4 {
			return 0, false
		}
		n = arrayLen(b[size:])
		size += 4
		if n > (len(b)-size)/4 {
			return 0, false
		}
		size += 4 * n
	}
	return size, true
}

func (c *call) joinGroupRequest(r *kmsg.JoinGroupRequest) error {
	c.prefixID(&r.Group)
	if r.ProtocolType != consumerProtocol {
		return nil
	}
	c.x.State = consumerProtocol
	names := c.prefixMemberNames()
	for i := range r.Protocols {
		p := &r.Protocols[i]
		p.Metadata = names.subscription(p.Metadata)
	}
	return names.err()
}

func (c *call) joinGroupResponse(r *kmsg.JoinGroupResponse) error {
	if c.x.State != consumerProtocol {
		return nil
	}
	names := c.unprefixMemberNames()
	for i := range r.Members {
		m := &r.Members[i]
		m.ProtocolMetadata = names.subscription(m.ProtocolMetadata)
	}
	return names.err()
}

// syncGroupRequest: before v5 the type of protocol is not told, and it need not
// be later. Then whatever can be read is changed, on both ways.
func (c *call) syncGroupRequest(r *kmsg.SyncGroupRequest) error {
	c.prefixID(&r.Group)
	if r.ProtocolType != nil && *r.ProtocolType != consumerProtocol {
		return nil
	}
	names := c.prefixMemberNames()
	for i := range r.GroupAssignment {
		a := &r.GroupAssignment[i]
		a.MemberAssignment = names.assignment(a.MemberAssignment)
	}
	return names.err()
}

func (c *call) syncGroupResponse(r *kmsg.SyncGroupResponse) error {
	if r.ProtocolType != nil && *r.ProtocolType != consumerProtocol {
		return nil
	}
	names := c.unprefixMemberNames()
	r.MemberAssignment = names.assignment(r.MemberAssignment)
	return names.err()
}

// describedMembers changes member metadata in DescribeGroups in the same way.
func (c *call) describedMembers(g *kmsg.DescribeGroupsResponseGroup, names *memberNames) {
	if g.ProtocolType != consumerProtocol {
		return
	}
	for i := range g.Members {
		m := &g.Members[i]
		m.ProtocolMetadata = names.subscription(m.ProtocolMetadata)
		m.MemberAssignment = names.assignment(m.MemberAssignment)
	}
}
