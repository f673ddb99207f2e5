package wire

// DescribeCluster (API key 60) lists the brokers and the controller for admin
// clients.
//
//	request   v0+    passed
//	response  v0+    brokers get virtual addresses; one without any is left out
//	          v0+    a controller that was left out is replaced with a broker that
//	                 is shown
//	          v1+    a list of controllers in place of brokers (KIP-919) becomes
//	                 empty
//	          v2+    fenced brokers (KIP-1073) are treated like all others
var describeCluster = apiSpec{key: keyDescribeCluster, mapAddresses: (*addressEditor).mapCluster}

// mapCluster edits brokers, which are endpoint type 1, and leaves out controllers.
func (e *addressEditor) mapCluster() {
	e.r.Int32() // throttle
	e.r.Int16() // error
	e.r.String()
	hide := e.v >= 1 && e.r.Int8() != 1
	e.r.String() // cluster id
	controller := e.base + e.r.at
	e.r.Int32()
	e.mapBrokers(func() {
		e.r.String() // rack
		if e.v >= 2 {
			e.r.Bool() // fenced
		}
	}, hide)
	if len(e.removed) > 0 && e.err == nil && e.r.err == nil {
		e.replaceController(controller)
	}
}
