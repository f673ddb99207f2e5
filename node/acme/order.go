package acme

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/crypto/acme"

	"penstock/consensus/store"
	"penstock/routing/resource"
)

var (
	// errChallenge means that the authority does not offer the challenge.
	errChallenge = errors.New("the authority does not offer the challenge")
	// errChain means that what the authority issued is not what was ordered.
	errChain = errors.New("the authority issued another certificate than was ordered")
)

// attempt is one attempt to obtain a certificate. What it has reached is stored
// step by step, and the next attempt, which may be another node's, goes on there.
type attempt struct {
	m       *Manager
	name    string
	spec    *resource.ACME // with defaults
	client  *acme.Client
	state   *State
	version uint64 // of state in the store; 0: not there
}

// attempt makes one attempt for a certificate, if it is still due, and stores the
// outcome.
func (m *Manager) attempt(ctx context.Context, name string, spec *resource.ACME) {
	a := &attempt{m: m, name: name, spec: spec.WithDefaults()}
	var err error
	if a.state, a.version, err = get[State](m.cfg.Sealer, m.cfg.Store.Snapshot(), stateKey(name)); err != nil {
		return // follow has logged it
	}
	if time.Now().Before(due(spec, a.state)) {
		return // what made it due has been done meanwhile
	}
	if a.state == nil {
		a.state = &State{Format: format}
	}
	err = a.run(ctx)
	switch {
	case err == nil:
		m.count(name, "ok")
	case errors.Is(err, store.ErrNotLeader), errors.Is(err, store.ErrVersion), errors.Is(ctx.Err(), context.Canceled):
		m.cfg.Log.Info("another leader goes on with the order of a certificate", "certificate", name)
	default:
		m.count(name, "failed")
		a.fail(err)
	}
}

// count counts an attempt that has ended.
func (m *Manager) count(certificate, result string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.specs[certificate] != nil { // otherwise it was deleted meanwhile
		m.orders[OrderCount{certificate, result}]++
	}
}

// run takes the order from where it is to the certificate.
func (a *attempt) run(ctx context.Context) error {
	done, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer done()
	order, err := a.order(ctx)
	if err != nil {
		return err
	}
	if order.Status == acme.StatusPending {
		if err := a.authorize(ctx, order); err != nil {
			return err
		}
		if order, err = a.client.WaitOrder(ctx, order.URI); err != nil {
			return fmt.Errorf("the order: %w", err)
		}
	}
	chain, err := a.finalize(ctx, order)
	if err != nil {
		return err
	}
	return a.store(ctx, chain)
}

// connect makes the client with the cluster's account, which it registers if it is
// not yet. The key is stored first: if this node ends in between, the next one
// registers the same key, and finds the same account.
func (a *attempt) connect(ctx context.Context) (done func(), err error) {
	key := accountKey(a.spec)
	acct, version, err := get[account](a.m.cfg.Sealer, a.m.cfg.Store.Snapshot(), key)
	if err != nil {
		return nil, err
	}
	if acct == nil {
		signer, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return nil, err
		}
		der, err := x509.MarshalPKCS8PrivateKey(signer)
		if err != nil {
			return nil, err
		}
		acct = &account{Format: format, Directory: a.spec.Directory, Email: a.spec.Email, Key: der}
		if version, err = a.putAccount(ctx, key, acct, 0, "account key"); err != nil {
			return nil, err
		}
	}
	parsed, err := x509.ParsePKCS8PrivateKey(acct.Key)
	if err != nil {
		return nil, errors.New("the stored account key cannot be read")
	}
	signer, ok := parsed.(crypto.Signer)
	if !ok {
		return nil, errors.New("the stored account key cannot sign")
	}
	if a.client, done, err = newClient(a.spec, signer, acct.URI, a.m.cfg.UserAgent); err != nil {
		return nil, err
	}
	if acct.URI == "" {
		if err = a.register(ctx); err == nil {
			next := *acct
			next.URI = string(a.client.KID)
			_, err = a.putAccount(ctx, key, &next, version, "account")
		}
		if err != nil {
			done()
			return nil, fmt.Errorf("the account: %w", err)
		}
	}
	return done, nil
}

