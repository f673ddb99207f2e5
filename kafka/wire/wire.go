// Package wire is Kafka's protocol as bytes: frames, headers, which versions
// are flexible, walks and edits in place. It has no I/O and keeps nothing
// that it is given. Lengths are checked before they are believed.
//
// The protocol: https://kafka.apache.org/protocol. Versions and flexibility
// come from kmsg, which is generated from the broker's own schemas.
package wire
