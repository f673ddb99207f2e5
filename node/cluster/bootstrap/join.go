package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"penstock/node/api"
	"penstock/node/cluster/datadir"
	"penstock/node/cluster/directory"
	"penstock/node/rpc"
	"penstock/node/trust"
)

// askTimeout bounds one attempt to join at one node, which may have to call its
// leader.
const askTimeout = 10 * time.Second

// maxPause bounds the pause between two attempts.
const maxPause = 10 * time.Second

// errFinal marks errors that no further attempt can resolve.
var errFinal = errors.New("")

// final wraps an error that ends Open.
func final(err error) error { return fmt.Errorf("%w%w", errFinal, err) }

// JoinCluster joins through any of the addresses of Config.Join.
func (b *Bootstrap) JoinCluster(ctx context.Context) error {
	token, err := trust.ParseToken(b.Token)
	if err != nil {
		return fmt.Errorf("--token: %w", err)
	}
	if token.Kind == trust.Admin {
		return fmt.Errorf("--token: %w: %s is for administration; nodes join with a token of role join (penstock token create --role join)",
			ErrToken, token)
	}
	logged := directory.LogOnce{}
	for pause := b.Retry; ; pause = min(2*pause, maxPause) {
		err := b.joinRound(ctx, token, logged)
		if err == nil || errors.Is(err, errFinal) {
			return err
		}
		why := fmt.Sprintf("joining a cluster: no node at %s has admitted this one yet: %v", directory.ListNames(b.Join), err)
		b.waits(StateJoining, why, nil)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return fmt.Errorf("no cluster was joined in time: %w", ctx.Err())
		}
	}
}

// joinRound tries each address once. Finding another cluster at one address is
// final only if no other address may be the right one.
func (b *Bootstrap) joinRound(ctx context.Context, token trust.Token, logged directory.LogOnce) error {
	var foreign, last error
	others := false
	for _, addr := range b.Join {
		if addr == b.Directory.Address {
			continue
		}
		err := b.joinAt(ctx, addr, token)
		switch {
		case err == nil || errors.Is(err, errFinal):
			return err
		case errors.Is(err, ErrForeign):
			foreign = err
		default:
			others = true
		}
		logged.Warn(b.Log, "cannot join yet; retrying", addr, err)
		last = err
	}
	if foreign != nil && !others {
		return final(foreign)
	}
	if last == nil {
		return errors.New("--join has no address but this node's own: add that of another node")
	}
	return last
}

// joinAt joins through the node at an address and opens the store.
func (b *Bootstrap) joinAt(ctx context.Context, addr string, token trust.Token) error {
	id := b.Entries.Identity()
	csr, err := id.Request()
	if err != nil {
		return final(err)
	}
	res, err := b.AskToJoin(ctx, addr, token, csr)
	if err != nil {
		return err
	}
	if token.ClusterID != "" && res.Cluster != token.ClusterID {
		return fmt.Errorf("%w: %s is in cluster %s, the token is for %s", ErrForeign, addr, res.Cluster, token.ClusterID)
	}
	ring, err := trust.ParseKeyring(res.Keyring)
	if err != nil {
		return fmt.Errorf("%s: %w", addr, err)
	}
	joined, err := id.Join(res.Cluster, res.Certificate, res.CAs, ring)
	if err != nil {
		return fmt.Errorf("%s: %w", addr, err)
	}
	if err := CheckTrustDomain(joined, b.TrustDomain); err != nil {
		return final(err)
	}
	// First remove an unfinished founding: it must not be resumed. Then save
	// the peers: a node that restarts before it has heard from its leader has
	// no other addresses. The identity is last, since it makes the node a
	// member.
	if err := datadir.RemoveFile(filepath.Join(b.Dir, FoundingFile)); err != nil {
		return final(err)
	}
	if err := b.Directory.Book.Remember(res.Peers); err != nil {
		return final(err)
	}
	if err := joined.Save(b.Dir); err != nil {
		return final(err)
	}
	b.SetIdentity(joined)
	b.Directory.SetFirstKeys(res.Gossip)
	b.Log.Info("joined the cluster", "cluster", res.Cluster, "at", addr)
	if err := b.OpenStore(); err != nil {
		return final(err)
	}
	if err := b.Directory.OpenGossip(); err != nil {
		return final(err)
	}
	return nil
}

// AskToJoin sends a join request to the node at an address, and accepts the
// answer only if that node has proven that it knows the token as well.
func (b *Bootstrap) AskToJoin(ctx context.Context, addr string, token trust.Token, csr []byte) (*JoinResult, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	config := trust.JoinConfig()
	if token.Kind == trust.Join {
		config = trust.TokenConfig(token)
	}
	client, err := rpc.DialConfig{TLS: config}.Dial(ctx, addr)
	if errors.Is(err, trust.ErrPin) {
		return nil, fmt.Errorf("%w: the node at %s is not in cluster %s, which the token is for, "+
			"or its CA was replaced since the token was made: %w", ErrForeign, addr, token.ClusterID, trust.ErrPin)
	}
	if err != nil {
		return nil, err
	}
	defer client.Close()
	key := token.ProofKey()
	proof, err := trust.Prove(key, trust.Dialer, client.TLS())
	if err != nil {
		return nil, err
	}
	req := &JoinRequest{TokenID: token.ID, Proof: proof, Node: b.Directory.Candidate(csr), TrustDomain: b.TrustDomain}
	res, err := rpc.Call[JoinResult](ctx, client, api.MethodJoin, req)
	if err != nil {
		return nil, refusedJoin(addr, err)
	}
	if err := trust.Check(key, trust.Acceptor, client.TLS(), res.Proof); err != nil {
		return nil, final(fmt.Errorf("%s: %w", addr, err))
	}
	return res, nil
}

// refusedJoin marks permanent refusals as final and leaves transient ones to
// the next attempt.
func refusedJoin(addr string, err error) error {
	var refusal *api.Error
	if !errors.As(err, &refusal) {
		return err
	}
	switch refusal.Code {
	case api.Unauthenticated, api.Forbidden:
		return final(fmt.Errorf("%w by %s: %w", ErrToken, addr, refusal))
	case api.Refused:
		return final(fmt.Errorf("%w: %w", ErrRefused, refusal))
	case api.Invalid:
		return final(refusal)
	}
	return fmt.Errorf("%s: %w", addr, refusal)
}

// JoinRequest asks any node of a cluster to admit the sender as a member.
type JoinRequest struct {
	TokenID string `json:"tokenID"`
	// Proof proves that the sender knows the token's secret, and is valid on
	// this connection alone.
	Proof []byte              `json:"proof"`
	Node  directory.Candidate `json:"node"`
	// TrustDomain is the sender's --trust-domain; "": any.
	TrustDomain string `json:"trustDomain,omitempty"`
}

// JoinResult makes a node a member. It is sent only to a node that has proven
// that it knows a token.
type JoinResult struct {
	// Proof proves that the answering node knows the token.
	Proof   []byte `json:"proof"`
	Cluster string `json:"cluster"` // the ID
	// CAs are the CA certificates, Certificate is the node's own; DER.
	CAs         [][]byte `json:"cas"`
	Certificate []byte   `json:"certificate"`
	// Keyring seals the secrets in the store.
	Keyring []byte `json:"keyring"`
	// Gossip holds the gossip keys, the one in use first.
	Gossip [][]byte         `json:"gossip"`
	Peers  []directory.Peer `json:"peers"`
}
