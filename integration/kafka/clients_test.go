package kafka

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"penstock/integration/realkafka"
	"penstock/internal/testkit"
)

// TestOtherClients runs the programs of librdkafka, Java and kafkajs: in the
// whole suite on all targets, otherwise each only as a tenant, with the first
// few of Java's tools.
func TestOtherClients(t *testing.T) {
	c := cluster(t)
	v := startVirtual(t, c)
	own := direct(c)
	own.withoutInternal = true
	named := startLocalhost(t, c)
	if !wholeSuite() {
		compare(t, []program{{"kcat", kcat}}, own, v.red, named)
		compare(t, []program{{"kafkajs", kafkajs}, {"Java's first tools", func(r *run) { newTools(r).first() }}}, own, v.red)
		return
	}
	compare(t, []program{{"kcat", kcat}}, append([]target{own, v.plain, v.red, named}, whereNamed(t, v.tls)...)...)
	compare(t, []program{{"kafkajs", kafkajs}}, own, v.tls, v.red)
	java := []target{own, v.red}
	if longTests() {
		java = append(java, v.plain, v.tls)
	}
	compare(t, []program{{"Java's tools", javaTools}}, java...)
}

// runProgram runs a program to completion and returns its output.
func (r *run) runProgram(in string, environment []string, name string, args ...string) string {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.ctx, testkit.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, requirePeer(r.t, name), args...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(in), &out, &errs
	cmd.Env = append(os.Environ(), environment...)
	if err := cmd.Run(); err != nil {
		r.t.Fatalf("%s: %s %s: %v\n%s%s", r.name, name, strings.Join(args, " "), err, &out, &errs)
	}
	return out.String()
}

// recordLines records the lines of an output in sorted order.
func (r *run) recordLines(what, text string) {
	var lines []string
	for l := range strings.Lines(text) {
		if l = strings.TrimSpace(l); l != "" {
			lines = append(lines, what+": "+unaddressed(l))
		}
	}
	r.recordSorted(lines)
}

// numbered returns n lines of the form "key 7:value 7".
func numbered(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "key %d:value %d\n", i, i)
	}
	return b.String()
}

// hostsFile returns a hosts file with all names of a node with TLS.
func (r *run) hostsFile() string {
	r.t.Helper()
	file := filepath.Join(r.t.TempDir(), "hosts")
	text := fmt.Sprintf("127.0.0.1 localhost bootstrap.%[1]s broker-0.%[1]s broker-1.%[1]s broker-2.%[1]s\n", domain)
	must(r.t, os.WriteFile(file, []byte(text), 0o644)) //nolint:gosec // it stands in for /etc/hosts
	return file
}

// unshared wraps a command so that file is bind-mounted over another one in a
// private mount namespace: kcat resolves names only through the system.
func unshared(file, over string, argv ...string) []string {
	return append([]string{
		"unshare", "--mount", "--map-root-user", "sh", "-c", `mount --bind "$1" "$2" && shift 2 && exec "$@"`, "sh", file, over,
	}, argv...)
}

// whereNamed returns the target if this machine allows a private /etc/hosts,
// else nothing. (startLocalhost needs none.)
func whereNamed(t *testing.T, g target) []target {
	t.Helper()
	file := filepath.Join(t.TempDir(), "hosts")
	must(t, os.WriteFile(file, []byte("127.0.0.1 localhost\n"), 0o600))
	argv := unshared(file, "/etc/hosts", "true")
	if out, err := exec.CommandContext(t.Context(), argv[0], argv[1:]...).CombinedOutput(); err != nil { //nolint:gosec // as above
		t.Logf("NOT TESTED: kcat at %s: %v, %s", g.name, err, out)
		return nil
	}
	return []target{g}
}

// kcat runs kcat with the target's options.
func (r *run) kcat(in string, args ...string) string {
	r.t.Helper()
	argv := append([]string{requirePeer(r.t, "kcat")}, args...)
	if r.tls != nil {
		argv = append(argv[:1:1], append([]string{
			"-X", "security.protocol=ssl", "-X", "ssl.ca.location=" + r.caFile, "-X", "broker.address.family=v4",
		}, args...)...)
	}
	if r.hosts != nil {
		argv = unshared(r.hostsFile(), "/etc/hosts", argv...)
	}
	return r.runProgram(in, nil, argv[0], argv[1:]...)
}

