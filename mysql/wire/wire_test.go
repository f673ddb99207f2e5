package wire

import (
	"bytes"
	"encoding/hex"
	"errors"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// reparse parses a payload of a kind and appends it again.
func reparse(kind string, p []byte, caps Capabilities) ([]byte, any, error) {
	switch kind {
	case "greeting":
		g, err := ParseGreeting(p)
		return AppendGreeting(nil, &g), g, err
	case "login":
		l, err := ParseLogin(p)
		return AppendLogin(nil, &l), l, err
	case "tls":
		l, is, err := ParseSSLRequest(p)
		if err == nil && !is {
			err = ErrMalformed
		}
		return AppendSSLRequest(nil, &l), l, err
	case "change user":
		c, err := ParseChangeUser(p, caps)
		return AppendChangeUser(nil, &c, caps), c, err
	case "ok":
		o, err := ParseOK(p, caps)
		return AppendOK(nil, &o, caps), o, err
	case "eof":
		warnings, status, err := ParseEOF(p)
		return AppendEOF(nil, warnings, status), [2]uint16{warnings, uint16(status)}, err
	case "error":
		e, err := ParseError(p)
		return AppendError(nil, &e), e, err
	case "auth switch":
		s, err := ParseAuthSwitch(p)
		return AppendAuthSwitch(nil, &s), s, err
	}
	panic(kind)
}

var kinds = []string{"greeting", "login", "tls", "change user", "ok", "eof", "error", "auth switch"}

// What servers and clients sent is understood, and written in the same bytes.
func TestCaptures(t *testing.T) {
	text, err := os.ReadFile("testdata/mariadb.txt")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		kind, digits, _ := strings.Cut(strings.TrimSpace(line), " ")
		p, err := hex.DecodeString(digits)
		if err != nil {
			t.Fatal(err)
		}
		again, value, err := reparse(kind, p, 0)
		if err != nil || !bytes.Equal(again, p) {
			t.Errorf("%s: %v\n got %x\nwant %x", kind, err, again, p)
		}
		switch v := value.(type) {
		case Greeting:
			if !strings.HasPrefix(v.ServerVersion, "5.5.5-10.11.19-MariaDB") || v.Extensions != 0x1d || v.Plugin != "mysql_native_password" {
				t.Errorf("%+v", v)
			}
		case Login:
			if v.User != "app" || len(v.Auth) != 20 || !bytes.Contains(v.Attributes, []byte("_client_name")) {
				t.Errorf("%+v", v)
			}
		case Error:
			if v.Code != 1064 || v.State != "42000" {
				t.Errorf("%+v", v)
			}
		}
		n++
	}
	if n < 10 {
		t.Errorf("only %d captures", n)
	}
}

// Each payload without some of its end is refused or is another payload; no error
// says what a field holds.
func TestCutPayloads(t *testing.T) {
	const secret = "s3cret"
	caps := Protocol41 | PluginAuth | SecureConnection | ConnectAttrs | ConnectWithDB
	login := Login{Capabilities: caps, User: secret, Database: secret, Plugin: secret, Auth: []byte(secret)}
	login.Attributes = AppendString(AppendString(nil, secret), secret)
	greeting := Greeting{ServerVersion: secret, Capabilities: caps, Plugin: secret}
	change := ChangeUser{User: secret, Database: secret, Plugin: secret, Auth: []byte(secret), Attributes: login.Attributes}
	for kind, p := range map[string][]byte{
		"greeting": AppendGreeting(nil, &greeting), "login": AppendLogin(nil, &login), "tls": AppendSSLRequest(nil, &login),
		"change user": AppendChangeUser(nil, &change, caps), "ok": AppendOK(nil, &OK{LastInsertID: 1 << 40}, caps),
		"eof": AppendEOF(nil, 1, Autocommit), "error": AppendError(nil, &Error{Code: 1, State: "HY000"}),
		"auth switch": AppendAuthSwitch(nil, &AuthSwitch{Plugin: secret}),
	} {
		_, whole, err := reparse(kind, p, caps)
		if err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		for n := range p {
			again, value, err := reparse(kind, p[:n], caps)
			switch {
			case err == nil && reflect.DeepEqual(value, whole) && len(again) == len(p) && kind != "greeting" && kind != "tls":
				t.Errorf("%s: %d of %d bytes are taken as whole", kind, n, len(p))
			case err != nil && strings.Contains(err.Error(), secret):
				t.Errorf("%s: %v", kind, err)
			}
		}
		if kind == "ok" || kind == "error" || kind == "auth switch" {
			continue // the last field takes what follows
		}
		if _, _, err := reparse(kind, append(p, 'x', 0), caps); err == nil {
			t.Errorf("%s: bytes after the end are taken", kind)
		}
	}
}

