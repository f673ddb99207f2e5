package accesslog

import "strconv"

// appendEnvoy appends a line as Envoy writes it by default:
//
//	[START] "METHOD PATH PROTOCOL" STATUS FLAGS IN OUT DURATION - "-" "-" "-" "AUTHORITY" "ENDPOINT"
//
// Durations are in milliseconds. FLAGS are Envoy's response flags. The four fields between
// DURATION and AUTHORITY, x-envoy-upstream-service-time, x-forwarded-for, user-agent and
// x-request-id, are not recorded. Envoy does not escape; here a byte that is not printable
// ASCII, a quote and a backslash are \xHH. A TCP connection has "- - -", status 0, and as
// authority its server name. The end of a connection whose requests have lines has none.
func appendEnvoy(dst []byte, r *Record) []byte {
	if onlyRequests(r) {
		return dst
	}
	dst = append(dst, '[')
	dst = r.At.Add(-r.Duration).UTC().AppendFormat(dst, "2006-01-02T15:04:05.000Z")
	dst = append(dst, `] "`...)
	status, authority := 0, r.SNI
	if q := r.Request; q != nil {
		status, authority = q.Status, q.Host
		dst = append(appendEnvoyText(dst, q.Method), ' ')
		dst = append(appendEnvoyText(dst, q.Path), ' ')
		dst = appendEnvoyText(dst, q.Proto)
	} else {
		dst = append(dst, "- - -"...)
	}
	dst = append(dst, `" `...)
	dst = append(strconv.AppendInt(dst, int64(status), 10), ' ')
	dst = append(append(dst, responseFlags(r)...), ' ')
	dst = append(strconv.AppendUint(dst, r.In, 10), ' ')
	dst = append(strconv.AppendUint(dst, r.Out, 10), ' ')
	dst = strconv.AppendInt(dst, r.Duration.Milliseconds(), 10)
	dst = append(dst, ` - "-" "-" "-" "`...)
	dst = appendEnvoyText(dst, authority)
	dst = append(dst, `" "`...)
	return append(appendEnvoyText(dst, r.Endpoint), '"')
}

// flags are Envoy's response flags by reason.
var flags = map[string]string{
	"client_reset": "DC", "client_gone": "DC", "upstream_reset": "UC", "connect_refused": "UF", "connect_error": "UF", "connect_timeout": "UF",
	"upstream_tls": "UF", "retries_exhausted": "URX", "no_route": "NR", "no_listener": "NR", "no_backend": "NC", "no_endpoint": "UH",
	"no_healthy_endpoint": "UH", "upstream_overflow": "UO", "queue_timeout": "UO", "idle_timeout": "SI", "half_closed_timeout": "SI",
	"max_age": "DT", "request_timeout": "UT", "response_timeout": "UT", "no_answer": "UPE", "rate_limited": "RL", "limit_rate": "RL",
	"limit_memory": "OM", "limit_requests": "OM", "limit_handshakes": "OM", "limit_files": "OM", "limit_connections": "OM",
	"limit_per_source": "OM", "permission_denied": "UAEX", "permission_revoked": "UAEX", "bad_path": "DPE", "bad_method": "DPE",
	"bad_request": "DPE", "bad_body": "DPE", "too_many_fields": "DPE", "bad_hello": "DPE", "hello_too_long": "DPE", "handshake_failed": "DPE",
	"bad_proxy_header": "DPE", "body_timeout": "SI",
}

// responseFlags returns the flags of a record; - is none.
func responseFlags(r *Record) string {
	if f, ok := flags[r.Reason]; ok && r.Event != Connected && r.Event != Ongoing {
		return f
	}
	return "-"
}

// appendEnvoyText appends text that is inside quotes; nothing is -.
func appendEnvoyText(dst []byte, s string) []byte {
	if s == "" {
		return append(dst, '-')
	}
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			dst = append(dst, '\\', 'x', upperHex[c>>4], upperHex[c&15])
		} else {
			dst = append(dst, c)
		}
	}
	return dst
}