// kcat covers librdkafka: each codec, a group, metadata.
func kcat(r *run) {
	at := strings.Join(r.bootstrap, ",")
	topic := r.newTopic("kcat", 2)
	for _, codec := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		r.kcat(numbered(20), "-P", "-b", at, "-t", topic, "-K:", "-z", codec, "-X", "enable.idempotence=true")
	}
	r.recordLines("read", r.kcat("", "-C", "-b", at, "-t", topic, "-e", "-q", "-o", "beginning", "-f", "%k %s\n"))
	group := r.uniqueName("kcat")
	r.recordLines("in a group", r.kcat("", "-b", at, "-q", "-e", "-o", "beginning", "-f", "%k %s\n",
		"-X", "auto.offset.reset=earliest", "-X", "session.timeout.ms=6000", "-G", group, topic))
	r.committed(group)
	listed := r.kcat("", "-L", "-b", at, "-t", topic)
	for l := range strings.Lines(listed) {
		if strings.Contains(l, "topic \"") || strings.Contains(l, "brokers:") {
			r.record("listed: %s", strings.TrimSpace(l))
		}
	}
}

// javaConfig writes the properties of a client, and returns the JVM flags for
// resolving the target's names.
func (r *run) javaConfig(extra ...string) (file string, machine []string) {
	r.t.Helper()
	dir := r.t.TempDir()
	lines := append([]string{"request.timeout.ms=20000", "default.api.timeout.ms=30000"}, extra...)
	if r.tls != nil {
		lines = append(lines, "security.protocol=SSL", "ssl.truststore.type=PEM", "ssl.truststore.location="+r.caFile)
	}
	if r.keystore != "" {
		lines = append(lines, "ssl.keystore.type=PEM", "ssl.keystore.location="+r.keystore)
	}
	if r.hosts != nil {
		machine = append(machine, "-Djdk.net.hosts.file="+r.hostsFile())
	}
	file = filepath.Join(dir, "client.properties")
	must(r.t, os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600))
	return file, machine
}

var (
	figures = regexp.MustCompile(`[0-9]+(\.[0-9]+)?`)
	spaces  = regexp.MustCompile(`\s+`)
)

// tools runs Java tools against a target, one at a time.
type tools struct {
	*run
	at, file string
	machine  []string
}

func newTools(r *run) *tools {
	ctx, cancel := context.WithTimeout(r.t.Context(), 5*testkit.Patience)
	r.t.Cleanup(cancel)
	r.ctx = ctx
	file, machine := r.javaConfig()
	return &tools{run: r, at: strings.Join(r.bootstrap, ","), file: file, machine: machine}
}

// tool runs one tool to completion with the cluster's address, and returns its
// output.
func (j *tools) tool(in, class string, args ...string) string {
	j.t.Helper()
	if !strings.HasPrefix(class, "kafka.") {
		class = "org.apache.kafka.tools." + class
	}
	began := time.Now()
	out, err := realkafka.ToolWith(j.ctx, j.machine, in, class,
		append([]string{"--bootstrap-server", j.at, "--command-config", j.file}, args...)...)
	if took := time.Since(began); took > 10*time.Second {
		j.t.Logf("%s: %s took %v", j.name, class, took.Round(time.Millisecond))
	}
	if err != nil {
		j.t.Fatalf("%s: %v", j.name, err)
	}
	return out
}

// first creates a topic, produces to it and consumes from it in a group, whose
// name it returns.
func (j *tools) first() (group string) {
	topic := j.uniqueName("java")
	j.tool("", "TopicCommand", "--create", "--topic", topic, "--partitions", "2")
	described := j.tool("", "TopicCommand", "--describe", "--topic", topic)
	j.record("described in %d lines", strings.Count(described, topic))
	j.tool(numbered(30), "ConsoleProducer", "--topic", topic,
		"--property", "parse.key=true", "--property", "key.separator=:", "--compression-codec", "zstd")
	group = j.uniqueName("java")
	j.recordLines("consumed", j.tool("", "consumer.ConsoleConsumer", "--topic", topic,
		"--from-beginning", "--max-messages", "30", "--timeout-ms", "30000", "--group", group,
		"--command-property", "group.protocol=consumer", "--property", "print.key=true"))
	return group
}

// javaTools runs the console and performance tools, including transactions and
// share groups.
func javaTools(r *run) {
	j := newTools(r)
	group := j.first()
	topic := j.uniqueName("java")
	perf := j.tool("", "ProducerPerformance", "--topic", topic, "--num-records", "3000",
		"--record-size", "1024", "--throughput", "-1", "--transactional-id", j.uniqueName("java"), "--transaction-duration-ms", "200")
	j.record("transactions: %s", figures.ReplaceAllString(strings.SplitN(perf, "records sent", 2)[0], "N"))
	j.tool("", "ConsumerPerformance", "--topic", topic, "--num-records", "3000",
		"--timeout", "30000", "--hide-header", "--group", j.uniqueName("java-perf"))
	shared := j.uniqueName("java-s")
	j.tool("", "kafka.admin.ConfigCommand", "--alter", "--entity-type", "groups",
		"--entity-name", shared, "--add-config", "share.auto.offset.reset=earliest")
	few := j.newTopic("java-few", 1)
	j.tool(numbered(10), "ConsoleProducer", "--topic", few)
	j.recordLines("shared", j.tool("", "consumer.ConsoleShareConsumer", "--topic", few,
		"--max-messages", "10", "--timeout-ms", "30000", "--group", shared))
	groups := j.tool("", "consumer.group.ConsumerGroupCommand", "--describe", "--group", group, "--offsets")
	for l := range strings.Lines(groups) {
		if f := strings.Fields(l); len(f) > 5 && f[0] == group {
			j.record("group: %s", strings.Join(f[:3], " "))
		}
	}
}

