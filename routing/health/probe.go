package health

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/textproto"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"penstock/routing/scheduler"
)

// Bounds of the data that a probe keeps.
const (
	maxAnswer = 64 << 10 // bytes of an HTTP response up to its final status line
	maxErr    = 200      // bytes of an error's text
)

// Errors of probes, wrapped with the step that failed.
var (
	errTimeout = errors.New("timeout")
	errShort   = errors.New("connection closed before the full response")
	errAnswer  = errors.New("unexpected response")
	errNotHTTP = errors.New("invalid HTTP response")
	errStatus  = errors.New("status not accepted")
)

// probeKey is equal for targets that can share one probe.
type probeKey struct {
	network, address string
	host             string // of the configured address, if the check sends it
	check            string
}

// probe checks one address with one Check. Its address and check are immutable;
// the Checker's mutex guards the rest.
type probe struct {
	key   probeKey
	id    ID // 0: not shared
	check *Check
	tls   *tls.Config // nil for a probe without TLS
	host  string      // for HTTP's Host header
	entry *scheduler.Entry

	version string // of a MySQL server, in its greeting

	verdict
	subscribers map[targetKey]*subscriber
	since       time.Time // last change of verdict.health
	ownResult   bool      // the last result is this node's own
	checked     time.Time
	took        time.Duration
	errText     string
	errAt       time.Time
}

func keyOf(t Target, check string) probeKey {
	key := probeKey{network: "tcp", address: t.Check.at(t.Endpoint.Addr).String(), check: check}
	if t.Endpoint.Unix != "" {
		key.network, key.address = "unix", t.Endpoint.Unix
	}
	if t.Check.Type == HTTP || t.Check.TLS != nil {
		key.host = t.Check.hostPort(t.Endpoint.Address)
	}
	return key
}

func newProbe(key probeKey, t Target) *probe {
	p := &probe{key: key, id: idOf(key, t.Check), check: t.Check, host: t.Check.Host, subscribers: map[targetKey]*subscriber{}}
	if p.host == "" {
		p.host = t.Check.hostPort(t.Endpoint.Address)
		if t.Endpoint.Unix != "" {
			p.host = "localhost"
		}
	}
	p.tls = t.Check.clientTLS(t.Endpoint.Address)
	return p
}

// at returns the address that the check of an endpoint connects to.
func (c *Check) at(endpoint netip.AddrPort) netip.AddrPort {
	if c.Port == 0 {
		return endpoint
	}
	return netip.AddrPortFrom(endpoint.Addr(), c.Port)
}

// hostPort is at for an address as configured, which may have a host name.
func (c *Check) hostPort(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil && c.Port != 0 {
		return net.JoinHostPort(host, strconv.Itoa(int(c.Port)))
	}
	return address
}

// clientTLS returns the configuration for a probe of that address, or nil.
func (c *Check) clientTLS(address string) *tls.Config {
	switch {
	case c.TLS == nil && c.Type == TLS:
		// With TLS passthrough only the endpoint's clients can verify its
		// certificate.
		return &tls.Config{ServerName: c.Host, InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}
	case c.TLS == nil || c.Type == TCP || c.Type == MySQL:
		return nil
	}
	cfg := c.TLS.Clone()
	cfg.ClientSessionCache = nil // a resumed session would not show a new certificate
	if host, _, err := net.SplitHostPort(address); cfg.ServerName == "" && err == nil {
		cfg.ServerName = host
	}
	if c.Type == HTTP {
		cfg.NextProtos = []string{"http/1.1"}
	}
	return cfg
}

// run runs one probe.
func (p *probe) run(ctx context.Context, dial func(ctx context.Context, network, address string) (net.Conn, error)) error {
	ctx, cancel := context.WithTimeout(ctx, p.check.timeout())
	defer cancel()
	step, err := p.steps(ctx, dial)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w after %v", step, errTimeout, p.check.timeout())
	default:
		return fmt.Errorf("%s: %w", step, err)
	}
}

