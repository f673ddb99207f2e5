package accesslog

import (
	"strconv"
	"strings"
)

// appendHAProxy appends a line as HAProxy's "option tcplog" writes it, and for a request
// as "option httplog" does:
//
//	CLIENT:PORT [ACCEPTED] LISTENER SERVICE/ENDPOINT Tw/Tc/Tt BYTES STATE ac/fc/bc/sc/RETRIES sq/bq
//	CLIENT:PORT [ACCEPTED] LISTENER SERVICE/ENDPOINT TR/Tw/Tc/Tr/Ta STATUS BYTES - - STATE-- ac/fc/bc/sc/RETRIES sq/bq "REQUEST"
//
// As in HAProxy, times are in milliseconds, -1 for what did not happen; a ~ behind the
// listener says that TLS was terminated; <NOSRV> stands for no endpoint; a + before time
// and bytes says that they go on. Not known, and 0: the time in queues (Tw, and TR and Tr of
// a request), the numbers of connections (ac, fc, bc, sc) and of queued ones (sq, bq). The
// end of a connection whose requests have lines has none.
func appendHAProxy(dst []byte, r *Record) []byte {
	if onlyRequests(r) {
		return dst
	}
	if r.Client.IsValid() {
		dst = append(r.Client.Addr().Unmap().AppendTo(dst), ':')
		dst = strconv.AppendUint(dst, uint64(r.Client.Port()), 10)
	} else {
		dst = append(dst, "unix:0"...)
	}
	dst = append(dst, " ["...)
	dst = r.At.Add(-r.Duration).AppendFormat(dst, "02/Jan/2006:15:04:05.000")
	dst = append(dst, "] "...)
	dst = appendName(dst, r.Listener)
	if r.TLS != "" {
		dst = append(dst, '~')
	}
	dst = append(dst, ' ')
	if r.Service == "" { // HAProxy writes the frontend
		dst = append(appendName(dst, r.Listener), "/<NOSRV> "...)
	} else {
		dst = append(appendName(dst, r.Service), '/')
		if r.Endpoint == "" {
			dst = append(dst, "<NOSRV>"...)
		}
		dst = append(appendHash(dst, r.Endpoint, " \"#"), ' ')
	}
	if r.Request != nil {
		dst = appendHAProxyHTTP(dst, r)
	} else {
		dst = appendHAProxyTCP(dst, r)
	}
	dst = append(dst, " 0/0/0/0/"...)
	dst = strconv.AppendInt(dst, int64(max(r.Attempts-1, 0)), 10)
	dst = append(dst, " 0/0"...)
	if r.Request != nil {
		dst = append(dst, ` "`...)
		dst = appendRequestLine(dst, r.Request)
		dst = append(dst, '"')
	}
	return dst
}

// onlyRequests reports whether a format whose proxy writes lines about requests alone has
// none for this record.
func onlyRequests(r *Record) bool {
	return r.Event == Closed && r.Requests > 0 && !r.Failed()
}

func appendHAProxyTCP(dst []byte, r *Record) []byte {
	connect, wait := int64(-1), int64(-1)
	if connected(r) {
		connect, wait = r.Connect.Milliseconds(), 0
	} else if r.Attempts > 0 {
		wait = 0
	}
	more := ""
	if r.Event != Closed {
		more = "+"
	}
	dst = append(strconv.AppendInt(dst, wait, 10), '/')
	dst = append(strconv.AppendInt(dst, connect, 10), '/')
	dst = append(append(dst, more...), strconv.FormatInt(r.Duration.Milliseconds(), 10)...)
	dst = append(append(append(dst, ' '), more...), strconv.FormatUint(r.Out, 10)...)
	return append(append(dst, ' '), termination(r)...)
}

