package kafka

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl"

	"penstock/integration/realkafka"
	"penstock/internal/testkit"
)

// target is one path to a cluster: direct, through a proxy, as a tenant.
type target struct {
	name      string
	bootstrap []string
	tls       *tls.Config // nil: plain text
	caFile    string      // CA of tls, for clients that take a file
	keystore  string      // file with the client's key and certificate; empty: none
	// hosts maps names that no resolver knows to addresses; nil: bootstrap and
	// brokers have none.
	hosts func(name string) string
	// sasl authenticates franz-go; user and password are for other clients. Empty:
	// no authentication.
	sasl           []sasl.Mechanism
	user, password string
	// hidden are addresses that no answer may contain.
	hidden []string
	// withoutInternal omits the brokers' internal topics from transcripts.
	withoutInternal bool
	// deviations are the deviations from the first target, by program or API name. An
	// entry without a difference is an error.
	deviations map[string]deviation
}

// deviation is a deliberate difference of a target.
type deviation struct {
	why string
	// offered are the versions of the API that the target has; nil: none.
	offered *[2]int16
	// differs transforms the first target's answers into this one's, if they
	// differ at versions that both have.
	differs func(line string) string
	// lacks are the APIs without which a program cannot run.
	lacks []int16
}

func direct(c *realkafka.Cluster) target {
	return target{name: "direct", bootstrap: c.Bootstrap(realkafka.Plain)}
}

func directTLS(c *realkafka.Cluster) target {
	return target{
		name: "direct by TLS", bootstrap: c.Bootstrap(realkafka.TLS),
		tls: &tls.Config{RootCAs: c.CA.Pool}, caFile: c.CA.File,
	}
}

// dial opens a connection like every client in this process.
func (g target) dial(ctx context.Context, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	at := host
	if g.hosts != nil {
		at = g.hosts(host)
	}
	d := net.Dialer{Timeout: 5 * time.Second}
	c, err := d.DialContext(ctx, "tcp", net.JoinHostPort(at, port))
	if err != nil || g.tls == nil {
		return c, err
	}
	config := g.tls.Clone()
	config.ServerName = host
	secured := tls.Client(c, config)
	if err := secured.HandshakeContext(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return secured, nil
}

// options returns the options that any franz-go client of this target needs.
func (g target) options(more ...kgo.Opt) []kgo.Opt {
	all := []kgo.Opt{
		kgo.SeedBrokers(g.bootstrap...),
		kgo.Dialer(func(ctx context.Context, _, address string) (net.Conn, error) { return g.dial(ctx, address) }),
		kgo.MetadataMinAge(100 * time.Millisecond), kgo.MetadataMaxAge(5 * time.Second),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	}
	if g.sasl != nil {
		all = append(all, kgo.SASL(g.sasl...))
	}
	return append(all, more...)
}

// run is one run of a program on one target, with its transcript.
type run struct {
	t   testing.TB
	ctx context.Context
	target
	id    string // part of all names of the program; of equal length in all runs
	lines []string
}

func newRun(t testing.TB, g target) *run {
	ctx, cancel := context.WithTimeout(t.Context(), 2*testkit.Patience)
	t.Cleanup(cancel)
	return &run{t: t, ctx: ctx, target: g, id: freshID()}
}

// freshID returns a unique ID for names: six letters and digits.
func freshID() string {
	return fmt.Sprintf("z%05x", ids.Add(1)&0xfffff)
}

// uniqueName returns a name with this run's ID.
func (r *run) uniqueName(name string) string { return name + "-" + r.id }

// record appends a line to the transcript.
func (r *run) record(format string, args ...any) {
	r.lines = append(r.lines, strings.ReplaceAll(fmt.Sprintf(format, args...), r.id, "ID"))
}

// recordSorted appends lines in sorted order.
func (r *run) recordSorted(lines []string) {
	slices.Sort(lines)
	for _, l := range lines {
		r.record("%s", l)
	}
}

// transcript returns all lines.
func (r *run) transcript() string { return strings.Join(r.lines, "\n") + "\n" }

// client returns a franz-go client that is closed at the end of the test.
func (r *run) client(more ...kgo.Opt) *kgo.Client {
	r.t.Helper()
	c, err := kgo.NewClient(r.options(more...)...)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(c.Close)
	return c
}

func (r *run) admin() *kadm.Client { return kadm.NewClient(r.client()) }

// newTopic creates a topic with three replicas.
func (r *run) newTopic(name string, partitions int32, configs ...string) string {
	r.t.Helper()
	all := map[string]*string{}
	for i := 0; i+1 < len(configs); i += 2 {
		all[configs[i]] = &configs[i+1]
	}
	topic, cl := r.uniqueName(name), r.client()
	resp, err := kadm.NewClient(cl).CreateTopic(r.ctx, partitions, -1, all, topic)
	if err != nil || resp.Err != nil {
		r.t.Fatalf("%s: topic %s: %v, %v", r.name, topic, err, resp.Err)
	}
	r.known(cl, topic, int(partitions))
	return topic
}

// known waits until every broker knows a topic with that many partitions.
func (r *run) known(cl *kgo.Client, topic string, partitions int) {
	r.t.Helper()
	r.everywhere(fmt.Sprint(topic, " to have ", partitions, " partitions"), cl, metadataRequest(topic), func(resp kmsg.Response) bool {
		all := resp.(*kmsg.MetadataResponse).Topics
		return len(all) == 1 && all[0].ErrorCode == 0 && len(all[0].Partitions) == partitions &&
			!slices.ContainsFunc(all[0].Partitions, func(p kmsg.MetadataResponseTopicPartition) bool { return p.ErrorCode != 0 })
	})
}

// everywhere waits until the answer of each broker satisfies holds: changes
// reach brokers at different times, and clients use any broker.
func (r *run) everywhere(what string, cl *kgo.Client, req kmsg.Request, holds func(kmsg.Response) bool) {
	r.t.Helper()
	var brokers []int
	r.eventually("the brokers", cl, metadataRequest(), func(resp kmsg.Response) bool {
		brokers = nil
		for _, b := range resp.(*kmsg.MetadataResponse).Brokers {
			brokers = append(brokers, int(b.NodeID))
		}
		return len(brokers) > 0
	})
	for _, id := range brokers {
		r.eventually(fmt.Sprint("broker ", id, ": ", what), cl.Broker(id), req, holds)
	}
}

// eventually repeats a request until the answer satisfies holds.
func (r *run) eventually(what string, of interface {
	Request(context.Context, kmsg.Request) (kmsg.Response, error)
}, req kmsg.Request, holds func(kmsg.Response) bool) {
	r.t.Helper()
	last, done := "no answer", false
	defer func() {
		if !done {
			r.t.Logf("the last answer: %s", last)
		}
	}()
	testkit.WaitFor(r.t, what+" ("+r.name+")", func() bool {
		ctx, cancel := context.WithTimeout(r.ctx, 5*time.Second)
		defer cancel()
		resp, err := of.Request(ctx, req)
		if err != nil {
			last = err.Error()
			return false
		}
		last, done = text(resp, r.id), holds(resp)
		return done
	})
}

// metadataRequest requests the metadata of topics; without any, of the brokers
// alone.
func metadataRequest(topics ...string) *kmsg.MetadataRequest {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{}
	for _, topic := range topics {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = kmsg.StringPtr(topic)
		req.Topics = append(req.Topics, t)
	}
	return req
}

// A program is a sequence of client operations whose transcript must be the
// same on every correct target.
type program struct {
	name string
	run  func(r *run)
}

// compare runs the programs on each target, one after the other, and compares
// the transcripts with the first one's.
func compare(t *testing.T, programs []program, targets ...target) {
	for _, p := range programs {
		t.Run(p.name, func(t *testing.T) { p.compare(t, targets) })
	}
}

// compareTogether is compare for programs that use only their own objects: they
// run in parallel after the calling test returns.
func compareTogether(t *testing.T, programs []program, targets ...target) {
	for _, p := range programs {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			p.compare(t, targets)
		})
	}
}

