package trust

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestNodeJoinsByProofAndComesBack runs the whole join protocol as node/cluster
// does.
func TestNodeJoinsByProofAndComesBack(t *testing.T) {
	now := time.Now()
	ca := newCA(t, "c1")
	ring := newRing(t)
	member := join(t, ca, "member", now)
	token, record, err := Mint(Join, "join", "edge", "local", time.Hour, "c1", ca.Digest(), now)
	if err != nil {
		t.Fatal(err)
	}
	stored := must(record.Marshal(ring))(t)

	// The new node has only its folder and the text of the token.
	dir := t.TempDir()
	mustSave(t, must(NewIdentity("edge-1"))(t), dir)
	alone := must(LoadIdentity(dir))(t)
	shown := must(ParseToken(token.Reveal()))(t)
	s, c := meet(t, ServerConfig(always(member)), TokenConfig(shown))
	if s.err != nil || c.err != nil {
		t.Fatal(s.err, c.err)
	}
	proof := must(Prove(shown.ProofKey(), Dialer, &c.cs))(t)
	request := must(alone.Request())(t)

	// The member loads the token's record, verifies the proof, proves and signs.
	known := must(ParseTokenRecord(ring, stored))(t)
	key, ok := known.ProofKey()
	if err := Check(key, Dialer, &s.cs, proof); err != nil || !ok || known.Valid(now) != nil {
		t.Fatal(err, ok)
	}
	answer := must(Prove(key, Acceptor, &s.cs))(t)
	r := must(CheckRequest(request))(t)
	leaf := must(ca.Issue(r.Public, r.NodeID, r.Name, now))(t)
	handed := ring.Marshal()

	// The new node verifies the member and joins.
	if err := Check(shown.ProofKey(), Acceptor, &c.cs, answer); err != nil {
		t.Fatal(err)
	}
	mustSave(t, must(alone.Join("c1", leaf, ca.Bundle(), must(ParseKeyring(handed))(t)))(t), dir)
	joined := must(LoadIdentity(dir))(t)
	mutual(t, "joined", joined, member)
	if joined.NodeID != alone.NodeID || joined.KeyDigest() != r.KeyDigest || !joined.Keyring().Equal(ring) {
		t.Error("it came back as another one")
	}
}

func TestIdentityIsReplacedWhileConnectionsCome(t *testing.T) {
	ca := newCA(t, "c1")
	a, b := join(t, ca, "a", time.Now()), join(t, ca, "b", time.Now())
	var current atomic.Pointer[Identity]
	current.Store(a)
	server, client := ServerConfig(current.Load), ClientConfig(current.Load, a.NodeID)
	next := must(a.Renewed(nil, issue(t, ca, a, time.Now()), ca.Bundle()))(t)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for i := range 10 {
				current.Store([]*Identity{a, next}[i%2])
				if s, c := meet(t, server, client); s.err != nil || c.err != nil {
					t.Errorf("%v, %v", s.err, c.err)
				}
			}
		})
	}
	all.Wait()
	mutual(t, "with a third", next, b)
}
