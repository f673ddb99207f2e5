package realkafka

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// randomID returns a Kafka UUID. It starts with a letter: a leading dash would
// be parsed as an option.
func randomID() string {
	var id [16]byte
	_, _ = rand.Read(id[:])
	id[0] &= 0x3f
	return base64.RawURLEncoding.EncodeToString(id[:])
}

// warningsOnly logs warnings to standard output; Kafka's default logs nothing.
const warningsOnly = `status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{HH:mm:ss,SSS} %p %m (%c)%n%throwable{short}
rootLogger.level = WARN
rootLogger.appenderRef.out.ref = out
# The brokers come up one after the other.
logger.network.name = org.apache.kafka.clients.NetworkClient
logger.network.level = ERROR
# Requests that are wrong on purpose are many.
logger.wrong.name = kafka.network.Processor
logger.wrong.level = FATAL
logger.wronger.name = kafka.server.KafkaApis
logger.wronger.level = FATAL
`

// write creates the broker's folder and returns the path of its configuration.
func (b *Broker) write() (string, error) {
	if err := os.MkdirAll(b.dir, 0o700); err != nil {
		return "", err
	}
	keystore, err := b.cluster.CA.keystore(b.dir, b.IP)
	if err != nil {
		return "", err
	}
	all := b.properties(keystore)
	maps.Copy(all, b.cluster.config.Properties)
	var text strings.Builder
	for _, k := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&text, "%s=%s\n", k, all[k])
	}
	if err := os.WriteFile(filepath.Join(b.dir, "log4j2.properties"), []byte(warningsOnly), 0o600); err != nil {
		return "", err
	}
	file := filepath.Join(b.dir, "server.properties")
	return file, os.WriteFile(file, []byte(text.String()), 0o600)
}

// properties configures a small broker: internal topics with few partitions,
// short delays, and every feature that a client can use.
func (b *Broker) properties(keystore string) map[string]string {
	replicas := fmt.Sprint(min(3, len(b.cluster.Brokers)))
	var controllers []string
	for _, other := range b.cluster.Brokers {
		controllers = append(controllers, other.Addr(controller))
	}
	all := map[string]string{
		"node.id":                             fmt.Sprint(b.ID),
		"process.roles":                       "broker,controller",
		"controller.quorum.bootstrap.servers": strings.Join(controllers, ","),
		"controller.listener.names":           string(controller),
		"inter.broker.listener.name":          string(Plain),
		"listener.security.protocol.map":      "PLAINTEXT:PLAINTEXT,VIA:PLAINTEXT,TLS:SSL,SASL:SASL_PLAINTEXT,MUTUAL:SSL,CONTROLLER:PLAINTEXT",
		"listeners": b.listeners(func(l Listener) string { return b.Addr(l) },
			controller, Plain, Via, TLS, SASL, Mutual),
		"advertised.listeners": b.listeners(func(l Listener) string {
			if l == Via {
				return b.ProxyAddr()
			}
			return b.Addr(l)
		}, Plain, Via, TLS, SASL, Mutual),
		"log.dirs":                       b.data,
		"auto.create.topics.enable":      "false",
		"log.cleaner.dedupe.buffer.size": "8388608",
		"default.replication.factor":     replicas,
		// Keep records with the timestamps that tests give them, however old.
		"log.retention.ms": "-1",
		// Delete logs soon.
		"log.segment.delete.delay.ms": "1000",

		"ssl.keystore.type":       "PEM",
		"ssl.keystore.location":   keystore,
		"ssl.truststore.type":     "PEM",
		"ssl.truststore.location": b.cluster.CA.File,

		"listener.name.mutual.ssl.client.auth": "required",

		// One coordinator partition, so that the hash of a name never matters.
		"offsets.topic.num.partitions":                     "1",
		"offsets.topic.replication.factor":                 replicas,
		"transaction.state.log.num.partitions":             "1",
		"transaction.state.log.replication.factor":         replicas,
		"transaction.state.log.min.isr":                    "1",
		"share.coordinator.state.topic.num.partitions":     "1",
		"share.coordinator.state.topic.replication.factor": replicas,
		"share.coordinator.state.topic.min.isr":            "1",

		"authorizer.class.name":          "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
		"super.users":                    "User:ANONYMOUS;User:admin",
		"allow.everyone.if.no.acl.found": "true",
		"delegation.token.secret.key":    "a secret of the tests",
		"sasl.enabled.mechanisms":        "PLAIN,SCRAM-SHA-256,OAUTHBEARER",
	}
	maps.Copy(all, fastStartProperties)
	maps.Copy(all, saslProperties())
	if b.cluster.config.FastStart {
		maps.Copy(all, map[string]string{"num.network.threads": "2", "num.io.threads": "3", "num.replica.fetchers": "1"})
	}
	return all
}

// fastStartProperties are intervals short enough for tests.
var fastStartProperties = map[string]string{
	"group.initial.rebalance.delay.ms":                            "0",
	"group.min.session.timeout.ms":                                "500",
	"group.consumer.min.heartbeat.interval.ms":                    "300",
	"group.consumer.heartbeat.interval.ms":                        "300",
	"group.consumer.min.session.timeout.ms":                       "1000",
	"group.share.min.heartbeat.interval.ms":                       "300",
	"group.share.heartbeat.interval.ms":                           "300",
	"group.share.min.session.timeout.ms":                          "1000",
	"group.streams.min.heartbeat.interval.ms":                     "300",
	"group.streams.heartbeat.interval.ms":                         "300",
	"group.streams.min.session.timeout.ms":                        "1000",
	"group.streams.initial.rebalance.delay.ms":                    "0",
	"broker.heartbeat.interval.ms":                                "500",
	"broker.session.timeout.ms":                                   "6000",
	"controller.quorum.fetch.timeout.ms":                          "4000",
	"transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}

func (b *Broker) listeners(at func(Listener) string, which ...Listener) string {
	var all []string
	for _, l := range which {
		all = append(all, fmt.Sprintf("%s://%s", l, at(l)))
	}
	return strings.Join(all, ",")
}

func saslProperties() map[string]string {
	plain := "org.apache.kafka.common.security.plain.PlainLoginModule required"
	for _, user := range slices.Sorted(maps.Keys(Users)) {
		plain += fmt.Sprintf(` user_%s="%s"`, user, Users[user])
	}
	const bearer = "org.apache.kafka.common.security.oauthbearer"
	return map[string]string{
		"listener.name.sasl.plain.sasl.jaas.config":          plain + ";",
		"listener.name.sasl.plain.connections.max.reauth.ms": "3000",
		"listener.name.sasl.scram-sha-256.sasl.jaas.config":  "org.apache.kafka.common.security.scram.ScramLoginModule required;",
		"listener.name.sasl.oauthbearer.sasl.jaas.config":    bearer + `.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="admin";`,
	}
}
