package acme

import (
	"encoding/pem"
	"strings"
	"testing"
	"time"

	"penstock/internal/testkit/certs"
	"penstock/routing/resource"
)

var spec = &resource.ACME{Directory: "https://ca.example/dir", Names: []string{"A.example", "b.example"}, AgreeToTerms: true}

// with returns the settings after a change.
func with(change func(*resource.ACME)) *resource.ACME {
	next := *spec
	change(&next)
	return &next
}

// issuedUntil returns a certificate for spec that expires at a time.
func issuedUntil(t *testing.T, end time.Time) *Issued {
	t.Helper()
	p := certs.NewCA("ca").IssueUntil(end, "a.example", "b.example")
	return &Issued{Chain: p.Cert, Key: "key", For: contentDigest(spec)}
}

func TestContentDecidesAboutAnotherOrder(t *testing.T) {
	for name, c := range map[string]struct {
		change            func(*resource.ACME)
		content, settings bool // whether the digest changes
	}{
		"order and case of names": {func(a *resource.ACME) { a.Names = []string{"b.example", "a.EXAMPLE"} }, false, false},
		"defaults written out":    {func(a *resource.ACME) { a.Challenge, a.KeyType = "tlsALPN01", "ecdsaP256" }, false, false},
		"names":                   {func(a *resource.ACME) { a.Names = []string{"a.example"} }, true, true},
		"directory":               {func(a *resource.ACME) { a.Directory += "2" }, true, true},
		"key type":                {func(a *resource.ACME) { a.KeyType = "rsa2048" }, true, true},
		"email":                   {func(a *resource.ACME) { a.Email = "ops@example.com" }, false, true},
		"challenge":               {func(a *resource.ACME) { a.Challenge = "http01" }, false, true},
		"external account":        {func(a *resource.ACME) { a.ExternalAccount = &resource.ACMEExternalAccount{KID: "a"} }, true, true},
		"names in another division": {func(a *resource.ACME) {
			a.Names = []string{"a.example", "b", "example"}
		}, true, true},
	} {
		a := with(c.change)
		if got := contentDigest(a) != contentDigest(spec); got != c.content {
			t.Errorf("%s: another content: %v", name, got)
		}
		if got := settingsDigest(a) != settingsDigest(spec); got != c.settings {
			t.Errorf("%s: other settings: %v", name, got)
		}
	}
}

func TestRenewalIsDueAtTwoThirdsOfLife(t *testing.T) {
	i := issuedUntil(t, time.Now().Add(90*24*time.Hour))
	leaf, err := leafOf(i)
	if err != nil {
		t.Fatal(err)
	}
	life := leaf.NotAfter.Sub(leaf.NotBefore)
	at := due(spec, &State{Issued: i})
	if early := leaf.NotBefore.Add(life/3*2 - life/20); at.Before(early) || at.After(leaf.NotBefore.Add(life/3*2)) {
		t.Errorf("renewal at %v of a life from %v to %v", at, leaf.NotBefore, leaf.NotAfter)
	}
	if again := due(spec, &State{Issued: i}); !again.Equal(at) {
		t.Errorf("another leader renews at %v instead of %v", again, at)
	}
	others := map[time.Duration]bool{}
	for range 5 {
		j := issuedUntil(t, leaf.NotAfter)
		others[renewal(j).Sub(at)] = true
	}
	if len(others) < 2 {
		t.Error("all certificates are renewed at the same time")
	}
}

// An order that an authority never completes gives way to another one.
func TestOldOrderIsGivenUp(t *testing.T) {
	now := time.Now()
	for age, kept := range map[time.Duration]bool{maxOrderAge - time.Hour: true, maxOrderAge + time.Hour: false} {
		st := failed(&State{Order: &Order{At: now.Add(-age)}}, "settings", firstPause, now, "processing", false, 0)
		if (st.Order != nil) != kept {
			t.Errorf("after %v the order is kept: %t", age, st.Order != nil)
		}
	}
}

// An authority that issues what is almost over is not asked again without a pause.
func TestLateCertificateIsNotOrderedAgainAtOnce(t *testing.T) {
	now := time.Now()
	for _, left := range []time.Duration{time.Second, 30 * time.Minute} {
		i := issuedUntil(t, now.Add(left))
		i.At = now
		leaf, err := leafOf(i)
		if err != nil {
			t.Fatal(err)
		}
		want := now.Add(max(leaf.NotAfter.Sub(now)/3, minRenewal))
		if at := due(spec, &State{Issued: i}); at.Before(want) {
			t.Errorf("with %v left the next order is due %v after the certificate", left, at.Sub(now))
		}
	}
}

