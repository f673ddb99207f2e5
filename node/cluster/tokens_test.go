package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"penstock/node/api"
	"penstock/node/cluster/leader"
	"penstock/node/cluster/token"
	"penstock/node/rpc"
	"penstock/node/trust"
)

// lookUpToken authenticates a token at a machine. The machine may not have the
// token yet and be too busy to look it up in time, so known retries.
func lookUpToken(t *testing.T, m *machine, token string) (p api.Principal, err error) {
	t.Helper()
	eventually(t, m.cfg.Name+" to look up the token", func() string {
		if p, err = m.c.Tokens.Authenticate(context.Background(), token); leader.RefusedAs(err, api.Unavailable) {
			return err.Error()
		}
		return ""
	})
	return p, err
}

func TestTokenAuthenticatesUntilRevoked(t *testing.T) {
	t.Parallel()
	a := startSingle(t, "a")
	b := newJoiner(t, "b", a.token(), a).start()
	waitVoters(t, 1, a)
	ctx := context.Background()
	made, err := a.c.Tokens.Create(ctx, &api.TokenCreateRequest{Name: "ci", Role: api.RoleOperator, TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	p, err := lookUpToken(t, b, made.Token)
	if err != nil || p.Name != "ci" || p.Role != api.RoleOperator || p.TokenID != made.ID {
		t.Fatalf("%+v, %v", p, err)
	}
	if _, err := a.c.Tokens.Revoke(ctx, &api.TokenRevokeRequest{Token: "ci"}); err != nil {
		t.Fatal(err)
	}
	for _, m := range []*machine{a, b} {
		eventually(t, "revoked on "+m.cfg.Name, func() string {
			if _, err := m.c.Tokens.Authenticate(ctx, made.Token); !contains(err, "revoked") {
				return fmt.Sprint(err)
			}
			if m.c.Tokens.Check(p) == nil {
				return "open connections live on"
			}
			return ""
		})
	}
	for _, list := range []api.Tokens{a.c.Tokens.List(), b.c.Tokens.List()} {
		if len(list) != 2 || list[0].Name != "ci" || list[0].State != "revoked" || list[1].State != "valid" {
			t.Errorf("%+v", list)
		}
	}
	if _, err := a.c.Tokens.Authenticate(ctx, a.token()); !contains(err, "for nodes") {
		t.Errorf("a join token: %v", err)
	}
	if strings.Contains(fmt.Sprint(err), made.Token) {
		t.Error("an error tells the token")
	}
}

// TestTokenNamesAreUnique: history and logs tell tokens apart by name.
func TestTokenNamesAreUnique(t *testing.T) {
	t.Parallel()
	a := startSingle(t, "a")
	create := func(name string) error {
		_, err := a.c.Tokens.Create(context.Background(), &api.TokenCreateRequest{Name: name, Role: api.RoleReader})
		return err
	}
	for range 2 {
		if err := create(""); err != nil {
			t.Errorf("a token without a name: %v", err)
		}
	}
	if err := create("ci"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"ci", "with space", "line\nbreak", strings.Repeat("x", 65)} {
		if err := create(name); err == nil {
			t.Errorf("%q was taken", name)
		}
	}
	if _, err := a.c.Tokens.Revoke(context.Background(), &api.TokenRevokeRequest{Token: "ci"}); err != nil {
		t.Fatal(err)
	}
	if err := create("ci"); err != nil {
		t.Errorf("the name of a token that ended: %v", err)
	}
}

// TestTokensExpireByTheLeadersClock: by each node's own clock, a token could be
// expired on one node and valid on another.
func TestTokensExpireByTheLeadersClock(t *testing.T) {
	t.Parallel()
	a := startSingle(t, "a")
	b := newJoiner(t, "b", a.token(), a).start()
	waitVoters(t, 1, a, b)
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	made, err := a.c.Tokens.Create(ctx, &api.TokenCreateRequest{Name: "ci", Role: api.RoleReader, TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	p, err := lookUpToken(t, b, made.Token)
	if err != nil {
		t.Fatal(err)
	}
	late := func(m *machine) { m.c.clock.Note(time.Now().Add(2*time.Hour).UnixMilli(), time.Now()) }
	late(a) // a leads, and goes by its own clock
	if _, err := a.c.Tokens.Authenticate(ctx, made.Token); err != nil || a.c.Tokens.Check(p) != nil {
		t.Errorf("on the leader: %v, %v", err, a.c.Tokens.Check(p))
	}
	eventually(t, "the token to have ended on a node whose leader is two hours ahead", func() string {
		late(b) // again: b keeps measuring its leader's real clock
		if _, err := b.c.Tokens.Authenticate(ctx, made.Token); !contains(err, "expired") {
			return fmt.Sprint(err)
		}
		late(b)
		if b.c.Tokens.Check(p) == nil {
			return "open connections live on"
		}
		return ""
	})
}

// TestARevokedTokenLosesItsConnections: its connections close on every node.
func TestARevokedTokenLosesItsConnections(t *testing.T) {
	t.Parallel()
	a := startSingle(t, "a")
	b := newJoiner(t, "b", a.token(), a).start()
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	made, err := a.c.Tokens.Create(ctx, &api.TokenCreateRequest{Name: "ci", Role: api.RoleReader, TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	token, err := trust.ParseToken(made.Token)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lookUpToken(t, b, made.Token); err != nil {
		t.Fatal(err)
	}
	var open []*rpc.Client
	for _, m := range []*machine{a, b} {
		c, err := rpc.DialConfig{TLS: trust.TokenConfig(token), Token: made.Token}.Dial(ctx, m.addr())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		open = append(open, c)
	}
	if _, err := a.c.Tokens.Revoke(ctx, &api.TokenRevokeRequest{Token: made.ID}); err != nil {
		t.Fatal(err)
	}
	for i, c := range open {
		select {
		case <-c.Done():
		case <-ctx.Done():
			t.Errorf("the connection to node %d stays", i)
		}
	}
}

// unknownToken returns a token that looks like a's and that no node has.
func unknownToken(t *testing.T, a *machine) trust.Token {
	t.Helper()
	made, err := a.c.Tokens.Create(t.Context(), &api.TokenCreateRequest{Name: "ci", Role: api.RoleReader})
	if err != nil {
		t.Fatal(err)
	}
	token, err := trust.ParseToken(made.Token)
	if err != nil {
		t.Fatal(err)
	}
	token.ID = strings.Repeat("0", len(token.ID))
	return token
}

// TestTokenLookupWithoutLeaderIsRetryable: the creator of a new token would
// think it lost, and a node that joins with it would give up.
func TestTokenLookupWithoutLeaderIsRetryable(t *testing.T) {
	t.Parallel()
	a := startSingle(t, "a")
	b := newJoiner(t, "b", a.token(), a).start()
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	token := unknownToken(t, a)
	eventually(t, "the leader says that there is no such token", func() string {
		if _, err := b.c.Tokens.Authenticate(ctx, token.Reveal()); !leader.RefusedAs(err, api.Unauthenticated) {
			return fmt.Sprint(err)
		}
		return ""
	})
	a.kill()
	if _, err := b.c.Tokens.Authenticate(ctx, token.Reveal()); !leader.RefusedAs(err, api.Unavailable) {
		t.Errorf("without a leader to ask: %v", err)
	}
	if _, _, err := b.c.Tokens.VerifyProof(ctx, token.ID, nil); !leader.RefusedAs(err, api.Unavailable) {
		t.Errorf("of a node that joins, without a leader to ask: %v", err)
	}
}

// TestTokenLookupsBeyondTheLimitAreRetryable: a token that could not be looked
// up is not known to be wrong, and a node that joins with it retries.
func TestTokenLookupsBeyondTheLimitAreRetryable(t *testing.T) {
	t.Parallel()
	a := startSingle(t, "a")
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	unknown := unknownToken(t, a)
	looking, answer := make(chan struct{}), make(chan struct{})
	tokens := token.New(token.Config{Entries: a.c.entries, Now: a.c.clock.Now, Log: a.c.log, Read: func(ctx context.Context) (uint64, error) {
		select {
		case looking <- struct{}{}:
			<-answer
		case <-answer:
		}
		return a.c.Read(ctx)
	}})
	var callers sync.WaitGroup
	defer callers.Wait()
	full := errors.New("all of 100 look it up at once")
	for held := 0; held < 100; held++ {
		done := make(chan error, 1)
		callers.Go(func() {
			_, _, err := tokens.VerifyProof(ctx, unknown.ID, nil)
			done <- err
		})
		select {
		case <-looking:
			continue
		case full = <-done:
		}
		break
	}
	if !leader.RefusedAs(full, api.Unavailable) { // so a node that joins retries (TestOnlyPermanentRefusalsEndAJoin)
		t.Errorf("of a node that joins, while others ask: %v", full)
	}
	if _, err := tokens.Authenticate(ctx, unknown.Reveal()); !leader.RefusedAs(err, api.Unavailable) {
		t.Errorf("of a command, while others ask: %v", err)
	}
	close(answer)
	eventually(t, "it to be looked up", func() string {
		if _, _, err := tokens.VerifyProof(ctx, unknown.ID, nil); !leader.RefusedAs(err, api.Unauthenticated) {
			return fmt.Sprint(err)
		}
		return ""
	})
}
