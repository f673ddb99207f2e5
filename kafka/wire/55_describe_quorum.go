package wire

// DescribeQuorum (API key 55) returns the state of the metadata quorum.
//
//	request   v0+    passed
//	response  v0-1   passed: there are no addresses
//	          v2+    controllers lose their listeners (KIP-853); the nodes stay
//
// Clients do not connect to controllers, so their addresses are never mapped.
// MultiTenant does not offer this API.
var describeQuorum = apiSpec{key: keyDescribeQuorum, addressesFrom: 2, mapAddresses: (*addressEditor).mapQuorum}

// mapQuorum removes the listeners of each node and keeps the node.
func (e *addressEditor) mapQuorum() {
	if e.v < 2 {
		return
	}
	e.r.Int16() // error
	e.r.String()
	for range e.r.Array() { // topics
		e.r.String()
		for range e.r.Array() { // partitions
			e.r.Span(4 + 2)
			e.r.String()
			e.r.Span(4 + 4 + 8)
			for range 2 { // voters, observers
				for range e.r.Array() {
					e.r.Span(4 + 16 + 8 + 8 + 8)
					e.r.Tags()
				}
			}
			e.r.Tags()
		}
		e.r.Tags()
	}
	for range e.r.Array() { // nodes
		e.r.Int32()
		from := e.r.at
		n := e.r.Array()
		for range n {
			e.r.String()
			e.r.String()
			e.r.Span(2) // port
			e.r.Tags()
		}
		if n > 0 {
			e.copyTo(from)
			e.out = AppendArray(e.out, 0, true)
			e.done = e.r.at
			e.hidden += n
		}
		e.r.Tags()
	}
}
