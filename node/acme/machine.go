package acme

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"penstock/routing/hostname"
	"penstock/routing/resource"
)

const (
	// firstPause is the default of Config.FirstPause. With it, a name fails five
	// times in the first hour, as often as Let's Encrypt allows.
	firstPause = 2 * time.Minute
	// maxPause is the longest pause after a failure.
	maxPause = 6 * time.Hour
	// maxOrderAge is the age at which a failed attempt gives up its order, whatever
	// holds that up.
	maxOrderAge = 24 * time.Hour
	// maxLimit bounds the pause that an authority asks for.
	maxLimit = 7 * 24 * time.Hour
	// maxFault bounds the text of a fault, which the authority has a part in, in
	// bytes.
	maxFault = 500
)

// names returns the names of a certificate in normal form, sorted.
func names(a *resource.ACME) []string {
	list := make([]string, 0, len(a.Names))
	for _, name := range a.Names {
		if normal, err := hostname.ParseName(name); err == nil { // validation has checked that
			list = append(list, normal)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// contentDigest returns the digest of what a certificate is to be. If it changes,
// another certificate is ordered.
func contentDigest(a *resource.ACME) string {
	a = a.WithDefaults()
	parts := []string{a.Directory, a.KeyType, ""}
	if a.ExternalAccount != nil {
		parts[2] = a.ExternalAccount.KID
	}
	return digest(append(parts, names(a)...))
}

// settingsDigest returns the digest of all settings. If they change, an order
// begins anew and a failed one is repeated at once.
func settingsDigest(a *resource.ACME) string {
	a = a.WithDefaults()
	parts := []string{contentDigest(a), a.Email, a.Challenge, a.CA, ""}
	if a.ExternalAccount != nil {
		parts[4] = string(a.ExternalAccount.HMAC)
	}
	return digest(parts)
}

// due returns when the next attempt for a certificate is due; st may be nil.
func due(a *resource.ACME, st *State) time.Time {
	if st == nil {
		return time.Time{}
	}
	at := time.Time{}
	if st.Issued != nil && st.Issued.For == contentDigest(a) {
		at = later(renewal(st.Issued), afterIssue(st.Issued))
	}
	if st.Order != nil && st.Order.For == settingsDigest(a) {
		at = time.Time{}
	}
	if (st.Limited || st.Tried == settingsDigest(a)) && st.Next.After(at) {
		at = st.Next
	}
	return at
}

// renewal returns when an issued certificate is to be renewed: at two thirds of its
// life, up to a twentieth of it earlier. How much is drawn from the certificate,
// so that every leader finds the same time and not all are renewed at once.
func renewal(i *Issued) time.Time {
	leaf, err := leafOf(i)
	if err != nil {
		return time.Time{}
	}
	h := fnv.New64a()
	_, _ = h.Write(leaf.Raw)
	life := leaf.NotAfter.Sub(leaf.NotBefore)
	early := time.Duration(float64(life) / 20 * float64(h.Sum64()%1000) / 1000)
	return leaf.NotBefore.Add(life/3*2 - early)
}

// minRenewal is the shortest time from one certificate to the next order.
const minRenewal = 10 * time.Second

// afterIssue returns before when a certificate is not renewed: a third of the life that
// it had when it was issued. One that was late in its life even then, as the clocks of
// this cluster and its authority differ or the authority is at fault, would otherwise be
// ordered again without a pause.
func afterIssue(i *Issued) time.Time {
	leaf, err := leafOf(i)
	if err != nil {
		return i.At.Add(minRenewal)
	}
	return i.At.Add(max(leaf.NotAfter.Sub(i.At)/3, minRenewal))
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// leafOf parses the first certificate of a chain.
func leafOf(i *Issued) (*x509.Certificate, error) {
	block, _ := pem.Decode([]byte(i.Chain))
	if block == nil {
		return nil, errors.New("has no PEM certificate")
	}
	return x509.ParseCertificate(block.Bytes)
}

// failed returns the state after a failed attempt. dropOrder: its order cannot be
// continued. wait is what the authority asked for; 0: nothing.
func failed(st *State, settings string, first time.Duration, now time.Time, fault string, dropOrder bool, wait time.Duration) *State {
	next := *st
	if next.Tried != settings {
		next.Failures = 0
	}
	next.Tried, next.Fault, next.Failed = settings, boundedText(fault), now.UTC().Round(0)
	next.Failures++
	if dropOrder || next.Order != nil && now.Sub(next.Order.At) > maxOrderAge {
		next.Order = nil
	}
	next.Limited = wait > 0
	next.Next = now.Add(max(pause(first, next.Failures), min(wait, maxLimit))).UTC().Round(0)
	return &next
}

// pause returns the pause after a number of failures: it doubles up to maxPause,
// and is up to a quarter longer by chance.
func pause(first time.Duration, failures int) time.Duration {
	d := maxPause
	if shift := failures - 1; shift < 20 {
		d = min(first<<shift, maxPause)
	}
	return d + time.Duration(rand.Int64N(int64(d)/4+1))
}

// boundedText bounds a text that an authority has a part in, and replaces what is
// not printable.
func boundedText(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r > '~' {
			return ' '
		}
		return r
	}, text)
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > maxFault {
		text = text[:maxFault-3] + "..."
	}
	return text
}
