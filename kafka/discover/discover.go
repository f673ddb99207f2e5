// Package discover finds the brokers of a physical cluster and follows their
// changes. It asks any broker that answers, at an interval and whenever a
// session has seen an unknown broker.
//
//	w, err := discover.Start(discover.Config{Bootstrap: []string{"kafka:9092"}, Update: setBrokers})
//	w.Refresh()
//	w.Close()
//
// It opens connections of its own, apart from those of clients. On brokers that
// authenticate it needs the right to describe the cluster; without that right,
// brokers become known through the answers that sessions pass.
package discover

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// Broker is one broker as it advertises itself.
type Broker struct {
	NodeID int32
	Host   string
	Port   int32
	Rack   string
}

// SASL is how discovery logs in. Clients log in by themselves.
type SASL struct {
	// Mechanism is PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512.
	Mechanism          string
	Username, Password string
}

// Config configures Start.
type Config struct {
	// Name is the physical cluster's, for the log.
	Name string
	// Bootstrap are the addresses to begin with.
	Bootstrap []string
	// TLS towards the brokers; nil: plain.
	TLS *tls.Config
	// SASL is nil where brokers let anybody in.
	SASL *SASL
	// Interval between two requests while all is well. Default 30s.
	Interval time.Duration
	// Update is called with the brokers, sorted by node id, when they have
	// changed. It must not block.
	Update func([]Broker)
	Log    *slog.Logger
}

// Bounds. An answer with more brokers is not believed.
const (
	MaxBrokers      = 10_000
	defaultInterval = 30 * time.Second
	timeout         = 10 * time.Second
	maxResponse     = 8 << 20
	maxIdle         = 10 * time.Minute
	// minBackoff and the pauses after it, each twice as long up to the
	// interval, are between looks that failed.
	minBackoff = 250 * time.Millisecond
	// minInterval is between two looks that were asked for.
	minInterval = 100 * time.Millisecond
)

// Status is the state of discovery.
type Status struct {
	// At is when the brokers were last learned; zero: never.
	At time.Time
	// Err says why the last look failed; nil: it did not.
	Err     error
	Brokers []Broker
}

// Watch follows the brokers of one physical cluster. Its methods may be called
// from any goroutine.
type Watch struct {
	cfg              Config
	client           *kgo.Client
	cancel           context.CancelFunc
	done             chan struct{}
	refreshRequested chan struct{} // holds one: a look is asked for

	mu          sync.Mutex
	status      Status
	lastSuccess time.Time // of the last look that succeeded
}

