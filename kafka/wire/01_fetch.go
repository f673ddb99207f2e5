package wire

// Fetch (API key 1) reads records from the leader of a partition, or from a
// replica near the client.
//
//	request   v0+    passed; filters see it decoded
//	response  v0+    walked: topic names (v0-12) or ids (v13+, KIP-516), and the
//	                 number of the fetch session (v7+, KIP-227); records are
//	                 never decoded
//	          v16+   node endpoints, tag 0 of the body (KIP-951), get virtual
//	                 addresses or are left out
//
// MultiTenant prefixes names, checks topic ids, and lets a tenant continue only
// its own fetch sessions (filter/multitenant/fetch.go); TopicMetrics counts
// bytes.
//
// A walk with Edits.Node treats tag 0 as node endpoints from v12 on, the first
// version with tags: Kafka gives it no other meaning.
var fetch = apiSpec{
	key:            keyFetch,
	walkResponse:   walkFetchResponse,
	addressesFrom:  16,
	carriesRecords: true,
}

func walkFetchResponse(b *builder, v int16) {
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
	b.messageTags(true)
}