// steps runs the steps of a probe and returns the name of the step that failed.
func (p *probe) steps(ctx context.Context, dial func(ctx context.Context, network, address string) (net.Conn, error)) (string, error) {
	conn, err := dial(ctx, p.key.network, p.key.address)
	if err != nil {
		return "connect", err
	}
	defer conn.Close()
	// Closing the connection ends all reads and writes below at the timeout.
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if _, err := io.WriteString(conn, p.check.Preface); p.check.Preface != "" && err != nil {
		return "send", err
	}
	if p.tls != nil {
		secure := tls.Client(conn, p.tls)
		if err := secure.HandshakeContext(ctx); err != nil {
			return "handshake", err
		}
		defer secure.Close()
		conn = secure
	}
	switch p.check.Type {
	case HTTP:
		return "http", p.get(conn)
	case MySQL:
		return "greeting", p.greeting(conn)
	}
	if _, err := io.WriteString(conn, p.check.Send); p.check.Send != "" && err != nil {
		return "send", err
	}
	return "expect", p.expect(conn)
}

// expect reads only until the response matches or differs.
func (p *probe) expect(conn net.Conn) error {
	want := p.check.Expect
	buf := make([]byte, len(want))
	for got := 0; got < len(want); {
		n, err := conn.Read(buf[got:])
		if string(buf[got:got+n]) != want[got:got+n] {
			return errAnswer // without the bytes, which may be confidential
		}
		got += n
		if err != nil && got < len(want) {
			if errors.Is(err, io.EOF) {
				return errShort
			}
			return err
		}
	}
	return nil
}

// get sends an HTTP/1.1 request and checks the status; it does not read the
// body.
func (p *probe) get(conn net.Conn) error {
	target, err := url.ParseRequestURI("/" + strings.TrimPrefix(p.check.Path, "/"))
	if err != nil {
		return err
	}
	req := &http.Request{
		Method: http.MethodGet, URL: target, Host: p.host, Close: true,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"User-Agent": {"penstock-health"}},
	}
	if err := req.Write(conn); err != nil {
		return err
	}
	status, err := readStatus(io.LimitReader(conn, maxAnswer))
	if err != nil {
		return httpError(err)
	}
	if !p.check.passes(status) {
		return fmt.Errorf("%w (%d)", errStatus, status)
	}
	return nil
}

// readStatus returns the status of an HTTP/1 response, skipping interim
// responses (RFC 9110, 15.2). It does not parse what follows the status line.
func readStatus(r io.Reader) (int, error) {
	answer := textproto.NewReader(bufio.NewReaderSize(r, 1<<10))
	for {
		line, err := answer.ReadLine()
		if err != nil {
			return 0, err
		}
		status, ok := statusOf(line)
		if !ok {
			return 0, errNotHTTP
		}
		if status >= 200 || status == http.StatusSwitchingProtocols {
			return status, nil
		}
		if _, err := answer.ReadMIMEHeader(); err != nil {
			return 0, err
		}
	}
}

// statusOf returns the status in a line such as "HTTP/1.1 200 OK".
func statusOf(line string) (status int, ok bool) {
	version, rest, _ := strings.Cut(line, " ")
	digits, _, _ := strings.Cut(rest, " ")
	if version != "HTTP/1.1" && version != "HTTP/1.0" || len(digits) != 3 {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 16)
	return int(n), err == nil && n >= 100
}

// httpError returns connection errors as they are, and hides the content of an
// invalid response.
func httpError(err error) error {
	var op *net.OpError
	switch {
	case errors.As(err, &op):
		return err
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errShort
	}
	return errNotHTTP
}

// ErrorText returns an error's text without the redundant addresses and system
// calls, bounded by maxErr; "" for nil.
func ErrorText(err error) string {
	if err == nil {
		return ""
	}
	text := err.Error()
	var op *net.OpError
	if errors.As(err, &op) && (op.Addr != nil || op.Source != nil) {
		inner := op.Err
		if call := (*os.SyscallError)(nil); errors.As(inner, &call) {
			inner = call.Err
		}
		text = strings.Replace(text, op.Error(), inner.Error(), 1)
	}
	text = strings.ToValidUTF8(text, "?")
	if len(text) > maxErr {
		text = strings.ToValidUTF8(text[:maxErr], "") + "..."
	}
	return text
}