// Start begins to follow the brokers.
func Start(cfg Config) (*Watch, error) {
	if cfg.Interval <= 0 {
		cfg.Interval = defaultInterval
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	opts := []kgo.Opt{
		kgo.SeedBrokers(cfg.Bootstrap...), kgo.ClientID("penstock"), kgo.DisableClientMetrics(),
		kgo.BrokerMaxReadBytes(maxResponse), kgo.FetchMaxBytes(maxResponse), kgo.FetchMaxPartitionBytes(maxResponse),
		kgo.DialTimeout(timeout / 2), kgo.RequestRetries(0),
		kgo.RetryTimeout(timeout), kgo.ConnIdleTimeout(min(2*cfg.Interval, maxIdle)), kgo.WithLogger(logger{cfg.Log}),
	}
	if cfg.TLS != nil {
		opts = append(opts, kgo.DialTLSConfig(cfg.TLS))
	}
	if cfg.SASL != nil {
		m, err := cfg.SASL.mechanism()
		if err != nil {
			return nil, err
		}
		opts = append(opts, kgo.SASL(m))
	}
	client, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, fmt.Errorf("discover %s: %w", cfg.Name, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	w := &Watch{cfg: cfg, client: client, cancel: cancel, done: make(chan struct{}), refreshRequested: make(chan struct{}, 1)}
	go w.run(ctx)
	return w, nil
}

func (s *SASL) mechanism() (sasl.Mechanism, error) {
	switch s.Mechanism {
	case "PLAIN":
		return plain.Auth{User: s.Username, Pass: s.Password}.AsMechanism(), nil
	case "SCRAM-SHA-256":
		return scram.Auth{User: s.Username, Pass: s.Password}.AsSha256Mechanism(), nil
	case "SCRAM-SHA-512":
		return scram.Auth{User: s.Username, Pass: s.Password}.AsSha512Mechanism(), nil
	}
	return nil, fmt.Errorf("discover: unknown sasl mechanism %q: use PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512", s.Mechanism)
}

// Refresh asks for a request soon.
func (w *Watch) Refresh() {
	select {
	case w.refreshRequested <- struct{}{}:
	default:
	}
}

// Status returns the state of discovery.
func (w *Watch) Status() Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.status
	s.Brokers = slices.Clone(s.Brokers)
	return s
}

// SucceededSince reports whether a request that began after t has succeeded: a
// broker that is missing from its answer was not there then.
func (w *Watch) SucceededSince(t time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lastSuccess.After(t)
}

// Close ends the watch and waits until it has stopped.
func (w *Watch) Close() {
	w.cancel()
	<-w.done
	w.client.Close()
}

// run looks, and waits.
func (w *Watch) run(ctx context.Context) {
	defer close(w.done)
	pause := minBackoff
	for {
		next := w.cfg.Interval
		if err := w.poll(ctx); err != nil && ctx.Err() == nil {
			next = min(pause, w.cfg.Interval)
			pause *= 2
		} else {
			pause = minBackoff
		}
		if !w.wait(ctx, next) {
			return
		}
	}
}

// wait waits for the time, or for a wish after the least one. It returns false
// at the end.
func (w *Watch) wait(ctx context.Context, pause time.Duration) bool {
	least := time.NewTimer(min(minInterval, pause))
	defer least.Stop()
	select {
	case <-least.C:
	case <-ctx.Done():
		return false
	}
	rest := time.NewTimer(pause - min(minInterval, pause))
	defer rest.Stop()
	select {
	case <-rest.C:
	case <-w.refreshRequested:
	case <-ctx.Done():
		return false
	}
	return true
}

var errTooManyBrokers = errors.New("too many brokers")

// poll asks once.
func (w *Watch) poll(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	begun := time.Now()
	brokers, err := w.requestBrokers(ctx)
	w.mu.Lock()
	was := w.status
	w.status.Err = err
	if err == nil {
		w.status.At, w.status.Brokers = time.Now(), brokers
	}
	w.mu.Unlock()
	defer func() {
		if err == nil { // told by then
			w.mu.Lock()
			w.lastSuccess = begun
			w.mu.Unlock()
		}
	}()
	switch {
	case err != nil && was.Err == nil:
		w.cfg.Log.Warn("broker discovery failed; the known brokers are kept", "physicalCluster", w.cfg.Name, "error", err)
	case err == nil && was.Err != nil:
		w.cfg.Log.Info("broker discovery works again", "physicalCluster", w.cfg.Name)
	}
	if err == nil && !slices.Equal(was.Brokers, brokers) {
		w.cfg.Update(slices.Clone(brokers))
	}
	return err
}

// requestBrokers sends a Metadata request without topics to any broker.
func (w *Watch) requestBrokers(ctx context.Context) ([]Broker, error) {
	r := kmsg.NewPtrMetadataRequest()
	r.Topics = []kmsg.MetadataRequestTopic{}
	answer, err := w.client.Request(ctx, r)
	if err != nil {
		return nil, err
	}
	m, ok := answer.(*kmsg.MetadataResponse)
	if !ok {
		return nil, fmt.Errorf("got a %T instead of a response to Metadata", answer)
	}
	if len(m.Brokers) > MaxBrokers {
		return nil, fmt.Errorf("%w: %d, the limit is %d", errTooManyBrokers, len(m.Brokers), MaxBrokers)
	}
	brokers := make([]Broker, 0, len(m.Brokers))
	for _, b := range m.Brokers {
		found := Broker{NodeID: b.NodeID, Host: b.Host, Port: b.Port}
		if b.Rack != nil {
			found.Rack = *b.Rack
		}
		brokers = append(brokers, found)
	}
	slices.SortFunc(brokers, func(a, b Broker) int { return int(a.NodeID - b.NodeID) })
	return brokers, nil
}

// logger passes on what the client library says, for debugging only: what
// matters is said by look.
type logger struct{ log *slog.Logger }

// Level implements kgo.Logger.
func (l logger) Level() kgo.LogLevel {
	if l.log.Enabled(context.Background(), slog.LevelDebug) {
		return kgo.LogLevelInfo
	}
	return kgo.LogLevelNone
}

// Log implements kgo.Logger.
func (l logger) Log(_ kgo.LogLevel, msg string, keyvals ...any) { l.log.Debug(msg, keyvals...) }
