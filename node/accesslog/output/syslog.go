package output

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"time"

	"penstock/node/accesslog"
)

const (
	// dialTimeout and sendTimeout bound one attempt to reach a syslog server, and to send
	// lines to one that does not read.
	dialTimeout, sendTimeout = 5 * time.Second, 5 * time.Second
	// maxDatagram bounds a message that is sent as a datagram, in bytes: what rsyslog and
	// syslog-ng take unless told otherwise. The end of a longer one is cut off.
	maxDatagram = 8 << 10
)

// The severities of messages (RFC 5424, section 6.2.1).
const (
	severityWarning = 4 // failures
	severityInfo    = 6
)

// syslog sends each line as a message of RFC 5424: as datagrams by UDP (RFC 5426) and to
// the local socket, and as octet-counted frames by TCP (RFC 6587) and TLS (RFC 5425).
type syslog struct {
	network, address string
	tls              *tls.Config // nil: none
	facility         int
	name             string // HOSTNAME
	pid              string

	conn   net.Conn
	framed bool
	buffer []byte
}

// Write implements accesslog.Output. Of a stream, what is counted as written is in the
// system's buffers: a server that goes away may lose it.
func (s *syslog) Write(ctx context.Context, lines []accesslog.Line) (int, error) {
	if s.conn == nil {
		if err := s.dial(ctx); err != nil {
			return 0, err
		}
	}
	conn := s.conn
	_ = conn.SetWriteDeadline(time.Now().Add(sendTimeout))
	defer context.AfterFunc(ctx, func() { _ = conn.SetWriteDeadline(time.Unix(1, 0)) })()
	n, err := s.send(lines)
	if err != nil {
		_ = s.conn.Close()
		s.conn = nil
	}
	return n, err
}

func (s *syslog) send(lines []accesslog.Line) (int, error) {
	if s.framed {
		return s.sendFrames(lines)
	}
	for i := range lines {
		s.buffer = s.appendMessage(s.buffer[:0], &lines[i])
		message := s.buffer[:min(len(s.buffer), maxDatagram)]
		if _, err := s.conn.Write(message); err != nil {
			return i, err
		}
	}
	return len(lines), nil
}

// sendFrames sends as many lines at once as fit into a buffer.
func (s *syslog) sendFrames(lines []accesslog.Line) (int, error) {
	const most = 64 << 10
	for done := 0; done < len(lines); {
		s.buffer = s.buffer[:0]
		var ends []int
		for end := done; end < len(lines) && len(s.buffer) < most; end++ {
			message := s.appendMessage(nil, &lines[end])
			s.buffer = append(strconv.AppendInt(s.buffer, int64(len(message)), 10), ' ')
			s.buffer = append(s.buffer, message...)
			ends = append(ends, len(s.buffer))
		}
		n, err := s.conn.Write(s.buffer)
		for _, end := range ends {
			if end <= n {
				done++
			}
		}
		if err != nil {
			return done, err
		}
	}
	return len(lines), nil
}

// appendMessage appends a message:
//
//	<PRI>1 TIMESTAMP HOSTNAME penstock PID access - LINE
func (s *syslog) appendMessage(dst []byte, l *accesslog.Line) []byte {
	severity := severityInfo
	if l.Failed {
		severity = severityWarning
	}
	dst = append(strconv.AppendInt(append(dst, '<'), int64(s.facility*8+severity), 10), ">1 "...)
	dst = l.At.AppendFormat(dst, "2006-01-02T15:04:05.000000Z07:00")
	dst = append(append(append(dst, ' '), s.name...), " penstock "...)
	dst = append(append(dst, s.pid...), " access - "...)
	return append(dst, l.Text...)
}

func (s *syslog) dial(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	if s.network == "unix" {
		return s.dialLocal(ctx)
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, s.network, s.address)
	if err != nil {
		return err
	}
	if s.tls != nil {
		secured := tls.Client(conn, s.tls)
		if err := secured.HandshakeContext(ctx); err != nil {
			_ = conn.Close()
			return err
		}
		conn = secured
	}
	s.conn, s.framed = conn, s.network == "tcp"
	if s.framed {
		closeWithPeer(conn)
	}
	return nil
}

// closeWithPeer closes the connection once the server has: a write would succeed, and the
// line would be lost. Servers send nothing.
func closeWithPeer(conn net.Conn) {
	go func() {
		_, _ = io.Copy(io.Discard, conn)
		_ = conn.Close()
	}()
}

// dialLocal connects to a socket of either type.
func (s *syslog) dialLocal(ctx context.Context) (err error) {
	var faults []error
	for _, network := range []string{"unixgram", "unix"} {
		var d net.Dialer
		conn, err := d.DialContext(ctx, network, s.address)
		if err == nil {
			s.conn, s.framed = conn, network == "unix"
			if s.framed {
				closeWithPeer(conn)
			}
			return nil
		}
		faults = append(faults, err)
	}
	return errors.Join(faults...)
}

// Close implements accesslog.Output.
func (s *syslog) Close() error {
	if s.conn == nil {
		return nil
	}
	return s.conn.Close()
}

// headerName returns the name as HOSTNAME of a message: printable ASCII, at most 255
// bytes; - stands for none.
func headerName(name string) string {
	b := make([]byte, 0, len(name))
	for i := range min(len(name), 255) {
		if c := name[i]; c > ' ' && c <= '~' {
			b = append(b, c)
		} else {
			b = append(b, '_')
		}
	}
	if len(b) == 0 {
		return "-"
	}
	return string(b)
}

func processID() string { return strconv.Itoa(os.Getpid()) }
