package wire

// ShareAcknowledge (API key 79, KIP-932) acknowledges records of a share group.
//
//	request   v0+    passed; filters see it decoded
//	response  v0+    node endpoints, an array behind the topics, get virtual
//	                 addresses or are left out
//
// MultiTenant checks topic ids (filter/multitenant/shares.go).
var shareAcknowledge = apiSpec{key: keyShareAcknowledge, walkResponse: walkShareAcknowledgeResponse}

func walkShareAcknowledgeResponse(b *builder, v int16) {
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
	b.messageTags(false)
}
