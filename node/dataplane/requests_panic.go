package dataplane

import (
	"penstock/netio"
	"penstock/netio/web"
)

// fault ends a request when Route panics: web does not have its Done yet. web logs
// the panic and cuts the request off.
func (q *request) fault() {
	if v := recover(); v != nil {
		q.why = netio.Internal
		q.done(web.Outcome{Err: web.ErrFault})
		panic(v)
	}
}
