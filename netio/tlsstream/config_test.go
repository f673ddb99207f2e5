package tlsstream

import (
	"crypto/tls"
	"crypto/x509"
	"testing"

	"penstock/internal/testkit/certs"
)

// resumed counts how many of n connections of the client resume a session.
func resumed(t *testing.T, r role, server, client *tls.Config, n int) (count int) {
	t.Helper()
	for range n {
		e := connect(t, r, server, client)
		if e.s.ConnectionState().DidResume {
			count++
		}
		// One byte each way: a TLS 1.3 ticket comes after the handshake.
		e.loop.do(func() { e.s.Send([]byte("x")) })
		_, err := e.peer.Read(make([]byte, 1))
		must(t, err)
		_, err = e.peer.Write([]byte("y"))
		must(t, err)
		e.received(t, 1)
	}
	return count
}

func TestSessionsResume(t *testing.T) {
	eachKind(t, func(t *testing.T, version uint16, r role) {
		server, client := configs(t, version)
		if n := resumed(t, r, server, client, 4); n != 3 {
			t.Fatalf("%d of 4 resumed", n)
		}
	})
}

// Two nodes, or two configs of one, with the same keys.
func TestSharedTicketsResumeAnywhere(t *testing.T) {
	for name, version := range versions {
		t.Run(name, func(t *testing.T) {
			first, client := configs(t, version)
			second := first.Clone()
			keys := [][32]byte{{1}, {2}}
			for _, c := range []*tls.Config{first, second} {
				tickets := NewTickets()
				tickets.SetKeys(keys)
				tickets.Share(c, "edge")
			}
			resumed(t, asServer, first, client, 1)
			if resumed(t, asServer, second, client, 1) != 1 {
				t.Error("not resumed on the second one")
			}
		})
	}
}

func TestTicketKeysAreReplaced(t *testing.T) {
	server, client := configs(t, 0)
	tickets := NewTickets()
	tickets.Share(server, "edge")
	tickets.SetKeys([][32]byte{{1}})
	resumed(t, asServer, server, client, 1)
	tickets.SetKeys([][32]byte{{2}, {1}}) // the old one still decrypts
	if resumed(t, asServer, server, client, 1) != 1 {
		t.Error("not resumed with the previous key")
	}
	tickets.SetKeys([][32]byte{{3}})
	if resumed(t, asServer, server, client, 1) != 0 {
		t.Error("resumed with a key that is gone")
	}
}

// A session of one tenant must not open the door of another.
func TestTicketsAreBoundToScopeAndName(t *testing.T) {
	for name, version := range versions {
		t.Run(name, func(t *testing.T) {
			a := certs.NewCA("clients")
			server, client := configs(t, version)
			server.ClientAuth, server.ClientCAs = tls.RequireAndVerifyClientCert, a.Pool
			client.Certificates = []tls.Certificate{a.Issue("tenant-1").TLS}
			other := server.Clone()
			tickets := NewTickets()
			tickets.Share(server, "tenant-1")
			tickets.Share(other, "tenant-2")
			resumed(t, asServer, server, client, 1)
			if resumed(t, asServer, server, client, 1) != 1 {
				t.Fatal("not resumed at its own")
			}
			if resumed(t, asServer, other, client, 1) != 0 {
				t.Error("resumed in another scope")
			}
			// The same cache entry, another name in the hello.
			cache := client.ClientSessionCache
			renamed := client.Clone()
			renamed.ServerName = "www.example.com"
			renamed.InsecureSkipVerify = true
			renamed.ClientSessionCache = oneSession{cache}
			resumed(t, asServer, server, client, 1)
			if resumed(t, asServer, server, renamed, 1) != 0 {
				t.Error("resumed under another name")
			}
		})
	}
}

// oneSession gives the session of serverName for every name.
type oneSession struct{ tls.ClientSessionCache }

func (o oneSession) Get(string) (*tls.ClientSessionState, bool) {
	return o.ClientSessionCache.Get(serverName)
}

func TestDefaultsKeepWhatIsSet(t *testing.T) {
	cache := tls.NewLRUClientSessionCache(1)
	c := Defaults(&tls.Config{MinVersion: tls.VersionTLS13, ClientSessionCache: cache, RootCAs: x509.NewCertPool()})
	if c.MinVersion != tls.VersionTLS13 || c.ClientSessionCache != cache {
		t.Fatalf("%+v", c)
	}
	if c := Defaults(&tls.Config{}); c.MinVersion != tls.VersionTLS12 || c.ClientSessionCache == nil {
		t.Fatalf("%+v", c)
	}
}
