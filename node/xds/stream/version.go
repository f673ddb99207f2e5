package stream

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strconv"
	"strings"

	"penstock/node/xds/snapshot"
)

// digest identifies a set of resources by their names and versions, on every
// node in the same way. It is the sum of its members' digests, so that a change
// of one member costs no pass over the others.
type digest [2]uint64

func (d *digest) add(o digest)      { d[0], d[1] = d[0]+o[0], d[1]+o[1] }
func (d *digest) subtract(o digest) { d[0], d[1] = d[0]-o[0], d[1]-o[1] }

// digestOf returns the digest of one member.
func digestOf(name, version string) digest {
	var buffer [256]byte
	text := append(append(append(buffer[:0], name...), 0), version...)
	sum := sha256.Sum256(text)
	return digest{binary.BigEndian.Uint64(sum[:]), binary.BigEndian.Uint64(sum[8:])}
}

func digestOfResource(r *snapshot.Resource) digest { return digestOf(r.Name, r.Version) }

// version is the version_info of a response in the state of the world.
type version struct {
	index uint64
	digest
}

// String returns INDEX.DIGEST, the digest as 32 hex digits.
func (v version) String() string {
	text := append(strconv.AppendUint(make([]byte, 0, 56), v.index, 10), '.')
	var sum [16]byte
	binary.BigEndian.PutUint64(sum[:], v.digest[0])
	binary.BigEndian.PutUint64(sum[8:], v.digest[1])
	return string(hex.AppendEncode(text, sum[:]))
}

// parseVersion undoes String. ok is false for versions of other servers.
func parseVersion(text string) (v version, ok bool) {
	index, sum, found := strings.Cut(text, ".")
	if !found || len(sum) != 32 {
		return version{}, false
	}
	n, err := strconv.ParseUint(index, 10, 64)
	if err != nil {
		return version{}, false
	}
	raw, err := hex.DecodeString(sum)
	if err != nil {
		return version{}, false
	}
	return version{n, digest{binary.BigEndian.Uint64(raw), binary.BigEndian.Uint64(raw[8:])}}, true
}