func (p program) compare(t *testing.T, targets []target) {
	var want string
	for i, g := range targets {
		if d, ok := g.deviations[p.name]; ok {
			wantLacking(t, g, d)
			continue
		}
		r := newRun(t, g)
		before := t.Failed()
		began := time.Now()
		p.run(r)
		if t.Failed() && !before {
			t.Fatalf("%s failed", g.name)
		}
		t.Logf("%s: %d lines in %v", g.name, len(r.lines), time.Since(began).Round(time.Millisecond))
		if len(r.lines) == 0 {
			t.Fatalf("%s: the program has no output", g.name)
		}
		switch got := r.transcript(); {
		case i == 0:
			want = got
		case got != want:
			t.Errorf("%s differs from %s:\n%s", g.name, targets[0].name, difference(want, got))
		}
	}
}

// wantLacking checks that a program is skipped for the given reason.
func wantLacking(t *testing.T, g target, d deviation) {
	t.Helper()
	offered, err := g.offered(t.Context())
	if err != nil {
		t.Fatalf("%s: %v", g.name, err)
	}
	if len(d.lacks) == 0 {
		t.Errorf("%s is skipped although no API is missing", g.name)
	}
	for _, key := range d.lacks {
		if versions, ok := offered[key]; ok {
			t.Errorf("%s offers %s as %v, but is skipped as if it did not: %s", g.name, kmsg.NameForKey(key), versions, d.why)
		}
	}
}

// difference shows the lines that only one of two texts has, or their order if
// nothing else differs.
func difference(want, got string) string {
	a, b := strings.Split(want, "\n"), strings.Split(got, "\n")
	var out strings.Builder
	only := func(sign string, these, others []string) {
		const most = 12
		n := 0
		for _, l := range these {
			if slices.Contains(others, l) {
				continue
			}
			if n++; n <= most {
				fmt.Fprintf(&out, "%s %s\n", sign, clip(l))
			}
		}
		if n > most {
			fmt.Fprintf(&out, "%s ... %d lines in all\n", sign, n)
		}
	}
	only("-", a, b)
	only("+", b, a)
	if out.Len() == 0 {
		return "the same lines in another order"
	}
	return out.String()
}

func clip(s string) string {
	if len(s) > 600 {
		return s[:600] + "..."
	}
	return s
}
