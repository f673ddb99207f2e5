// Package realkafka runs Apache Kafka for tests and measurements: brokers in
// KRaft's combined mode, each on its own loopback address, with a bounded heap,
// and killed when the parent process ends. setup.sh installs Kafka.
//
//	cluster, err := realkafka.Start(ctx, realkafka.Config{Dir: dir, Brokers: 3})
//	defer cluster.Stop()
//	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.Bootstrap(realkafka.Plain)...))
//
// Every broker uses the same ports on an address that no other test uses, so
// that a killed broker finds its ports free again.
package realkafka

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"

	"penstock/internal/testkit/process"
)

// Listener names one of the listeners of every broker.
type Listener string

const (
	// Plain is plain text and advertises the broker itself.
	Plain Listener = "PLAINTEXT"
	// Via is plain text and advertises Broker.Proxy, where a test runs a proxy
	// that rewrites nothing.
	Via Listener = "VIA"
	// TLS uses a certificate of Cluster.CA for the broker's address.
	TLS Listener = "TLS"
	// SASL is plain text and authenticates Users with PLAIN (which must
	// reauthenticate every few seconds), SCRAM-SHA-256, or OAUTHBEARER with
	// unsigned tokens.
	SASL Listener = "SASL"
	// Mutual is TLS and requires a client certificate of Cluster.CA.
	Mutual Listener = "MUTUAL"

	controller Listener = "CONTROLLER"
)

var ports = map[Listener]int{controller: 9090, Plain: 9092, Via: 9093, TLS: 9094, SASL: 9095, Mutual: 9096}

// Users are the names and passwords for SASL. admin is a super user, and so are
// connections without SASL.
var Users = map[string]string{"admin": "admin-password", "alice": "alice-password", "bob": "bob-password"}

// Config configures a cluster.
type Config struct {
	Dir     string // for configuration and logs; must exist
	Brokers int    // default 1
	HeapMB  int    // per broker; default 512
	// FastStart reduces startup time and CPU: C1 compiler only, serial collector, few
	// threads. For tests, not for measurements.
	FastStart bool
	// Properties are added to those of every broker and take precedence.
	Properties map[string]string
}

// Cluster is a set of running brokers.
type Cluster struct {
	ID      string
	CA      Authority
	Brokers []*Broker // indexed by node ID

	config    Config
	java      string
	data      *dataFolder // of all brokers; removed by Stop
	classpath string
}

// Broker is one broker of a cluster.
type Broker struct {
	ID    int32
	IP    string
	Proxy string // host advertised by Via, on Via's port

	cluster *Cluster
	dir     string
	data    string
	proc    *process.Process // nil while stopped
}

// nets counts the networks assigned by this process.
var nets atomic.Int32

// Start starts the brokers and waits until each of them lists all.
func Start(ctx context.Context, config Config) (*Cluster, error) {
	config.Brokers, config.HeapMB = max(config.Brokers, 1), max(config.HeapMB, 128)
	if config.HeapMB == 128 {
		config.HeapMB = 512
	}
	classpath, err := Classpath()
	if err != nil {
		return nil, err
	}
	data, err := newDataFolder(config.Dir)
	if err != nil {
		return nil, err
	}
	c := &Cluster{ID: randomID(), config: config, java: "java", classpath: classpath, data: data}
	network := fmt.Sprintf("127.%d.%d.", 20+os.Getpid()%200, 1+(os.Getpid()/200+int(nets.Add(1)))%250)
	for i := range config.Brokers {
		c.Brokers = append(c.Brokers, &Broker{
			ID: int32(i), IP: fmt.Sprint(network, i+1), Proxy: fmt.Sprint(network, i+101), cluster: c,
			dir: filepath.Join(config.Dir, fmt.Sprint("broker-", i)), data: filepath.Join(data.path, fmt.Sprint("data-", i)),
		})
	}
	if c.CA, err = NewAuthority(config.Dir); err != nil {
		c.Stop()
		return nil, err
	}
	if err := c.format(ctx); err != nil {
		c.Stop()
		return nil, err
	}
	for _, b := range c.Brokers {
		if err := b.Start(); err != nil {
			c.Stop()
			return nil, err
		}
	}
	if err := c.WaitReady(ctx, len(c.Brokers)); err != nil {
		err = fmt.Errorf("%w\n%s", err, c.Logs())
		c.Stop()
		return nil, err
	}
	return c, nil
}

