// Package kafka tests Penstock's Kafka side from outside: real brokers, real
// clients (franz-go, librdkafka, Java's, kafkajs), the real binary between.
//
// The equivalence suite runs the same programs on several targets (direct,
// proxied) and compares what they saw, line by line, addresses aside. The
// isolation suite is what a tenant's client can try to see, count, change or
// tell apart of another tenant's; each probe must be answered as for a name
// that nobody has.
//
// One cluster of three brokers serves all tests of a run. The names that a
// program uses are its own, so what one leaves behind no other sees.
package kafka
