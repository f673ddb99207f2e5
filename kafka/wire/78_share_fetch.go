package wire

// ShareFetch (API key 78, KIP-932) reads records for a member of a share group.
//
//	request   v0+    passed; filters see it decoded
//	response  v0+    walked: topic ids; records are never decoded
//	          v0+    node endpoints, an array behind the topics, get virtual
//	                 addresses or are left out
//
// MultiTenant checks topic ids (filter/multitenant/shares.go); TopicMetrics
// counts bytes.
var shareFetch = apiSpec{key: keyShareFetch, walkResponse: walkShareFetchResponse, carriesRecords: true}

func walkShareFetchResponse(b *builder, v int16) {
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
	b.messageTags(false)
}