// format writes each broker's files and formats its data folder.
func (c *Cluster) format(ctx context.Context) error {
	var voters []string
	for _, b := range c.Brokers {
		voters = append(voters, fmt.Sprintf("%d@%s:%s", b.ID, b.Addr(controller), randomID()))
	}
	var all errgroup.Group
	for _, b := range c.Brokers {
		all.Go(func() error {
			file, err := b.write()
			if err != nil {
				return err
			}
			args := []string{"format", "-t", c.ID, "-c", file, "--initial-controllers", strings.Join(voters, ",")}
			for user, password := range Users {
				args = append(args, "--add-scram", fmt.Sprintf("SCRAM-SHA-256=[name=%s,password=%s]", user, password))
			}
			_, err = Tool(ctx, "", "kafka.tools.StorageTool", args...)
			return err
		})
	}
	return all.Wait()
}

// Addr returns the broker's address of a listener.
func (b *Broker) Addr(l Listener) string { return fmt.Sprintf("%s:%d", b.IP, ports[l]) }

// ProxyAddr returns the address that Via advertises.
func (b *Broker) ProxyAddr() string { return fmt.Sprintf("%s:%d", b.Proxy, ports[Via]) }

// Bootstrap returns the addresses of all brokers for a listener; for Via, those
// of the proxies.
func (c *Cluster) Bootstrap(l Listener) []string {
	var all []string
	for _, b := range c.Brokers {
		if l == Via {
			all = append(all, b.ProxyAddr())
		} else {
			all = append(all, b.Addr(l))
		}
	}
	return all
}

// Start starts the broker, which must be stopped, without waiting for it.
func (b *Broker) Start() error {
	if b.proc != nil {
		return fmt.Errorf("broker %d runs already", b.ID)
	}
	heap := fmt.Sprintf("-Xmx%dm", b.cluster.config.HeapMB)
	argv := []string{b.cluster.java, "-Xms256m", heap}
	if b.cluster.config.FastStart {
		argv = append(argv, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
	} else {
		argv[1] = strings.Replace(heap, "mx", "ms", 1)
	}
	argv = append(argv, "-Dlog4j2.configurationFile="+filepath.Join(b.dir, "log4j2.properties"), "-Djava.awt.headless=true",
		"-cp", b.cluster.classpath, "kafka.Kafka", filepath.Join(b.dir, "server.properties"))
	proc, err := process.Start("kafka", b.dir, argv)
	if err != nil {
		return err
	}
	b.proc = proc
	return nil
}

// Kill ends the broker like a crash.
func (b *Broker) Kill() {
	if b.proc != nil {
		b.proc.Kill()
		b.proc = nil
	}
}

// Process returns the running process; nil while stopped.
func (b *Broker) Process() *process.Process { return b.proc }

// Stop kills all brokers and removes their data.
func (c *Cluster) Stop() {
	for _, b := range c.Brokers {
		b.Kill()
	}
	c.data.remove()
}

// Logs returns the end of the output of each running broker.
func (c *Cluster) Logs() string {
	var text strings.Builder
	for _, b := range c.Brokers {
		if b.proc != nil {
			fmt.Fprintf(&text, "broker %d:\n%s\n", b.ID, b.proc.Output())
		}
	}
	return text.String()
}

// WaitReady waits until every running broker reports that many brokers. (An
// open port does not mean that the cluster is ready.)
func (c *Cluster) WaitReady(ctx context.Context, brokers int) error {
	for _, b := range c.Brokers {
		if b.proc == nil {
			continue
		}
		if err := b.waitNames(ctx, brokers); err != nil {
			return fmt.Errorf("broker %d: %w", b.ID, err)
		}
	}
	return nil
}

func (b *Broker) waitNames(ctx context.Context, brokers int) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(b.Addr(Plain)), kgo.DialTimeout(time.Second), kgo.RequestRetries(0))
	if err != nil {
		return err
	}
	defer client.Close()
	for {
		attempt, cancel := context.WithTimeout(ctx, 2*time.Second)
		var named int
		resp, err := kmsg.NewPtrDescribeClusterRequest().RequestWith(attempt, client)
		cancel()
		if err == nil {
			if named = len(resp.Brokers); named == brokers {
				return nil
			}
			err = fmt.Errorf("it names %d brokers, not %d", named, brokers)
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}