func TestRefusals(t *testing.T) {
	if _, err := ParseGreeting(append([]byte{0xff, 0x10, 4}, "Too many connections"...)); !reflect.DeepEqual(err, error(Error{1040, "", "Too many connections"})) {
		t.Errorf("a greeting with an error: %v", err)
	}
	for what, err := range map[string]error{
		"a login of 3.20":    second(ParseLogin([]byte{5, 0, 0, 0, 0, 'r', 0, 0})),
		"a greeting of 4.0":  second(ParseGreeting(append([]byte("\x0a4.0\x00"), make([]byte, 15)...))),
		"a password of 3.20": second(ParseAuthSwitch([]byte{0xfe})),
		"a request of 4.0":   func() error { _, _, err := ParseSSLRequest(append([]byte{0, 8}, make([]byte, 30)...)); return err }(),
	} {
		if !errors.Is(err, ErrTooOld) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestLoginForms(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.StringMatching(`[a-z\x{80}-\x{ff}]{0,40}`)
		l := Login{
			Capabilities: Protocol41 | Capabilities(rapid.Uint32().Draw(t, "capabilities")), MaxPacket: rapid.Uint32().Draw(t, "max packet"),
			Collation: rapid.Byte().Draw(t, "collation"), User: word.Draw(t, "user"), Auth: []byte(word.Draw(t, "auth")),
		}
		if l.Capabilities&LongPassword == 0 {
			l.Extensions = rapid.Uint32().Draw(t, "extensions")
		}
		if l.Capabilities&PluginAuthLenencClientData != 0 {
			l.Auth = rapid.SliceOfN(rapid.Byte(), 0, 400).Draw(t, "long auth")
		}
		if l.Capabilities&ConnectWithDB != 0 {
			l.Database = word.Draw(t, "database")
		}
		if l.Capabilities&PluginAuth != 0 {
			l.Plugin = word.Draw(t, "plugin")
		}
		if l.Capabilities&ConnectAttrs != 0 {
			l.Attributes = AppendString(AppendString([]byte{}, word.Draw(t, "key")), word.Draw(t, "value"))
		}
		if l.Capabilities&ZstdCompressionAlgorithm != 0 {
			l.ZstdLevel = rapid.Byte().Draw(t, "level")
		}
		got, err := ParseLogin(AppendLogin(nil, &l))
		if len(l.Auth) == 0 {
			l.Auth, got.Auth = nil, nil
		}
		if err != nil || !reflect.DeepEqual(got, l) {
			t.Fatalf("%v\n got %+v\nwant %+v", err, got, l)
		}
	})
}

func TestOKForms(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		caps := Capabilities(rapid.Uint32().Draw(t, "capabilities"))
		o := OK{
			AffectedRows: rapid.Uint64().Draw(t, "rows"), LastInsertID: rapid.Uint64().Draw(t, "id"), Warnings: rapid.Uint16().Draw(t, "warnings"),
			Status: Status(rapid.Uint16().Draw(t, "status")) &^ SessionStateChanged, Info: rapid.String().Draw(t, "info"),
			EndsRows: rapid.Bool().Draw(t, "ends rows"),
		}
		if caps&SessionTrack != 0 && rapid.Bool().Draw(t, "changed") {
			o.Status |= SessionStateChanged
			o.Changes = rapid.SliceOfN(rapid.Byte(), 1, 50).Draw(t, "changes")
		}
		got, err := ParseOK(AppendOK(nil, &o, caps), caps)
		if err != nil || !reflect.DeepEqual(got, o) {
			t.Fatalf("%v\n got %+v\nwant %+v", err, got, o)
		}
	})
}

func TestPacketsSplit(t *testing.T) {
	for _, size := range []int{0, 1, MaxPayload - 1, MaxPayload, MaxPayload + 1} {
		p := AppendPacket(nil, 255, make([]byte, size))
		seq, total := byte(255), 0
		for {
			n, s := ParseHeader(p)
			if s != seq {
				t.Errorf("number %d, want %d", s, seq)
			}
			total, seq, p = total+n, seq+1, p[HeaderSize+n:]
			if n < MaxPayload {
				break
			}
		}
		if total != size || len(p) != 0 {
			t.Errorf("%d of %d bytes, %d left", total, size, len(p))
		}
	}
}