// kafkajs covers a third implementation of the protocol.
func kafkajs(r *run) {
	modules, err := realkafka.NodeModules()
	must(r.t, err)
	topic, group := r.newTopic("kafkajs", 2), r.uniqueName("kafkajs")
	file := filepath.Join(r.t.TempDir(), "client.js")
	must(r.t, os.WriteFile(file, []byte(kafkajsProgram), 0o600))
	began := time.Now()
	out := r.runProgram("", []string{
		"NODE_PATH=" + modules, "BROKERS=" + strings.Join(r.bootstrap, ","), "TOPIC=" + topic, "GROUP=" + group, "CA=" + r.caFile,
		"KAFKAJS_NO_PARTITIONER_WARNING=1",
	}, "node", file)
	r.t.Logf("kafkajs took %v", time.Since(began).Round(time.Millisecond))
	r.recordLines("kafkajs", spaces.ReplaceAllString(out, "\n"))
}

// kafkajsProgram produces, including a committed and an aborted transaction,
// and consumes in a group.
const kafkajsProgram = `
const { Kafka, logLevel, CompressionTypes } = require('kafkajs');
const fs = require('fs'), net = require('net'), tls = require('tls');
const ca = process.env.CA ? [fs.readFileSync(process.env.CA, 'utf8')] : undefined;
const lookup = (host, options, done) => {
  if (options.all) return done(null, [{ address: '127.0.0.1', family: 4 }]);
  done(null, '127.0.0.1', 4);
};
const kafka = new Kafka({
  clientId: 'kafkajs', brokers: process.env.BROKERS.split(','), logLevel: logLevel.NOTHING,
  socketFactory: ({ host, port, onConnect }) => {
    const socket = ca ? tls.connect({ host, port, servername: net.isIP(host) ? '' : host, ca,` +
	` lookup: net.isIP(host) ? undefined : lookup }, onConnect)
      : net.connect({ host, port }, onConnect);
    socket.setKeepAlive(true, 60000);
    return socket;
  },
  ssl: ca ? { ca } : false,
});
const topic = process.env.TOPIC, out = [];
const message = (s, i) => ({ key: 'k' + i, value: s + i, partition: i % 2, timestamp: '1700000000000' });
(async () => {
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 });
  await producer.connect();
  // One broker at a time: of two at once, it sends again to the one that has
  // not answered yet when the other says "later", and both batches are written.
  const send = async (to, s, more) => {
    const all = Array.from({ length: 20 }, (_, i) => message(s, i));
    for (const p of [0, 1]) await to.send({ topic, messages: all.filter((m) => m.partition === p), acks: -1, ...more });
  };
  await send(producer, 'plain');
  await send(producer, 'gzip', { compression: CompressionTypes.GZIP });
  const transactional = kafka.producer({ transactionalId: process.env.GROUP, maxInFlightRequests: 1, idempotent: true });
  await transactional.connect();
  for (const end of ['commit', 'abort']) {
    const t = await transactional.transaction();
    await send(t, end);
    await t[end]();
  }
  const consumer = kafka.consumer({ groupId: process.env.GROUP, readUncommitted: false, maxWaitTimeInMs: 200 });
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  await new Promise((resolve, reject) => {
    setTimeout(() => reject(new Error('only ' + out.length + ' came')), 45000).unref();
    consumer.run({ eachMessage: async ({ partition, message: m }) => {
      out.push(partition + '/' + m.offset + ':' + m.key + '=' + m.value);
      if (out.length === 60) resolve();
    } });
  });
  const admin = kafka.admin();
  await admin.connect();
  for (const p of await admin.fetchTopicOffsets(topic)) out.push('end:' + p.partition + '@' + p.high);
  await Promise.all([consumer.disconnect(), producer.disconnect(), transactional.disconnect(), admin.disconnect()]);
  console.log(out.join('\n'));
})().catch((e) => { console.error(e); process.exit(1); });
`
