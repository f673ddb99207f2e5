package health

import (
	"bytes"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"penstock/internal/testkit"
)

// packet returns a packet of MySQL's protocol with less than 256 bytes.
func packet(seq byte, payload string) string {
	return string([]byte{byte(len(payload)), 0, 0, seq}) + payload
}

// greetingOf returns the greeting of a server.
func greetingOf(version string) string {
	return packet(0, "\x0a"+version+"\x00"+"\x01\x00\x00\x00"+"saltsalt\x00"+"\xff\xf7"+"\x21"+"\x02\x00"+"\xff\x81\x15"+
		strings.Repeat("\x00", 10)+"saltsaltsalt\x00"+"mysql_native_password\x00")
}

func TestProbesOfMySQL(t *testing.T) {
	t.Parallel()
	tidb := greetingOf("8.0.11-TiDB-v8.5.0")
	for name, tc := range map[string]struct {
		handle func(net.Conn)
		check  Check
		want   string
	}{
		"a greeting of TiDB":      {says(tidb), Check{}, ""},
		"a greeting in pieces":    {saysSlowly(tidb), Check{}, ""},
		"after a preface":         {afterPreface("PROXY UNKNOWN\r\n", says(tidb)), Check{Preface: "PROXY UNKNOWN\r\n"}, ""},
		"a server that then ends": {func(c net.Conn) { io.WriteString(c, greetingOf("8.0.36")) }, Check{}, ""},
		"one that says no more":   {says(greetingOf("10.11.6-MariaDB")), Check{Timeout: short}, ""},
		"too many connections": {says(packet(0, "\xff\x10\x04Too many connections")), Check{},
			"greeting: the server refuses connections: 1040 Too many connections"},
		"an error with an SQL state": {says(packet(0, "\xff\x69\x04#HY000Host 'a' is blocked\x1b[0m\xff")), Check{},
			"greeting: the server refuses connections: 1129 Host 'a' is blocked?[0m?"},
		"an error cut off":   {says(packet(0, "\xff\x10")), Check{}, "greeting: not a greeting of MySQL's protocol 10"},
		"another protocol":   {says(packet(0, "\x09"+tidb[5:])), Check{}, "greeting: not a greeting of MySQL's protocol 10"},
		"a version unending": {says(packet(0, "\x0a8.0.36")), Check{}, "greeting: not a greeting of MySQL's protocol 10"},
		"a greeting too short": {says(packet(0, "\x0a8.0.36\x00\x01\x00\x00\x00saltsalt\x00\xff")), Check{},
			"greeting: not a greeting of MySQL's protocol 10"},
		"an empty packet":         {says(packet(0, "")), Check{}, "greeting: not a greeting of MySQL's protocol 10"},
		"a packet too long":       {says("\x01\x10\x00\x00"), Check{}, "greeting: not a greeting of MySQL's protocol 10"},
		"a packet out of turn":    {says(packet(1, tidb[4:])), Check{}, "greeting: not a greeting of MySQL's protocol 10"},
		"a server of HTTP":        {says("HTTP/1.1 400 Bad Request\r\n\r\n"), Check{}, "greeting: not a greeting of MySQL's protocol 10"},
		"a packet cut off":        {func(c net.Conn) { io.WriteString(c, tidb[:20]) }, Check{}, "greeting: connection closed before the full response"},
		"a server that ends":      {halfCloses, Check{}, "greeting: connection closed before the full response"},
		"a server that is silent": {silent, Check{Timeout: short}, "greeting: timeout after 500ms"},
	} {
		t.Run(name, func(t *testing.T) {
			tc.check.Type = MySQL
			address := testkit.Serve(t, tc.handle)
			if got := ask(t, address, address, tc.check); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestServersErrorIsCut(t *testing.T) {
	t.Parallel()
	err := refusal([]byte("\xff\x10\x04" + strings.Repeat("x", 1000)))
	if want := errRefused.Error() + ": 1040 " + strings.Repeat("x", maxErr); err.Error() != want {
		t.Errorf("%q", err)
	}
}

// MySQL and MariaDB block the host of a client that disconnects, or sends COM_QUIT, where
// they expect a login. So the check logs in, and out if it may.
func TestProbesOfMySQLLogOut(t *testing.T) {
	t.Parallel()
	login := string(appendLogin(nil))
	nothing := "\x00\x00\x00"
	for name, tc := range map[string]struct {
		version string
		turns   []string // what the server expects, and what it says, in turn
	}{
		"a user that is refused": {"10.11.6-MariaDB", []string{login, packet(2, "\xff\x15\x04#28000Access denied")}},
		"a user that is let in":  {"8.0.36", []string{login, packet(2, "\x00\x00\x00\x02\x00\x00\x00"), "\x01\x00\x00\x00\x01", ""}},
		"other authentication": {"8.0.36", []string{
			login, packet(2, "\xfecaching_sha2_password\x00salt\x00"), nothing + "\x03", packet(4, "\xff\x15\x04#28000Access denied"),
		}},
		"without an end": {"8.0.36", []string{
			login, packet(2, "\xfea\x00"), nothing + "\x03", packet(4, "\xfea\x00"), nothing + "\x05", packet(6, "\xfea\x00"), nothing + "\x07", "",
		}},
		"TiDB, which needs none": {"8.0.11-TiDB-v8.5.0", nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := make(chan string, 1)
			address := testkit.Serve(t, func(c net.Conn) {
				io.WriteString(c, greetingOf(tc.version))
				for i := 0; i < len(tc.turns); i += 2 {
					buf := make([]byte, len(tc.turns[i]))
					if _, err := io.ReadFull(c, buf); err != nil || string(buf) != tc.turns[i] {
						got <- "turn " + string(buf)
						return
					}
					io.WriteString(c, tc.turns[i+1])
				}
				rest, err := io.ReadAll(c)
				if err != nil {
					rest = []byte(err.Error())
				}
				got <- string(rest)
			})
			if fault := ask(t, address, address, Check{Type: MySQL}); fault != "" {
				t.Error(fault)
			}
			if rest := <-got; rest != "" {
				t.Errorf("the server got %q besides, want an orderly end", rest)
			}
		})
	}
}

// The status of TiDB is at another port than its endpoint.
func TestProbesAtAnotherPort(t *testing.T) {
	t.Parallel()
	address := testkit.Serve(t, says("220 "))
	_, port, _ := net.SplitHostPort(address)
	var n uint16
	for _, c := range port {
		n = n*10 + uint16(c-'0')
	}
	if got := ask(t, "127.0.0.1:1", "127.0.0.1:1", Check{Expect: "220 ", Port: n}); got != "" {
		t.Errorf("tcp: %s", got)
	}
	path := serveUnix(t, says("220 "))
	if got := ask(t, "unix:"+path, path, Check{Expect: "220 ", Port: 1}); got != "" {
		t.Errorf("unix: %s", got)
	}
	if got := (&Check{Port: 10080}).hostPort("db.example.com:4000"); got != "db.example.com:10080" {
		t.Errorf("the host of a check by HTTP is %s", got)
	}
	a, b := &Check{Interval: time.Second}, &Check{Interval: time.Second, Port: 1}
	if a.key() == b.key() {
		t.Error("checks of different ports share a probe")
	}
}

func FuzzParseGreeting(f *testing.F) {
	f.Add([]byte(greetingOf("8.0.36"))[4:])
	f.Add([]byte("\xff\x10\x04Too many connections"))
	f.Fuzz(func(t *testing.T, p []byte) {
		if len(p) == 0 {
			return // readPacket returns none
		}
		version, err := parseGreeting(p)
		if err == nil && (p[0] != mysqlProtocol || !bytes.Contains(p, []byte(version+"\x00"))) {
			t.Errorf("%q: version %q", p, version)
		}
		if err != nil && len(err.Error()) > 300 {
			t.Errorf("%q: %d bytes of error", p, len(err.Error()))
		}
	})
}
