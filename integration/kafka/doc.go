// Package kafka tests Penstock's Kafka proxy from outside, with real brokers,
// real clients (franz-go, librdkafka, Java, kafkajs) and the real binary in
// between.
//
// The equivalence suite runs the same programs on several targets (direct,
// proxied) and compares their transcripts line by line, without addresses. The
// isolation suite covers what a tenant's client can do to see, count, change or
// distinguish objects of another tenant; each probe must be answered as for a
// name that does not exist.
//
// One cluster of three brokers serves all tests of a run. Each program uses its
// own names, so no program sees what another one leaves behind.
package kafka
