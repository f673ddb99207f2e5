package wire

// FindCoordinator (API key 10) returns the broker that coordinates a group, a
// transactional id or a share group's partition.
//
//	request   v0+    passed; filters see it decoded
//	response  v0-3   one broker at the top level gets its virtual address
//	          v4+    an array of brokers get theirs (KIP-699)
//	          v0+    a broker without a virtual address becomes none: node -1,
//	                 no host, and COORDINATOR_NOT_AVAILABLE if there was no error
//
// A response with node -1 and no host is an error already and stays as it is.
var findCoordinator = apiSpec{key: keyFindCoordinator, mapAddresses: (*addressEditor).mapCoordinators}

func (e *addressEditor) mapCoordinators() {
	if e.v >= 1 {
		e.r.Int32() // throttle
	}
	if e.v <= 3 {
		e.mapCoordinator()
		return
	}
	for range e.r.Array() {
		if e.mapCoordinatorV4(); e.err != nil || e.r.err != nil {
			return
		}
	}
}

// mapCoordinator maps a response of v0-3: error, message (v1+), broker.
func (e *addressEditor) mapCoordinator() {
	from := e.r.at
	code := e.r.Int16()
	middle := e.r.at
	if e.v >= 1 {
		e.r.String()
	}
	end := e.r.at
	id := e.r.Int32()
	host, _ := e.r.String()
	port := e.r.Int32()
	if id == -1 && len(host) == 0 || e.r.err != nil {
		return // no broker: the response is an error
	}
	vhost, vport, ok := e.mapNode(id, host, port)
	if !ok {
		id, vport, vhost = -1, -1, ""
		if e.hidden++; code == 0 {
			code = errCoordinatorNotAvailable
		}
	}
	e.copyTo(from)
	e.out = AppendInt16(e.out, code)
	e.done = middle
	e.copyTo(end)
	e.out = AppendInt32(e.out, id)
	e.out = AppendString(e.out, vhost, e.r.Flexible)
	e.out = AppendInt32(e.out, vport)
	e.done = e.r.at
}

// mapCoordinatorV4 maps an element of v4+: key, broker, error, message.
func (e *addressEditor) mapCoordinatorV4() {
	e.r.String()
	from := e.r.at
	id := e.r.Int32()
	host, _ := e.r.String()
	port := e.r.Int32()
	code := e.r.Int16()
	end := e.r.at
	e.r.String()
	e.r.Tags()
	if id == -1 && len(host) == 0 || e.r.err != nil {
		return
	}
	vhost, vport, ok := e.mapNode(id, host, port)
	if !ok {
		id, vport, vhost = -1, -1, ""
		if e.hidden++; code == 0 {
			code = errCoordinatorNotAvailable
		}
	}
	e.copyTo(from)
	e.out = AppendInt32(e.out, id)
	e.out = AppendString(e.out, vhost, true)
	e.out = AppendInt32(e.out, vport)
	e.out = AppendInt16(e.out, code)
	e.done = end
}
