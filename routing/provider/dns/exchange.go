package dns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/miekg/dns"
)

// errMalformed reports an answer to our question that cannot be parsed.
var errMalformed = errors.New("malformed answer")

// ask asks the servers in order for the records of a name, and returns the first
// answer that says what they are or that there are none.
func (l *lookup) ask(ctx context.Context, name string, qtype uint16) (*dns.Msg, error) {
	select {
	case l.slots <- struct{}{}:
		defer func() { <-l.slots }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	var reasons []string
	for round := range rounds {
		for _, server := range l.servers {
			m, err := l.askServer(ctx, server, name, qtype)
			if err == nil {
				l.unanswered.add(reasons)
				return m, nil
			}
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			if round == 0 {
				reasons = append(reasons, fmt.Sprintf("%s: %s", server, l.cause(err)))
			}
		}
	}
	return nil, fmt.Errorf("no DNS server answers for the %s records of %s (%s): check the servers, or list others",
		dns.TypeToString[qtype], name, strings.Join(reasons, "; "))
}

// askServer asks one server: by TCP if the answer is too large for UDP, and
// without EDNS0 if the server does not know that.
func (l *lookup) askServer(ctx context.Context, server netip.AddrPort, name string, qtype uint16) (*dns.Msg, error) {
	question := new(dns.Msg).SetQuestion(name, qtype)
	question.SetEdns0(uint16(l.cfg.UDPSize), false)
	m, err := l.send(ctx, server, question)
	if err == nil && (m.Rcode == dns.RcodeFormatError || m.Rcode == dns.RcodeNotImplemented) {
		m, err = l.send(ctx, server, new(dns.Msg).SetQuestion(name, qtype))
	}
	switch {
	case err != nil:
		return nil, err
	case m.Rcode == dns.RcodeNameError:
		return m, nil
	case m.Rcode != dns.RcodeSuccess:
		return nil, fmt.Errorf("answers %s", rcode(m.Rcode))
	case len(m.Answer) == 0 && !m.Authoritative && !m.RecursionAvailable:
		return nil, errors.New("refers to other servers; it does not look names up for others")
	}
	return m, nil
}

func rcode(code int) string {
	if text, ok := dns.RcodeToString[code]; ok {
		return text
	}
	return fmt.Sprintf("code %d", code)
}

// send sends a question by UDP, and by TCP if the answer does not fit.
func (l *lookup) send(ctx context.Context, server netip.AddrPort, question *dns.Msg) (*dns.Msg, error) {
	m, err := l.sendBy(ctx, "udp", server, question)
	if errors.Is(err, errMalformed) || err == nil && m.Truncated {
		m, err = l.sendBy(ctx, "tcp", server, question)
		if err == nil && m.Truncated {
			return nil, errors.New("its answer by TCP is truncated")
		}
	}
	return m, err
}

func (l *lookup) sendBy(ctx context.Context, network string, server netip.AddrPort, question *dns.Msg) (*dns.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, l.cfg.Timeout)
	defer cancel()
	return l.exchange(ctx, network, server, question)
}

// cause returns the reason of a failed exchange without the ports of the socket,
// so that the same failure reads the same.
func (l *lookup) cause(err error) string {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) {
		return "no answer in " + l.cfg.Timeout.String()
	}
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err.Error()
	}
	return err.Error()
}

// exchange sends a message from a socket of its own, whose port the kernel
// chooses at random, and waits for its answer until ctx ends.
func exchange(ctx context.Context, network string, server netip.AddrPort, m *dns.Msg) (*dns.Msg, error) {
	var dialer net.Dialer
	socket, err := dialer.DialContext(ctx, network, server.String())
	if err != nil {
		return nil, err
	}
	defer socket.Close()
	defer context.AfterFunc(ctx, func() { _ = socket.SetDeadline(time.Unix(1, 0)) })()
	conn := &dns.Conn{Conn: socket, UDPSize: dns.MinMsgSize}
	if edns := m.IsEdns0(); edns != nil {
		conn.UDPSize = edns.UDPSize()
	}
	if err := conn.WriteMsg(m); err != nil {
		return nil, err
	}
	for {
		data, err := conn.ReadMsgHeader(nil)
		if errors.Is(err, dns.ErrShortRead) {
			continue
		}
		if err != nil {
			return nil, err
		}
		// Anyone can send a datagram that claims to be the server's: what does not
		// answer the question is ignored.
		if answer, err := parse(data, m); answer != nil || err != nil {
			return answer, err
		}
		if network == "tcp" {
			return nil, errors.New("answers another question")
		}
	}
}

// parse returns the answer to a question that data holds; nil if it answers
// another question or none.
func parse(data []byte, question *dns.Msg) (*dns.Msg, error) {
	if len(data) < 2 || uint16(data[0])<<8|uint16(data[1]) != question.Id {
		return nil, nil
	}
	m := new(dns.Msg)
	if err := m.Unpack(data); err != nil {
		return nil, fmt.Errorf("%w: %w", errMalformed, err)
	}
	if !m.Response || m.Opcode != dns.OpcodeQuery {
		return nil, nil
	}
	if len(m.Question) == 0 && (m.Rcode == dns.RcodeFormatError || m.Rcode == dns.RcodeNotImplemented) {
		return m, nil // a server that understood nothing repeats nothing
	}
	if len(m.Question) != 1 {
		return nil, nil
	}
	asked, answered := question.Question[0], m.Question[0]
	if answered.Qtype != asked.Qtype || answered.Qclass != asked.Qclass ||
		dns.CanonicalName(answered.Name) != dns.CanonicalName(asked.Name) {
		return nil, nil
	}
	return m, nil
}