func TestStatesAnswers(t *testing.T) {
	const json = `{"a":"it's \"so\""}`
	column := func(name string) []byte {
		p := AppendString(AppendString(AppendString(AppendString(nil, "def"), ""), ""), "")
		return append(AppendString(AppendString(p, name), name), make([]byte, 13)...)
	}
	row := AppendString(AppendString(nil, json), "token")
	for caps, answer := range map[Capabilities][][]byte{
		0:            {{2}, column("Session_states"), column("Session_token"), AppendEOF(nil, 0, 0), row, AppendEOF(nil, 0, 2)},
		DeprecateEOF: {{2}, column("Session_states"), column("Session_token"), row, AppendOK(nil, &OK{EndsRows: true}, DeprecateEOF)},
	} {
		var r StatesReader
		for i, p := range answer {
			if done, err := r.Add(p, caps); err != nil || done != (i == len(answer)-1) {
				t.Fatalf("%v, packet %d: %v, %v", caps, i, done, err)
			}
		}
		if r.States.JSON != json || string(r.States.Token) != "token" {
			t.Errorf("%+v", r.States)
		}
		for i := range answer { // a packet that is missing, doubled or damaged is an error
			for what, bad := range map[string][][]byte{
				"missing": append(append([][]byte{}, answer[:i]...), answer[i+1:]...),
				"doubled": append(append([][]byte{}, answer[:i+1]...), answer[i:]...),
				"empty":   append(append([][]byte{}, answer[:i]...), nil),
			} {
				var r StatesReader
				done, err := false, error(nil)
				for _, p := range bad {
					if done, err = r.Add(p, caps); err != nil {
						break
					}
				}
				if done && err == nil {
					t.Errorf("%v, packet %d %s: taken", caps, i, what)
				}
			}
		}
	}
	if got, want := string(AppendSetStates(nil, `\'`)), "\x03SET SESSION_STATES '\\\\\\''"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// No input makes a parser panic; what is parsed is parsed again from what is
// written of it.
func FuzzParse(f *testing.F) {
	text, err := os.ReadFile("testdata/mariadb.txt")
	if err != nil {
		f.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		kind, digits, _ := strings.Cut(strings.TrimSpace(line), " ")
		for i, k := range kinds {
			if p, err := hex.DecodeString(digits); err == nil && k == kind {
				f.Add(byte(i), uint32(0xffffffff), p)
			}
		}
	}
	f.Fuzz(func(t *testing.T, kind byte, caps uint32, p []byte) {
		name, before := kinds[int(kind)%len(kinds)], bytes.Clone(p)
		again, value, err := reparse(name, p, Capabilities(caps))
		if !bytes.Equal(p, before) {
			t.Fatalf("%s: the input was modified", name)
		}
		if err != nil {
			return
		}
		if len(again) > 2*len(p)+60 {
			t.Fatalf("%s: %d bytes became %d", name, len(p), len(again))
		}
		_, second, err := reparse(name, again, Capabilities(caps))
		if e, ok := value.(Error); ok && e.State == "" && strings.HasPrefix(e.Message, "#") {
			return
		}
		if o, ok := value.(OK); ok && o.Changes != nil && len(o.Changes) == 0 || ok && o.Status&SessionStateChanged != 0 {
			return // changes without content are left out
		}
		if c, ok := value.(ChangeUser); ok && c.Attributes == nil {
			return // the attributes are written, without content
		}
		if l, ok := value.(Login); ok && l.Attributes == nil {
			return
		}
		if err != nil || !reflect.DeepEqual(second, value) {
			t.Fatalf("%s of %x: %v\n got %+v\nwant %+v", name, before, err, second, value)
		}
	})
}

func FuzzStatesReader(f *testing.F) {
	f.Add([]byte("\x01\x02"), true)
	f.Fuzz(func(_ *testing.T, stream []byte, eof bool) {
		var r StatesReader
		caps := Capabilities(0)
		if !eof {
			caps = DeprecateEOF
		}
		for len(stream) > 0 {
			n := min(int(stream[0]), len(stream)-1)
			if _, err := r.Add(stream[1:1+n], caps); err != nil {
				return
			}
			stream = stream[1+n:]
		}
	})
}

func BenchmarkParseHeader(b *testing.B) {
	p := AppendHeader(nil, 70_000, 3)
	b.ReportAllocs()
	for b.Loop() {
		if n, _ := ParseHeader(p); n != 70_000 {
			b.Fatal(n)
		}
	}
}

func BenchmarkParseOK(b *testing.B) {
	p := AppendOK(nil, &OK{AffectedRows: 1000, LastInsertID: 1 << 20, Status: Autocommit}, Protocol41)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ParseOK(p, Protocol41); err != nil {
			b.Fatal(err)
		}
	}
}

// Connector/J sends the end of a database's name where there is none.
func TestLoginWithAnEmptyDatabase(t *testing.T) {
	const caps = Protocol41 | LongPassword | SecureConnection | PluginAuth
	for name, want := range map[string]Login{
		"plugin":     {Capabilities: caps, User: "app", Auth: []byte("proof"), Plugin: "caching_sha2_password"},
		"attributes": {Capabilities: caps | ConnectAttrs, User: "app", Auth: []byte("proof"), Plugin: "mysql_native_password", Attributes: AppendString(AppendString(nil, "_client_name"), "MySQL Connector/J")},
	} {
		p := AppendLogin(nil, &want)
		at := loginFixed + len("app\x00") + 1 + len("proof")
		got, err := ParseLogin(slices.Insert(bytes.Clone(p), at, 0))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, want)
		}
		for _, extra := range []string{"x", "x\x00", "\x00\x00"} {
			if got, err := ParseLogin(slices.Insert(bytes.Clone(p), at, []byte(extra)...)); err == nil && got.Plugin == want.Plugin {
				t.Errorf("%s: %q before the plugin is taken", name, extra)
			}
		}
	}
}