func (a *attempt) putAccount(ctx context.Context, key store.Key, acct *account, version uint64, what string) (uint64, error) {
	op, err := put(a.m.cfg.Sealer, key, acct, version)
	if err != nil {
		return 0, err
	}
	return a.m.commit(ctx, what, op)
}

// register registers the account, or finds it where it is registered already.
func (a *attempt) register(ctx context.Context) error {
	acct := &acme.Account{}
	if a.spec.Email != "" {
		acct.Contact = []string{"mailto:" + a.spec.Email}
	}
	if x := a.spec.ExternalAccount; x != nil {
		key, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(string(x.HMAC), "="))
		if err != nil {
			return errors.New("externalAccount.hmac is not base64url")
		}
		acct.ExternalAccountBinding = &acme.ExternalAccountBinding{KID: x.KID, Key: key}
	}
	_, err := a.client.Register(ctx, acct, acme.AcceptTOS)
	if errors.Is(err, acme.ErrAccountAlreadyExists) {
		return nil
	}
	return err
}

// order returns the order in progress, or a new one, which is stored.
func (a *attempt) order(ctx context.Context) (*acme.Order, error) {
	settings := settingsDigest(a.spec)
	if o := a.state.Order; o != nil && o.For == settings {
		order, err := a.client.GetOrder(ctx, o.URL)
		if err != nil {
			return nil, fmt.Errorf("the order in progress: %w", err)
		}
		if order.Status == acme.StatusInvalid {
			return nil, &acme.OrderError{OrderURL: o.URL, Status: order.Status, Problem: order.Error}
		}
		order.URI = o.URL
		return order, nil
	}
	order, err := a.client.AuthorizeOrder(ctx, acme.DomainIDs(names(a.spec)...))
	if err != nil {
		return nil, fmt.Errorf("a new order: %w", err)
	}
	key, err := newKey(a.spec.KeyType)
	if err != nil {
		return nil, err
	}
	next := *a.state
	next.Order = &Order{URL: order.URI, Key: key, For: settings, At: time.Now().UTC().Round(0)}
	if _, err := a.put(ctx, &next, "ordered"); err != nil {
		return nil, err
	}
	a.m.cfg.Log.Info("certificate ordered", "certificate", a.name, "directory", a.spec.Directory, "names", len(a.spec.Names))
	return order, nil
}

// newKey returns a new private key as PEM.
func newKey(keyType string) (string, error) {
	var key any
	var err error
	if keyType == "rsa2048" {
		key, err = rsa.GenerateKey(rand.Reader, 2048)
	} else {
		key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	}
	if err != nil {
		return "", err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return "", err
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})), nil
}

// authorize has the names of an order checked. The answers are in force on the
// nodes before the authority is asked to check.
func (a *attempt) authorize(ctx context.Context, order *acme.Order) error {
	wanted := typeTLS
	if a.spec.Challenge == "http01" {
		wanted = typeHTTP
	}
	var answers []Challenge
	var pending []string
	var accept []*acme.Challenge
	for _, url := range order.AuthzURLs {
		z, err := a.client.GetAuthorization(ctx, url)
		if err != nil {
			return fmt.Errorf("an authorization: %w", err)
		}
		if z.Status == acme.StatusValid {
			continue
		}
		ch, answer, err := a.answer(z, wanted)
		if err != nil {
			return err
		}
		answers, pending = append(answers, answer), append(pending, url)
		if ch.Status == acme.StatusPending {
			accept = append(accept, ch)
		}
	}
	if err := a.putChallenges(ctx, answers); err != nil {
		return err
	}
	for _, ch := range accept {
		if _, err := a.client.Accept(ctx, ch); err != nil {
			return fmt.Errorf("the challenge %s: %w", ch.Type, err)
		}
	}
	for i, url := range pending {
		if _, err := a.client.WaitAuthorization(ctx, url); err != nil {
			return fmt.Errorf("%s by %s: %w", answers[i].Name, wanted, err)
		}
	}
	return nil
}

