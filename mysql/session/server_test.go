package session_test

import (
	"io"
	"net"
	"testing"

	"penstock/mysql/wire"
)

// serverCaps are those of servers of a few lines.
const serverCaps = clientCaps | wire.ConnectAttrs

// greeting is the greeting of such a server.
func greeting() []byte {
	return wire.AppendGreeting(nil, &wire.Greeting{ServerVersion: "5.7", Capabilities: serverCaps, Plugin: "mysql_native_password"})
}

// readPacket reads a packet; nil: the connection has ended.
func readPacket(c net.Conn) (payload []byte, seq byte) {
	header := make([]byte, wire.HeaderSize)
	if _, err := io.ReadFull(c, header); err != nil {
		return nil, 0
	}
	n, seq := wire.ParseHeader(header)
	p := make([]byte, n)
	if _, err := io.ReadFull(c, p); err != nil {
		return nil, 0
	}
	return p, seq
}

// greet greets a client and lets it in.
func greet(t testing.TB, c net.Conn) {
	t.Helper()
	_, err := c.Write(wire.AppendPacket(nil, 0, greeting()))
	if err != nil {
		t.Error(err)
		return
	}
	_, seq := readPacket(c)
	if _, err := c.Write(wire.AppendPacket(nil, seq+1, wire.AppendOK(nil, &wire.OK{Status: wire.Autocommit}, serverCaps))); err != nil {
		t.Error(err)
	}
}
