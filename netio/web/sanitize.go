package web

import (
	"fmt"
	"net/http"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// sanitize refuses what net/http takes from clients, those of HTTP/2 above all, and
// would not write for an endpoint, or not so that it can be read in one way. It
// has to be found here: there it would look like a fault of the endpoint.
func sanitize(r *http.Request) error {
	if !token(r.Method) {
		return fmt.Errorf("%w: the method %.40q", ErrRequest, r.Method)
	}
	for i := range len(r.Host) {
		if r.Host[i] >= 0x80 { // would become a name that nobody asked for
			return fmt.Errorf("%w: the host %.40q", ErrRequest, r.Host)
		}
	}
	if r.Host == "" && r.ProtoAtLeast(1, 1) {
		return fmt.Errorf("%w: it names no host", ErrRequest)
	}
	for _, host := range r.Header["Host"] { // of HTTP/2, beside :authority (RFC 9113, section 8.3.1)
		if !strings.EqualFold(host, r.Host) {
			return fmt.Errorf("%w: two hosts, %.40q and %.40q", ErrRequest, r.Host, host)
		}
	}
	if !httpguts.ValidHostHeader(r.Host) {
		return fmt.Errorf("%w: the host %.40q", ErrRequest, r.Host)
	}
	// Other bytes are written as they came: many clients do not escape them.
	for i := range len(r.URL.RawQuery) {
		if c := r.URL.RawQuery[i]; c <= ' ' || c == 0x7f {
			return fmt.Errorf("%w: a blank or control character in the query", ErrRequest)
		}
	}
	for name := range r.Trailer {
		if !token(name) {
			return fmt.Errorf("%w: the trailer %.40q", ErrRequest, name)
		}
	}
	for _, value := range r.Header["Upgrade"] {
		for i := range len(value) {
			if c := value[i]; c < ' ' || c >= 0x7f {
				return fmt.Errorf("%w: an upgrade to %.40q", ErrRequest, value)
			}
		}
	}
	return nil
}
