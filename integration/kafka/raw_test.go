package kafka

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// rawConn speaks the protocol on one connection, one request at a time, without
// a client library: every version, every field as given.
type rawConn struct {
	net.Conn
	correlation int32
	limit       time.Duration // per round trip
}

var rawFormat = kmsg.NewRequestFormatter(kmsg.FormatterClientID("raw"))

// raw opens a raw connection to an address of the target, with SASL PLAIN if
// the target has a user.
func (g target) raw(ctx context.Context, address string) (*rawConn, error) {
	c, err := g.dial(ctx, address)
	if err != nil {
		return nil, err
	}
	r := &rawConn{Conn: c, limit: 15 * time.Second}
	if g.user == "" {
		return r, nil
	}
	hello := kmsg.NewPtrSASLHandshakeRequest()
	hello.Mechanism, hello.Version = "PLAIN", 1
	auth := kmsg.NewPtrSASLAuthenticateRequest()
	auth.SASLAuthBytes, auth.Version = []byte("\x00"+g.user+"\x00"+g.password), 2
	for _, req := range []kmsg.Request{hello, auth} {
		if _, _, err := r.ask(req); err != nil {
			c.Close()
			return nil, fmt.Errorf("authentication: %w", err)
		}
	}
	if resp, _, err := r.ask(auth); err == nil && resp.(*kmsg.SASLAuthenticateResponse).ErrorCode != 0 {
		c.Close()
		return nil, fmt.Errorf("authentication as %s: error %d", g.user, resp.(*kmsg.SASLAuthenticateResponse).ErrorCode)
	}
	return r, nil
}

// ask sends a request at its version and decodes the response; frame is the raw
// response without its length.
func (c *rawConn) ask(req kmsg.Request) (resp kmsg.Response, frame []byte, err error) {
	c.correlation++
	if err := c.SetDeadline(time.Now().Add(c.limit)); err != nil {
		return nil, nil, err
	}
	if _, err := c.Write(rawFormat.AppendRequest(nil, req, c.correlation)); err != nil {
		return nil, nil, err
	}
	if frame, err = c.readFrame(); err != nil {
		return nil, nil, err
	}
	if got := int32(binary.BigEndian.Uint32(frame)); got != c.correlation {
		return nil, frame, fmt.Errorf("got correlation id %d, want %d", got, c.correlation)
	}
	resp, err = decode(req, frame)
	return resp, frame, err
}

// readFrame reads one response without its length.
func (c *rawConn) readFrame() ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return nil, err
	}
	const most = 64 << 20
	n := int32(binary.BigEndian.Uint32(head[:]))
	if n < 4 || n > most {
		return nil, fmt.Errorf("a frame of %d bytes", n)
	}
	frame := make([]byte, n)
	_, err := io.ReadFull(c, frame)
	return frame, err
}

// decode decodes a frame as the response to a request.
func decode(req kmsg.Request, frame []byte) (kmsg.Response, error) {
	resp := req.ResponseKind()
	body := frame[4:]
	// The header of ApiVersions never has tagged fields; other flexible headers
	// have them, but always empty.
	if resp.IsFlexible() && req.Key() != int16(kmsg.ApiVersions) {
		if len(body) == 0 || body[0] != 0 {
			return nil, fmt.Errorf("%s v%d: tags in the header", kmsg.NameForKey(req.Key()), req.GetVersion())
		}
		body = body[1:]
	}
	if err := resp.ReadFrom(body); err != nil {
		return nil, fmt.Errorf("%s v%d: %w", kmsg.NameForKey(req.Key()), req.GetVersion(), err)
	}
	return resp, nil
}
