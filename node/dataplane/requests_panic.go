package dataplane

import (
	"penstock/netio"
	"penstock/netio/web"
)

// endOnPanic ends a request when Route panics: web does not have its Done yet. web logs
// the panic and cuts the request off.
func (q *request) endOnPanic() {
	if v := recover(); v != nil {
		q.reason = netio.Internal
		q.done(web.Outcome{Err: web.ErrFault})
		panic(v)
	}
}