func TestAttemptsAreDue(t *testing.T) {
	now := time.Now()
	later, fresh := now.Add(time.Hour), issuedUntil(t, now.Add(90*24*time.Hour))
	settings := settingsDigest(spec)
	order := &Order{For: settings}
	for name, c := range map[string]struct {
		a   *resource.ACME
		st  *State
		due bool
	}{
		"nothing is known":                     {spec, nil, true},
		"nothing was issued":                   {spec, &State{}, true},
		"issued":                               {spec, &State{Issued: fresh}, false},
		"issued, an order goes on":             {spec, &State{Issued: fresh, Order: order}, true},
		"other names than issued":              {with(func(a *resource.ACME) { a.Names = a.Names[:1] }), &State{Issued: fresh}, true},
		"another address, issued":              {with(func(a *resource.ACME) { a.Email = "x@example.com" }), &State{Issued: fresh}, false},
		"failed a moment ago":                  {spec, &State{Tried: settings, Failures: 1, Next: later}, false},
		"failed, an order goes on":             {spec, &State{Tried: settings, Failures: 1, Next: later, Order: order}, false},
		"failed, the pause is over":            {spec, &State{Tried: settings, Failures: 1, Next: now.Add(-1)}, true},
		"failed, with other settings":          {spec, &State{Tried: "other", Failures: 1, Next: later}, true},
		"limited, with other settings":         {spec, &State{Tried: "other", Failures: 1, Next: later, Limited: true}, false},
		"renewal failed":                       {spec, &State{Issued: issuedUntil(t, now), Tried: settings, Failures: 1, Next: later}, false},
		"renewal failed, the pause is over":    {spec, &State{Issued: issuedUntil(t, now), Tried: settings, Next: now.Add(-1)}, true},
		"issued long ago and not valid before": {spec, &State{Issued: &Issued{Chain: "none", For: contentDigest(spec)}}, true},
	} {
		if got := !now.Before(due(c.a, c.st)); got != c.due {
			t.Errorf("%s: due: %v", name, got)
		}
	}
}

func TestPausesDoubleAndEnd(t *testing.T) {
	now, st := time.Now(), &State{Issued: &Issued{Chain: "chain"}, Order: &Order{URL: "u", At: time.Now()}}
	for i, want := range []time.Duration{2, 4, 8, 16, 32, 64, 128, 256, 360, 360} {
		st = failed(st, "settings", firstPause, now, "because", false, 0)
		want *= time.Minute
		if got := st.Next.Sub(now.UTC().Round(0)); got < want-time.Second || got > want+want/4+time.Second || st.Failures != i+1 {
			t.Errorf("after failure %d the pause is %v, want %v and up to a quarter more", st.Failures, got, want)
		}
	}
	if st.Issued == nil || st.Order == nil {
		t.Error("a failure loses what was issued or ordered")
	}
	st = failed(st, "other", firstPause, now, "because", true, 48*time.Hour)
	if st.Failures != 1 || st.Order != nil || st.Issued == nil || !st.Limited || st.Next.Sub(now) < 47*time.Hour {
		t.Errorf("with other settings, an order that is over and a limit: %+v", st)
	}
	if st = failed(st, "other", firstPause, now, "because", true, 1000*time.Hour); st.Next.Sub(now) > maxLimit+time.Second {
		t.Errorf("an authority may ask for %v", st.Next.Sub(now))
	}
	if pause(firstPause, 1000) < maxPause {
		t.Error("the pause overflows")
	}
}

func TestTextsOfAuthoritiesAreBounded(t *testing.T) {
	got := boundedText("a\x1b[31m\n\tred " + strings.Repeat("é", 10) + strings.Repeat("x", 10*maxFault))
	if len(got) != maxFault || !strings.HasPrefix(got, "a [31m red x") || !strings.HasSuffix(got, "...") {
		t.Errorf("%d bytes: %q", len(got), got)
	}
}

func TestStatusTellsTheState(t *testing.T) {
	now := time.Now()
	fresh, old := issuedUntil(t, now.Add(90*24*time.Hour)), issuedUntil(t, now.Add(-time.Hour))
	settings := settingsDigest(spec)
	for want, st := range map[string]*State{
		StateOrdering: {Order: &Order{URL: "u"}},
		StateFailed:   {Failures: 2, Tried: settings, Next: now.Add(time.Hour), Fault: "because"},
		StateIssued:   {Issued: fresh},
		StateRenewing: {Issued: fresh, Order: &Order{For: settings}},
		StateExpired:  {Issued: old, Failures: 9, Tried: settings, Next: now.Add(time.Hour)},
	} {
		if got := statusOf("a", spec, st, now); got.State != want {
			t.Errorf("%+v is %s, want %s", st, got.State, want)
		}
	}
	if got := statusOf("a", spec, nil, now); got.State != StateOrdering {
		t.Errorf("nothing known is %s", got.State)
	}
	if block, _ := pem.Decode([]byte(fresh.Chain)); block == nil {
		t.Fatal("the test's chain is no PEM")
	}
}