func appendHAProxyHTTP(dst []byte, r *Record) []byte {
	wait, connect, answer, status := "-1", "-1", "-1", r.Request.Status
	if connected(r) {
		wait, connect = "0", "0" // the connection may be older
		if status != 0 {
			answer = "0"
		}
	}
	if status == 0 {
		status = -1
	}
	dst = append(dst, "0/"...)
	for _, t := range []string{wait, connect, answer} {
		dst = append(append(dst, t...), '/')
	}
	dst = append(strconv.AppendInt(dst, r.Duration.Milliseconds(), 10), ' ')
	dst = append(strconv.AppendInt(dst, int64(status), 10), ' ')
	dst = append(strconv.AppendUint(dst, r.Out, 10), " - - "...)
	dst = append(dst, termination(r)...)
	return append(dst, "--"...)
}

// appendRequestLine appends the first line of a request. What the client did not send is
// left out, and so is the query.
func appendRequestLine(dst []byte, q *Request) []byte {
	method, path := q.Method, q.Path
	if method == "" && path == "" {
		return append(dst, "<BADREQ>"...)
	}
	dst = append(appendHash(dst, method, " \"#"), ' ')
	dst = appendHash(dst, path, " \"#")
	if q.Proto != "" {
		dst = appendHash(append(dst, ' '), q.Proto, " \"#")
	}
	return dst
}

// connected reports whether an endpoint has accepted.
func connected(r *Record) bool {
	if r.Attempts == 0 || r.Endpoint == "" {
		return false
	}
	switch r.Reason {
	case "connect_refused", "connect_timeout", "connect_error", "upstream_tls", "retries_exhausted", "client_gone", "limit_ports", "limit_files",
		"limit_handshakes":
		return false
	}
	return r.Connect > 0 || r.Request != nil
}

// states are HAProxy's termination states by reason: who ended it and why, and in which
// phase. R: waiting for the client's first bytes, Q: in a queue, C: connecting, D: data.
var states = map[string]string{
	"": "--", "client_fin": "--", "upstream_fin": "--", "acme_challenge": "--",
	"client_reset": "CD", "upstream_reset": "SD", "client_gone": "CR", "no_answer": "SH", "bad_body": "CD",
	"connect_refused": "SC", "connect_error": "SC", "upstream_tls": "SC", "connect_timeout": "sC", "retries_exhausted": "SC",
	"no_endpoint": "SC", "no_healthy_endpoint": "SC", "no_backend": "SC", "mesh_unavailable": "SC", "upstream_overflow": "SQ",
	"queue_timeout": "sQ", "idle_timeout": "cD", "half_closed_timeout": "cD", "max_age": "LD",
	"drained": "KD", "shutdown": "KD", "endpoint_removed": "DD", "identity_revoked": "KD", "permission_revoked": "KD",
	"proxy_timeout": "cR", "hello_timeout": "cR", "handshake_timeout": "cR", "mesh_header_timeout": "cR", "body_timeout": "cD",
	"mysql_login_timeout": "cR", "kafka_frame_timeout": "cD", "kafka_ask_timeout": "sD", "request_timeout": "sD", "response_timeout": "sH",
	"limit_memory": "RR", "limit_files": "RC", "limit_ports": "RC", "limit_handshakes": "RR", "limit_requests": "RR",
	"internal_error": "ID",
}

// termination returns the state; what is not in the table was refused before it was
// routed.
func termination(r *Record) string {
	if r.Event == Connected || r.Event == Ongoing {
		return "--"
	}
	if s, ok := states[r.Reason]; ok {
		if s == "CR" && r.Attempts > 0 {
			return "CC"
		}
		return s
	}
	return "PR"
}

// appendName appends a name in which / would end the field.
func appendName(dst []byte, name string) []byte {
	if name == "" {
		return append(dst, '-')
	}
	return appendHash(dst, name, " \"#/")
}

// appendHash appends text in HAProxy's encoding: # and two hexadecimal digits for each
// byte that is not printable ASCII, or in special.
func appendHash(dst []byte, s, special string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || strings.IndexByte(special, c) >= 0 {
			dst = append(dst, '#', upperHex[c>>4], upperHex[c&15])
		} else {
			dst = append(dst, c)
		}
	}
	return dst
}

const upperHex = "0123456789ABCDEF"
