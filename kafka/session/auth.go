package session

import (
	"bytes"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/kafka/filter"
	"penstock/kafka/wire"
)

const (
	keyProduce         = int16(kmsg.Produce)
	keyMetadata        = int16(kmsg.Metadata)
	keySASLHandshake   = int16(kmsg.SASLHandshake)
	keySASLAuth        = int16(kmsg.SASLAuthenticate)
	keyAPIVersions     = int16(kmsg.ApiVersions)
	keyAddPartitions   = int16(kmsg.AddPartitionsToTxn)
	keyAddOffsets      = int16(kmsg.AddOffsetsToTxn)
	keyTxnOffsetCommit = int16(kmsg.TxnOffsetCommit)
	keyEndTxn          = int16(kmsg.EndTxn)
)

const (
	// maxStringLen bounds the strings of a client that are kept.
	maxStringLen = 64
	// transactionGrace is how long after a transactional Produce a connection
	// that sees no EndTxn (which goes to the coordinator) counts as being
	// inside the transaction.
	transactionGrace = 10 * time.Second
)

// Peer is what a session has learned of its client, for the log. Texts are cut
// to 64 bytes and come from the client: do not trust them.
type Peer struct {
	ClientID, Software, SoftwareVersion string
	// Mechanism and Principal are those of the last SASL exchange that
	// succeeded. Principal is the user name of PLAIN and SCRAM, empty for
	// others.
	Mechanism, Principal string
	// Lifetime is how long the broker lets that stand; 0: for ever.
	Lifetime time.Duration
	// Requests is how many the client has sent.
	Requests uint64
}

// Peer returns what is known now.
func (s *Session) Peer() Peer {
	p := &s.peer
	return Peer{strings.ToValidUTF8(p.clientID, "?"), p.software, p.softwareVersion, p.mechanism, p.principal, p.lifetime, s.requests}
}

// peer is the state behind Peer, and whether the client is authenticated or in
// a transaction.
type peer struct {
	clientID, software, softwareVersion string
	mechanism, principal                string
	offered, candidate                  string // of the SASL exchange under way
	lifetime                            time.Duration
	sasl                                saslExchange
	client                              *filter.Client // of the filters; nil: nobody asks
	authenticating                      bool           // from SaslHandshake until SaslAuthenticate succeeded
	trusted                             bool           // the broker has answered more than ApiVersions
	transaction                         bool
	produced                            time.Duration // the last transactional Produce; 0: none
}

// inspects reports whether the session itself wants to see messages of an API.
func inspects(key int16) bool {
	return key == keyAPIVersions || key == keySASLHandshake || key == keySASLAuth
}

const (
	// maxHandshake bounds ApiVersions and SaslHandshake, which have a few short
	// texts in them.
	maxHandshake = 8 << 10
	// maxFirstFrame bounds what must be collected before the broker has answered
	// anything but ApiVersions, Produce excepted: 10,000 topics fit.
	maxFirstFrame = 1 << 20
)

// maxRequest returns the size of the largest request that the client may send now, in
// bytes.
func (p *peer) maxRequest(key int16, l *Limits) int {
	switch {
	case key == keyAPIVersions || key == keySASLHandshake:
		return min(l.MaxFrameAuth, maxHandshake)
	case p.authenticating || inspects(key):
		return l.MaxFrameAuth
	}
	return l.MaxFrame
}

// maxEarly returns the size of the largest request that is collected before the
// broker has answered anything but ApiVersions.
func (l *Limits) maxEarly(key int16) int {
	if key == keyProduce {
		return l.MaxFrameEarly
	}
	return min(l.MaxFrameEarly, maxFirstFrame)
}

// setClientID records the client id, which hardly ever changes.
func (p *peer) setClientID(id []byte) {
	id = id[:min(len(id), maxStringLen)]
	if string(id) != p.clientID {
		p.clientID = string(id)
	}
}

func cleanString(b []byte) string {
	return strings.ToValidUTF8(string(b[:min(len(b), maxStringLen)]), "?")
}

// inspectRequest reads a request that inspects reports.
func (p *peer) inspectRequest(key, version int16, body []byte) error {
	r := wire.NewReader(body, wire.Flexible(key, version))
	switch key {
	case keyAPIVersions:
		if version >= 3 {
			name, _ := r.String()
			v, _ := r.String()
			if r.Err() == nil {
				p.software, p.softwareVersion = cleanString(name), cleanString(v)
			}
		}
	case keySASLHandshake:
		mechanism, _ := r.String()
		p.offered, p.candidate = cleanString(mechanism), ""
		p.authenticating = true
		p.sasl.handshake()
	case keySASLAuth:
		token, _ := r.Bytes()
		if name := userName(p.offered, token); name != "" {
			p.candidate = name
		}
		p.sasl.token(p.offered, token)
	}
	return r.Err()
}

// userName finds the user name in a client's token, and nothing else.
func userName(mechanism string, token []byte) string {
	switch {
	case mechanism == "PLAIN": // authorization id, name, password, with NULs between
		if parts := bytes.SplitN(token, []byte{0}, 3); len(parts) == 3 {
			return cleanString(parts[1])
		}
	case strings.HasPrefix(mechanism, "SCRAM-"): // n,,n=name,r=nonce (RFC 5802)
		parts := bytes.SplitN(token, []byte(","), 4)
		if len(parts) == 4 && bytes.HasPrefix(parts[2], []byte("n=")) {
			return strings.NewReplacer("=2C", ",", "=3D", "=").Replace(cleanString(parts[2][2:]))
		}
	}
	return ""
}

// inspectResponse reads a response to such a request.
func (p *peer) inspectResponse(key, version int16, body []byte) error {
	if key == keySASLHandshake || key == keySASLAuth {
		p.sasl.waiting--
	}
	if key != keySASLAuth {
		return nil
	}
	r := wire.NewReader(body, wire.Flexible(key, version))
	code := r.Int16()
	r.String()
	token, _ := r.Bytes()
	lifetime := int64(0)
	if version >= 1 {
		lifetime = r.Int64()
	}
	if r.Err() != nil || code != 0 || !saslFinished(p.offered, token) {
		return r.Err()
	}
	p.authenticating, p.trusted = false, true
	p.mechanism, p.principal = p.offered, p.candidate
	p.lifetime = time.Duration(max(lifetime, 0)) * time.Millisecond
	return p.sasl.confirm(p.client)
}

// saslFinished reports whether the broker's token ends the exchange. For unknown
// mechanisms every success does.
func saslFinished(mechanism string, token []byte) bool {
	switch {
	case strings.HasPrefix(mechanism, "SCRAM-"):
		return bytes.HasPrefix(token, []byte("v="))
	case mechanism == "OAUTHBEARER":
		return len(token) == 0
	}
	return true
}

// recordResponse records that the broker has answered a request.
func (p *peer) recordResponse(key int16) {
	if !inspects(key) {
		p.trusted = true
	}
	if key == keyEndTxn {
		p.transaction, p.produced = false, 0
	}
}

// recordRequest records that a request is on its way to the broker.
func (p *peer) recordRequest(key int16) {
	switch key {
	case keyAddPartitions, keyAddOffsets, keyTxnOffsetCommit:
		p.transaction = true
	}
}

// recordProduce records a transactional Produce.
func (p *peer) recordProduce(version int16, body []byte, now time.Duration) {
	if wire.ProduceTransactional(version, body) {
		p.produced = now
	}
}

// inTransaction reports whether the end of the connection would cut off a
// transaction.
func (p *peer) inTransaction(now time.Duration) bool {
	return p.transaction || p.produced != 0 && now-p.produced < transactionGrace
}
