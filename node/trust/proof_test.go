package trust

import (
	"crypto/tls"
	"errors"
	"testing"
	"time"
)

func TestBothSidesProveTheSecret(t *testing.T) {
	a := join(t, newCA(t, "c1"), "a", time.Now())
	key := NewExpectToken().ProofKey()
	s, c := meet(t, ServerConfig(always(a)), JoinConfig())
	if s.err != nil || c.err != nil {
		t.Fatal(s.err, c.err)
	}
	dialer, acceptor := must(Prove(key, Dialer, &c.cs))(t), must(Prove(key, Acceptor, &s.cs))(t)
	if err := errors.Join(Check(key, Dialer, &s.cs, dialer), Check(key, Acceptor, &c.cs, acceptor)); err != nil {
		t.Fatal(err)
	}
	other := NewExpectToken().ProofKey()
	next, _ := meet(t, ServerConfig(always(a)), JoinConfig())
	for name, err := range map[string]error{
		"another secret":     Check(other, Dialer, &s.cs, dialer),
		"sent back":          Check(key, Acceptor, &c.cs, dialer),
		"another connection": Check(key, Dialer, &next.cs, dialer),
		"cut":                Check(key, Dialer, &s.cs, dialer[:31]),
		"none":               Check(key, Dialer, &s.cs, nil),
	} {
		if !errors.Is(err, ErrProof) {
			t.Errorf("%s: %v, want ErrProof", name, err)
		}
	}
}

func TestSomeoneBetweenFailsTheProof(t *testing.T) {
	a := join(t, newCA(t, "c1"), "a", time.Now())
	key := NewExpectToken().ProofKey()
	// The relay terminates TLS on both sides, with a certificate that the joiner
	// cannot distinguish from a node's, and forwards the proofs.
	relay := base()
	relay.Certificates = []tls.Certificate{must(Ephemeral())(t)}
	joinerSide, joiner := meet(t, relay, JoinConfig())
	member, memberSide := meet(t, ServerConfig(always(a)), JoinConfig())
	for _, e := range []end{joinerSide, joiner, member, memberSide} {
		if e.err != nil {
			t.Fatal(e.err)
		}
	}
	if err := Check(key, Dialer, &member.cs, must(Prove(key, Dialer, &joiner.cs))(t)); !errors.Is(err, ErrProof) {
		t.Errorf("the member takes a relayed proof: %v", err)
	}
	if err := Check(key, Acceptor, &joiner.cs, must(Prove(key, Acceptor, &member.cs))(t)); !errors.Is(err, ErrProof) {
		t.Errorf("the joiner takes a relayed proof: %v", err)
	}
}

func TestProofNeedsAChannel(t *testing.T) {
	key := NewExpectToken().ProofKey()
	cert := must(Ephemeral())(t)
	server := &tls.Config{Certificates: []tls.Certificate{cert}}
	client := JoinConfig()
	client.MinVersion, client.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	_, old := meet(t, server, client)
	if old.err != nil {
		t.Fatal(old.err)
	}
	for name, cs := range map[string]*tls.ConnectionState{"none": nil, "no handshake": {}, "TLS 1.2": &old.cs} {
		if _, err := Prove(key, Dialer, cs); !errors.Is(err, ErrChannel) {
			t.Errorf("%s: %v, want ErrChannel", name, err)
		}
		if err := Check(key, Dialer, cs, nil); !errors.Is(err, ErrChannel) {
			t.Errorf("%s: %v, want ErrChannel", name, err)
		}
	}
	_, c := meet(t, ServerConfig(always(nil)), JoinConfig())
	if _, err := Prove(nil, Dialer, &c.cs); !errors.Is(err, ErrChannel) {
		t.Errorf("an empty key: %v, want ErrChannel", err)
	}
}

func TestProofKeysDifferByKindAndCluster(t *testing.T) {
	secret := newSecret(randomBytes(32))
	seen := map[string]string{}
	for _, token := range []Token{
		{Kind: Expect, Secret: secret}, {Kind: Join, ClusterID: "c1", Secret: secret},
		{Kind: Join, ClusterID: "c2", Secret: secret}, {Kind: Join, ClusterID: "c1", Secret: newSecret(randomBytes(32))},
	} {
		key := string(token.ProofKey())
		if old, ok := seen[key]; ok || len(key) != 32 {
			t.Errorf("%s of %q has the key of %s, or one of %d bytes", token, token.ClusterID, old, len(key))
		}
		seen[key] = token.String() + " of " + token.ClusterID
	}
}
