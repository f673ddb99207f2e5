package gossip

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log"
	"log/slog"
	"net/netip"
	"time"

	"github.com/hashicorp/memberlist"
)

// timing holds the intervals and timeouts.
type timing struct {
	// probe is the interval of probes of other members; answer is how long a probe
	// waits for a response before other members are asked to probe.
	probe, answer time.Duration
	// gossip is the interval of sending queued broadcasts, if there are any.
	gossip time.Duration
	// pushPull is the interval at which two nodes exchange their full state, to
	// recover lost packets.
	pushPull time.Duration
	// reclaim is how long after a node's death its ID stays bound to its address;
	// then another address is accepted.
	reclaim time.Duration
	// stream bounds TCP operations.
	stream time.Duration
	// facts is the minimum interval between updates of this node's facts.
	facts time.Duration
	// heal is the mean interval of attempts to rejoin lost members; each pause is
	// half of it to one and a half.
	heal time.Duration
	// leave bounds the announcement of Leave.
	leave time.Duration
}

// defaultTiming detects a dead node within 3 to 6 seconds on a LAN and sends
// about 0.4 KB/s when idle.
var defaultTiming = timing{
	probe: time.Second, answer: 400 * time.Millisecond,
	gossip: 200 * time.Millisecond, pushPull: 30 * time.Second, reclaim: 30 * time.Second,
	stream: 5 * time.Second, facts: time.Second, heal: 10 * time.Second, leave: 2 * time.Second,
}

// settings is a validated Config.
type settings struct {
	log       *slog.Logger
	timing    timing
	meta      []byte
	bind      netip.AddrPort
	advertise netip.AddrPort // invalid: use the bound address
	keyring   *memberlist.Keyring
}

// check validates the configuration and sets defaults.
func (c *Config) check() (*settings, error) {
	s := &settings{log: c.Log, timing: defaultTiming}
	if c.timing != nil {
		s.timing = *c.timing
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if c.ID == "" || len(c.ID) > maxID {
		return nil, fmt.Errorf("%w: ID %.40q has %d bytes, 1 to %d are allowed", ErrConfig, c.ID, len(c.ID), maxID)
	}
	if c.Label == "" || len(c.Label) > memberlist.LabelMaxSize {
		return nil, fmt.Errorf("%w: label %.40q has %d bytes, 1 to %d are allowed", ErrConfig, c.Label, len(c.Label), memberlist.LabelMaxSize)
	}
	if c.Meta.Instance == "" {
		b := make([]byte, 8)
		_, _ = rand.Read(b) // crypto/rand.Read never fails
		c.Meta.Instance = hex.EncodeToString(b)
	}
	var err error
	if s.meta, err = encodeMeta(c.Meta); err != nil {
		return nil, err
	}
	if s.bind, err = netip.ParseAddrPort(c.Bind); err != nil {
		return nil, fmt.Errorf("%w: bind %q: %w", ErrConfig, c.Bind, err)
	}
	if c.Advertise != "" {
		if s.advertise, err = netip.ParseAddrPort(c.Advertise); err != nil || s.advertise.Addr().IsUnspecified() {
			return nil, fmt.Errorf("%w: advertise %q: not the ip:port of one host", ErrConfig, c.Advertise)
		}
	} else if s.bind.Addr() == netip.IPv6Unspecified() {
		return nil, fmt.Errorf("%w: bind %s: set Advertise to the address that others use", ErrConfig, c.Bind)
	}
	keys := c.Keys
	if len(keys) == 0 {
		key := sha256.Sum256([]byte("penstock gossip " + c.Label))
		keys = [][]byte{key[:]}
	}
	if err := checkKeys(keys); err != nil {
		return nil, err
	}
	s.keyring, err = memberlist.NewKeyring(keys, keys[0])
	return s, err
}

// maxKeys bounds the keys, since each packet is tried with one after the other.
const maxKeys = 8

func checkKeys(keys [][]byte) error {
	if len(keys) == 0 || len(keys) > maxKeys {
		return fmt.Errorf("%w: %d keys, 1 to %d are allowed", ErrConfig, len(keys), maxKeys)
	}
	for i, k := range keys {
		if memberlist.ValidateKey(k) != nil {
			return fmt.Errorf("%w: key %d has %d bytes: 16, 24 or 32 are allowed", ErrConfig, i, len(k))
		}
	}
	return nil
}

// replaceKeys sets the keyring to keys, with the first as primary. Keyring
// removes a key by shifting the ones behind it, in a slice that others read
// without a lock. Removing the last key shifts none, so only the last one is
// ever removed.
func replaceKeys(ring *memberlist.Keyring, keys [][]byte) error {
	has := func(set [][]byte, key []byte) bool {
		for _, k := range set {
			if bytes.Equal(k, key) {
				return true
			}
		}
		return false
	}
	for _, k := range keys {
		if err := ring.AddKey(bytes.Clone(k)); err != nil {
			return err
		}
	}
	if err := ring.UseKey(keys[0]); err != nil {
		return err
	}
	for _, old := range ring.GetKeys() {
		if has(keys, old) {
			continue
		}
		// Move each wanted key to the front; the unwanted ones gather at the end.
		for i := len(keys) - 1; i >= 0; i-- {
			if err := ring.UseKey(keys[i]); err != nil {
				return err
			}
		}
		break
	}
	for all := ring.GetKeys(); !has(keys, all[len(all)-1]); all = ring.GetKeys() {
		if err := ring.RemoveKey(all[len(all)-1]); err != nil {
			return err
		}
	}
	return nil
}

// memberlist returns the configuration of the library.
func (s *settings) memberlist(c Config, logger *log.Logger, g *Gossip) *memberlist.Config {
	m := memberlist.DefaultLANConfig()
	m.Name, m.Label, m.Keyring, m.Logger, m.Transport = c.ID, c.Label, s.keyring, logger, g.transport
	m.BindAddr, m.BindPort = s.bind.Addr().String(), g.transport.port
	if s.advertise.IsValid() {
		m.AdvertiseAddr, m.AdvertisePort = s.advertise.Addr().String(), int(s.advertise.Port())
	}
	if m.AdvertisePort == 0 || !s.advertise.IsValid() {
		m.AdvertisePort = g.transport.port
	}
	m.ProbeInterval, m.ProbeTimeout = s.timing.probe, s.timing.answer
	// A suspect has three probe intervals to refute, or up to three times that
	// while no other member suspects it: then the accuser may be the one that is
	// cut off.
	m.SuspicionMult, m.SuspicionMaxTimeoutMult = 3, 3
	m.AwarenessMaxMultiplier = 4
	m.GossipInterval, m.GossipNodes, m.RetransmitMult = s.timing.gossip, 3, 3
	m.GossipToTheDeadTime, m.DeadNodeReclaimTime = s.timing.reclaim, s.timing.reclaim
	m.PushPullInterval, m.TCPTimeout = s.timing.pushPull, s.timing.stream
	// Encrypted packets of a few hundred bytes gain nothing from LZW.
	m.EnableCompression = false
	// Below the MTU of every network: fragments are easily lost.
	m.UDPBufferSize = 1400
	m.HandoffQueueDepth = 1024
	return m
}