// answer returns the challenge of an authorization, and what nodes answer.
func (a *attempt) answer(z *acme.Authorization, wanted string) (*acme.Challenge, Challenge, error) {
	i := slices.IndexFunc(z.Challenges, func(ch *acme.Challenge) bool { return ch.Type == wanted })
	name := strings.ToLower(z.Identifier.Value)
	switch {
	case !slices.Contains(names(a.spec), name):
		return nil, Challenge{}, fmt.Errorf("%w: it asks for another name", errChain)
	case i < 0:
		return nil, Challenge{}, fmt.Errorf("%w %s for %s", errChallenge, wanted, name)
	case !validToken(z.Challenges[i].Token):
		return nil, Challenge{}, fmt.Errorf("the token of the challenge for %s is not base64url", name)
	}
	ch := z.Challenges[i]
	answer, err := a.client.HTTP01ChallengeResponse(ch.Token) // the key authorization, for both types
	return ch, Challenge{Type: wanted, Name: name, Token: ch.Token, Answer: answer}, err
}

// putChallenges stores the answers and waits until the nodes give them.
func (a *attempt) putChallenges(ctx context.Context, answers []Challenge) error {
	index := a.version
	if !slices.Equal(a.state.Order.Challenges, answers) {
		next, order := *a.state, *a.state.Order
		order.Challenges = answers
		next.Order = &order
		var err error
		if index, err = a.put(ctx, &next, "challenges"); err != nil {
			return err
		}
	}
	if err := a.m.AwaitApplied(ctx, index); err != nil {
		return err
	}
	if a.m.cfg.Settle == nil {
		return nil
	}
	if behind := a.m.cfg.Settle(ctx, index); len(behind) > 0 {
		a.m.cfg.Log.Warn("some nodes do not answer the challenges of a certificate yet; the authority is asked to check all the same",
			"certificate", a.name, "nodes", strings.Join(behind, ", "))
	}
	return ctx.Err()
}

// finalize returns the chain of an order whose names are checked.
func (a *attempt) finalize(ctx context.Context, order *acme.Order) (chain [][]byte, err error) {
	if order.Status == acme.StatusProcessing {
		if order, err = a.client.WaitOrder(ctx, order.URI); err != nil {
			return nil, fmt.Errorf("the order: %w", err)
		}
	}
	if order.Status == acme.StatusValid { // a leader before this one had asked for it
		chain, err = a.client.FetchCert(ctx, order.CertURL, true)
	} else {
		var csr []byte
		if csr, err = a.request(); err != nil {
			return nil, err
		}
		chain, _, err = a.client.CreateCertFromOrder(ctx, order, csr, true)
	}
	if err != nil {
		return nil, fmt.Errorf("the certificate: %w", err)
	}
	return chain, nil
}

// request makes the certificate signing request of the order.
func (a *attempt) request() ([]byte, error) {
	key, err := parseKey(a.state.Order.Key)
	if err != nil {
		return nil, err
	}
	return x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{DNSNames: names(a.spec)}, key)
}

func parseKey(text string) (crypto.Signer, error) {
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return nil, errors.New("the stored key of the order is no PEM")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	signer, ok := key.(crypto.Signer)
	if err != nil || !ok {
		return nil, errors.New("the stored key of the order cannot be read")
	}
	return signer, nil
}

// store checks what was issued and stores it. The order is over.
func (a *attempt) store(ctx context.Context, chain [][]byte) error {
	leaf, err := a.check(chain)
	if err != nil {
		return err
	}
	var text strings.Builder
	for _, der := range chain {
		_ = pem.Encode(&text, &pem.Block{Type: "CERTIFICATE", Bytes: der}) // a Builder never fails
	}
	next := State{Format: format, Issued: &Issued{
		Chain: text.String(), Key: a.state.Order.Key, For: contentDigest(a.spec), At: time.Now().UTC().Round(0),
	}}
	if _, err := a.put(ctx, &next, "issued"); err != nil {
		return err
	}
	a.m.cfg.Log.Info("certificate issued", "certificate", a.name, "expires", leaf.NotAfter.UTC(), "renewal", renewal(next.Issued).UTC())
	return nil
}

