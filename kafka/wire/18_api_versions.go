package wire

import "fmt"

// ApiVersions (API key 18) lists the APIs and versions that the broker has.
//
//	request   v0+    passed; the session records the client's software (v3+,
//	                 KIP-511; session/auth.go)
//	          newer than known   answered by the session itself, as a broker does:
//	                 UNSUPPORTED_VERSION in the layout of v0
//	                 (AppendUnsupportedApiVersions)
//	response  v0+    narrowed to what the broker, the proxy and all filters can
//	                 carry (NarrowApiVersions)
//	          v0+    its header never has tags, flexible or not (ResponseTags)
//
// The cluster and node that a client names from v5 on (KIP-1242) pass unchanged:
// in a virtual cluster they are the broker's own, and so is its answer.

const errUnsupportedVersion = 35

// NarrowApiVersions rewrites the body of an ApiVersions response to the versions
// that both the broker offers and ranges allows. APIs without a common version
// are removed; all else stays byte for byte: throttle time, unknown tags,
// features. version is that of the request. It returns body itself if nothing
// changed, or dst with the new body.
//
// There are two special cases. A broker that does not support the version
// answers with error 35 in the layout of v0; that layout is recognized for any
// version and narrowed as well. And Produce is offered from v0 if the broker
// does so, even if ranges starts higher: librdkafka takes a higher start for a
// broker that cannot compress (KAFKA-18659), and sends the newest version
// anyway. The session refuses requests below the range.
func NarrowApiVersions( //nolint:revive // Kafka's own name
	dst []byte, version int16, body []byte, ranges func(key int16) (lowest, highest int16),
) ([]byte, error) {
	r := NewReader(body, version >= 3)
	if code := r.Int16(); code == errUnsupportedVersion && isV0(body) {
		r.Flexible = false
	}
	n := r.Array()
	start := len(dst)
	dst = append(dst, body[:min(2, len(body))]...)
	dst = AppendArray(dst, n, r.Flexible) // the old count, corrected below
	first, kept, changed := len(dst), 0, false
	for range n {
		from := r.At()
		key, lo, hi := r.Int16(), r.Int16(), r.Int16()
		tags := r.Tags()
		lowest, highest := ranges(key)
		if r.Err() != nil {
			break
		}
		if lowest = max(lo, lowest); lowest > min(hi, highest) {
			changed = true
			continue
		}
		highest = min(hi, highest)
		if key == keyProduce {
			lowest = lo
		}
		kept++
		if lowest == lo && highest == hi {
			dst = append(dst, body[from:r.At()]...)
			continue
		}
		changed = true
		dst = AppendInt16(AppendInt16(AppendInt16(dst, key), lowest), highest)
		dst = append(dst, tags...)
	}
	if err := r.Err(); err != nil {
		return nil, fmt.Errorf("ApiVersions response v%d: %w", version, err)
	}
	if !changed {
		return body, nil
	}
	if r.Flexible { // in as many bytes as the old count, which is not lower
		AppendUvarintSize(dst[:start+2], uint32(kept+1), first-start-2)
	} else {
		AppendInt32(dst[:start+2], int32(kept))
	}
	return append(dst, r.Rest()...), nil
}

// isV0 reports whether a body has exactly the layout of ApiVersions v0.
func isV0(body []byte) bool {
	r := NewReader(body, false)
	r.Int16()
	r.Span(6 * max(r.Array(), 0))
	return r.Err() == nil && len(r.Rest()) == 0
}

// AppendUnsupportedApiVersions appends the body of the response to an
// ApiVersions request of an unknown version: error 35 in the layout of v0, with
// the known versions of ApiVersions. Its header has no tags.
func AppendUnsupportedApiVersions(dst []byte, lowest, highest int16) []byte { //nolint:revive // Kafka's own name
	dst = AppendInt16(dst, errUnsupportedVersion)
	dst = AppendInt32(dst, 1)
	dst = AppendInt16(dst, keyAPIVersions)
	dst = AppendInt16(dst, lowest)
	return AppendInt16(dst, highest)
}
