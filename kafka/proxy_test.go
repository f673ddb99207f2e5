package kafka

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"penstock/internal/testkit"
	"penstock/kafka/model"
	"penstock/netio"
	"penstock/netio/clienthello"
	"penstock/routing/resource"
	"penstock/routing/resource/codec"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// stage is a proxy with an engine under it, as a node has it.
type stage struct {
	t      *testing.T
	proxy  *Proxy
	engine *netio.Engine

	mu    sync.Mutex
	ended map[netio.Reason]int
}

// Route implements netio.Handler.
func (s *stage) Route(c *netio.Conn) (netio.Plan, netio.Reason) { return s.proxy.Route(c) }

// Closed implements netio.Handler.
func (s *stage) Closed(c *netio.Conn, why netio.Reason) {
	if p, ok := Of(c.Plan()); ok {
		p.Closed(why)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended[why]++
}

// ends tells how many connections have ended by a reason.
func (s *stage) ends(why netio.Reason) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended[why]
}

func newStage(t *testing.T, cfg Config) *stage {
	t.Helper()
	s := &stage{t: t, ended: map[netio.Reason]int{}}
	meter := netio.NewMeter("one", "t1", 1)
	cfg.Bind, cfg.Loops = "127.0.0.1", 1
	cfg.Meter = func(string, string) *netio.Meter { return meter }
	s.proxy = New(cfg)
	s.proxy.discoveryWait, s.proxy.resolveWait = time.Hour, time.Hour // no busy machine takes that long
	t.Cleanup(s.proxy.Close)
	var err error
	s.engine, err = netio.New(netio.Config{Handler: s, Loops: 1, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.engine.Close)
	return s
}

// listen has the engine listen for kafka Listeners, and gives the addresses.
func (s *stage) listen(config *tls.Config, names ...string) map[string]string {
	s.t.Helper()
	var list []netio.Listener
	for _, name := range names {
		l := netio.Listener{Name: name, Network: "tcp", Address: "127.0.0.1:0"}
		if config != nil {
			l.Mode, l.TLSConfig = netio.ModeTerminate, func(*clienthello.Hello) (*tls.Config, netio.Reason) { return config, netio.OK }
		}
		list = append(list, l)
	}
	s.engine.SetListeners(list)
	at := map[string]string{}
	for _, l := range s.engine.Listeners() {
		if l.Err != nil {
			s.t.Fatal(l.Err)
		}
		at[l.Name] = l.Address
	}
	return at
}

// apply puts resources in force.
func (s *stage) apply(text string) {
	s.t.Helper()
	objects, faults := codec.Decode("k.yaml", []byte(text), append(resource.RoutingKinds(), Kinds()...))
	if len(faults) > 0 {
		s.t.Fatal(faults)
	}
	var changes []resource.Change
	for _, o := range objects {
		changes = append(changes, resource.Put(o))
	}
	if _, err := s.proxy.Apply(changes); err != nil {
		s.t.Fatal(err)
	}
}

// remove removes a resource.
func (s *stage) remove(kind, name string) {
	s.t.Helper()
	gone := resource.Change{Object: resource.Object{Key: resource.Key{Kind: kind, Name: name}}, Delete: true}
	if _, err := s.proxy.Apply([]resource.Change{gone}); err != nil {
		s.t.Fatal(err)
	}
}

// virtual returns the version of a virtual cluster that is in force.
func (s *stage) virtual(name string) *model.Virtual {
	s.t.Helper()
	v, ok := s.proxy.Table().Virtual(name)
	if !ok {
		s.t.Fatalf("there is no virtual cluster %s", name)
	}
	return v
}

// over tells that nobody holds a version any more.
func over(v *model.Virtual) bool {
	if !v.Acquire() {
		return true
	}
	v.Release()
	return false
}

// client is a connection of which the test writes every frame.
type client struct {
	net.Conn
	t  *testing.T
	id int32
}

func dial(t *testing.T, address string) *client {
	t.Helper()
	c, err := net.DialTimeout("tcp", address, testkit.Patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(2 * testkit.Patience)); err != nil {
		t.Fatal(err)
	}
	return &client{Conn: c, t: t}
}

// send sends a request.
func (c *client) send(req kmsg.Request) {
	c.t.Helper()
	c.id++
	if _, err := c.Write(kmsg.NewRequestFormatter(kmsg.FormatterClientID("test")).AppendRequest(nil, req, c.id)); err != nil {
		c.t.Logf("not sent: %v", err) // the answer will not come either
	}
}

// receive brings the response to the request that was sent last.
func (c *client) receive(req kmsg.Request) (kmsg.Response, error) {
	var size [4]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return nil, err
	}
	frame := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(c, frame); err != nil {
		return nil, err
	}
	if got := int32(binary.BigEndian.Uint32(frame)); got != c.id {
		c.t.Errorf("the answer has the number %d, want %d", got, c.id)
	}
	body := frame[4:]
	if req.IsFlexible() && req.Key() != int16(kmsg.ApiVersions) {
		body = body[1:]
	}
	resp := req.ResponseKind()
	resp.SetVersion(req.GetVersion())
	return resp, resp.ReadFrom(body)
}

// metadata asks for a topic.
func (c *client) metadata(topic string) *kmsg.MetadataResponse {
	c.t.Helper()
	req := metadata(topic)
	c.send(req)
	resp, err := c.receive(req)
	if err != nil {
		c.t.Fatal(err)
	}
	return resp.(*kmsg.MetadataResponse)
}

func metadata(topic string) *kmsg.MetadataRequest {
	req := kmsg.NewPtrMetadataRequest()
	req.Version = 12
	t := kmsg.NewMetadataRequestTopic()
	t.Topic = &topic
	req.Topics = append(req.Topics, t)
	return req
}

// told is the only broker of an answer.
func (c *client) told(m *kmsg.MetadataResponse) string {
	c.t.Helper()
	if len(m.Brokers) != 1 {
		c.t.Fatalf("%d brokers, want one", len(m.Brokers))
	}
	return m.Brokers[0].Host
}

// closed waits until the proxy has ended the connection, and reports whether it
// did so in order.
func (c *client) closed() (clean bool) {
	c.t.Helper()
	_, err := c.Read(make([]byte, 1))
	var late net.Error
	if err == nil || errors.As(err, &late) && late.Timeout() {
		c.t.Fatalf("the connection is still open: %v", err)
	}
	return errors.Is(err, io.EOF)
}

// refused connects where that leads nowhere.
func refused(t *testing.T, address string) {
	t.Helper()
	c, err := net.DialTimeout("tcp", address, testkit.Patience)
	if err != nil {
		return // reset before it was known to be connected
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(testkit.Patience)); err != nil {
		t.Fatal(err)
	}
	(&client{Conn: c, t: t}).closed()
}

// fake starts a Kafka cluster in this process.
func fake(t *testing.T, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// held is a broker that has a question about topics, and waits.
type held struct{ held, free chan struct{} }

// hold has the cluster keep the next question until free is closed.
func hold(k *kfake.Cluster) held {
	h := held{make(chan struct{}), make(chan struct{})}
	var once sync.Once
	k.ControlKey(int16(kmsg.Metadata), func(kmsg.Request) (kmsg.Response, error, bool) {
		once.Do(func() { k.SleepControl(func() { close(h.held); <-h.free }) })
		return nil, nil, false
	})
	return h
}