// check returns the leaf of a chain that is what was ordered.
func (a *attempt) check(chain [][]byte) (*x509.Certificate, error) {
	if len(chain) == 0 {
		return nil, fmt.Errorf("%w: none", errChain)
	}
	leaf, err := x509.ParseCertificate(chain[0])
	if err != nil {
		return nil, fmt.Errorf("%w: it cannot be read: %w", errChain, err)
	}
	for _, der := range chain[1:] { // they are presented as they are
		if _, err := x509.ParseCertificate(der); err != nil {
			return nil, fmt.Errorf("%w: its chain cannot be read: %w", errChain, err)
		}
	}
	key, err := parseKey(a.state.Order.Key)
	if err != nil {
		return nil, err
	}
	public, ok := leaf.PublicKey.(interface{ Equal(crypto.PublicKey) bool })
	if !ok || !public.Equal(key.Public()) {
		return nil, fmt.Errorf("%w: it is for another key", errChain)
	}
	for _, name := range names(a.spec) {
		if err := leaf.VerifyHostname(name); err != nil {
			return nil, fmt.Errorf("%w: it is not for %s", errChain, name)
		}
	}
	if now := time.Now(); now.After(leaf.NotAfter) {
		return nil, fmt.Errorf("%w: it expired at %s", errChain, leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	return leaf, nil
}

// put stores the next state, on condition that nobody else has changed it, and
// returns the index.
func (a *attempt) put(ctx context.Context, next *State, what string) (uint64, error) {
	op, err := put(a.m.cfg.Sealer, stateKey(a.name), next, a.version)
	if err != nil {
		return 0, err
	}
	index, err := a.m.commit(ctx, a.name+": "+what, op)
	if err != nil {
		return 0, err
	}
	a.state, a.version = next, index
	return index, nil
}

// fail stores that the attempt failed. The previous certificate stays.
func (a *attempt) fail(cause error) {
	ctx, cancel := context.WithTimeout(context.Background(), commitTimeout)
	defer cancel()
	drop, wait := a.judge(ctx, cause)
	next := failed(a.state, settingsDigest(a.spec), a.m.cfg.FirstPause, time.Now(), cause.Error(), drop, wait)
	a.m.cfg.Log.Error("cannot obtain a certificate; what was there stays in force", "certificate", a.name,
		"fault", next.Fault, "failures", next.Failures, "next", next.Next)
	if _, err := a.put(ctx, next, "failed"); err != nil {
		a.m.cfg.Log.Warn("cannot store that an order failed", "certificate", a.name, "error", err)
		a.m.mu.Lock()
		if a.m.specs[a.name] != nil {
			a.m.held[a.name] = next.Next
		}
		a.m.mu.Unlock()
	}
}

// judge returns whether the order of a failed attempt is over, and how long the
// authority asked to wait. If the authority does not know the account any more, it
// is registered again with the same key.
func (a *attempt) judge(ctx context.Context, cause error) (dropOrder bool, wait time.Duration) {
	var problem *acme.Error
	var authorization *acme.AuthorizationError
	var order *acme.OrderError
	switch {
	case errors.As(cause, &authorization), errors.As(cause, &order), errors.Is(cause, errChain), errors.Is(cause, errChallenge):
		return true, 0
	case !errors.As(cause, &problem):
		return false, 0 // the authority was not reached, or was too slow
	}
	if seconds, err := strconv.Atoi(problem.Header.Get("Retry-After")); err == nil && seconds > 0 {
		wait = time.Duration(min(seconds, int(maxLimit/time.Second))) * time.Second
	} else {
		wait, _ = acme.RateLimit(problem)
	}
	if strings.HasSuffix(problem.ProblemType, ":accountDoesNotExist") {
		key := accountKey(a.spec)
		if acct, version, err := get[account](a.m.cfg.Sealer, a.m.cfg.Store.Snapshot(), key); err == nil && acct != nil {
			acct.URI = ""
			if _, err := a.putAccount(ctx, key, acct, version, "account is gone"); err != nil {
				a.m.cfg.Log.Warn("cannot store that an account is gone", "error", err)
			}
		}
	}
	return problem.StatusCode >= 400 && problem.StatusCode < 500 && problem.StatusCode != http.StatusTooManyRequests, wait
}
