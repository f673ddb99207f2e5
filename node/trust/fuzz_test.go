package trust

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func FuzzParseToken(f *testing.F) {
	token, _, err := Mint(Join, "join", "a", "b", time.Hour, "c1", [32]byte{1}, time.Now())
	if err != nil {
		f.Fatal(err)
	}
	for _, s := range []string{
		token.Reveal(), NewExpectToken().Reveal(), "pst1.", "",
		withChecksum("j\x02c1"), withChecksum("a\xff"), withChecksum("e"),
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		token, err := ParseToken(text)
		if err != nil {
			return
		}
		if again, err := ParseToken(token.Reveal()); err != nil || again != token {
			t.Errorf("%q came back as another token: %v", text, err)
		}
	})
}

// FuzzTokenBody is FuzzParseToken with a valid checksum, which fuzzing never
// finds.
func FuzzTokenBody(f *testing.F) {
	f.Add([]byte("j\x02c1" + string(make([]byte, 68))))
	f.Add([]byte("e" + string(make([]byte, 32))))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if len(raw) == 0 {
			return
		}
		token, err := parseToken(raw)
		if err != nil {
			return
		}
		if again, err := ParseToken(token.Reveal()); err != nil || again != token {
			t.Errorf("%x came back as another token: %v", raw, err)
		}
	})
}

func FuzzKeyringOpen(f *testing.F) {
	ring, err := NewKeyring()
	if err != nil {
		f.Fatal(err)
	}
	sealed, err := ring.Seal([]byte("a"), []byte("plain"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte("a"), sealed)
	f.Add([]byte("a"), sealed[:sealHeader])
	f.Add([]byte(""), []byte{sealMark, sealFormat})
	f.Fuzz(func(t *testing.T, aad, b []byte) {
		plain, err := ring.Open(aad, b)
		if err == nil && (!bytes.Equal(b, sealed) || string(aad) != "a" || string(plain) != "plain") {
			t.Errorf("%x opened, and was not sealed here", b)
		}
	})
}

func FuzzParseKeyring(f *testing.F) {
	ring, err := NewKeyring()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(ring.Marshal())
	f.Add([]byte(keyringPrefix))
	f.Fuzz(func(t *testing.T, b []byte) {
		ring, err := ParseKeyring(b)
		if err != nil {
			return
		}
		if again, err := ParseKeyring(ring.Marshal()); err != nil || !again.Equal(ring) {
			t.Errorf("another ring came back: %v", err)
		}
	})
}

func FuzzParseCA(f *testing.F) {
	ca, err := NewCA("c1", "", time.Now())
	if err != nil {
		f.Fatal(err)
	}
	next, err := ca.Next(time.Now())
	if err != nil {
		f.Fatal(err)
	}
	for _, ca := range []*CA{ca, next} {
		text, err := ca.Marshal()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		ca, err := ParseCA(b)
		if err != nil {
			return
		}
		text, err := ca.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		if again, err := ParseCA(text); err != nil || again.Digest() != ca.Digest() {
			t.Errorf("another CA came back: %v", err)
		}
	})
}

func FuzzCheckRequest(f *testing.F) {
	id, err := NewIdentity("a")
	if err != nil {
		f.Fatal(err)
	}
	der, err := id.Request()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(der)
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := CheckRequest(b); err == nil && checkID("node", r.NodeID) != nil {
			t.Errorf("a request of node %q was taken", r.NodeID)
		}
	})
}

func FuzzParseTokenRecord(f *testing.F) {
	ring, err := NewKeyring()
	if err != nil {
		f.Fatal(err)
	}
	_, record, err := Mint(Join, "join", "a", "b", time.Hour, "c1", [32]byte{1}, time.Now())
	if err != nil {
		f.Fatal(err)
	}
	stored, err := record.Marshal(ring)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(stored)
	f.Add([]byte(`{"format":1}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if got, err := ParseTokenRecord(ring, b); err == nil && (got.ID != record.ID || got.Role != record.Role || got.Kind != record.Kind) {
			t.Errorf("%q was taken as a record", b)
		}
	})
}

// FuzzLoadIdentity corrupts one of a node's files.
func FuzzLoadIdentity(f *testing.F) {
	ca, err := NewCA("c1", "", time.Now())
	if err != nil {
		f.Fatal(err)
	}
	id, err := NewIdentity("a")
	if err != nil {
		f.Fatal(err)
	}
	leaf, err := ca.Issue(&id.key.PublicKey, id.NodeID, "a", time.Now())
	if err != nil {
		f.Fatal(err)
	}
	ring, err := NewKeyring()
	if err != nil {
		f.Fatal(err)
	}
	if id, err = id.Join("c1", leaf, ca.Bundle(), ring); err != nil {
		f.Fatal(err)
	}
	good := f.TempDir()
	if err := id.Save(good); err != nil {
		f.Fatal(err)
	}
	names := []string{nodeFile, certFile, keyFile, caFile, ringFile}
	files := map[string][]byte{}
	for i, name := range names {
		if files[name], err = os.ReadFile(filepath.Join(good, name)); err != nil {
			f.Fatal(err)
		}
		f.Add(byte(i), files[name])
	}
	f.Add(byte(0), []byte(`{"format":1,"nodeId":"aa"}`))
	f.Fuzz(func(t *testing.T, which byte, b []byte) {
		dir := t.TempDir()
		for name, data := range files {
			if name == names[int(which)%len(names)] {
				data = b
			}
			if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		got, err := LoadIdentity(dir)
		if err != nil {
			return
		}
		if got.Joined() && (got.NodeID != id.NodeID || got.ClusterID != "c1") {
			t.Errorf("it came back as %s", got)
		}
	})
}
