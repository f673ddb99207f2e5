package session

import (
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A session that is to leave steers its client away first (rule 15, KIP-1102):
// whoever asks for Metadata is answered REBOOTSTRAP_REQUIRED, lets go of all
// that it knew of the cluster and begins with its bootstrap addresses again, at
// a time of its own choice. What each client makes of it:
//
//   - Java from 4.0 closes its connections and bootstraps, unless it has
//     metadata.recovery.strategy=none: then it takes the answer for one of a
//     broker that has just started, and asks again later.
//   - librdkafka from 2.11 does the same, by the same setting.
//   - franz-go that has OnRebootstrapRequired asks that for seeds, and goes on
//     with them. Without it, it forgets the brokers as well, but may tell the
//     application of the error in place of producing what it has buffered. Nobody
//     can see from here which of the two it is, so what calls itself by
//     franz-go's name is left alone.
//
// The answer leaves in its turn, so requests before it get theirs. Then the
// session ends at its next quiet moment: a client that bootstraps may take the
// connections that it has for good ones, franz-go those to its seeds, and would
// be told the same again and again. In a transaction nothing is answered like
// this: the client would cut off what it has under way. Clients that speak no
// v13, or never ask, find out by their connection's end.

// steersFrom is the first version of Metadata that has an error for all of it.
const steersFrom = 13

// unsteered is the name by which franz-go introduces itself (KIP-511).
const unsteered = "kgo"

// needsRebootstrap tells whether a request is answered so.
func (s *Session) needsRebootstrap(key, version int16) bool {
	return s.leave.wanted && key == keyMetadata && version >= steersFrom && s.peer.software != unsteered && !s.peer.inTransaction(s.now())
}

// rebootstrap is the body of that answer.
func (s *Session) rebootstrap() []byte {
	s.leave.from = min(s.leave.from, s.now())
	return bootstrapAgain()
}

// bootstrapAgain is no brokers, no topics, and the error. It must not be written to.
var bootstrapAgain = sync.OnceValue(func() []byte {
	r := kmsg.NewPtrMetadataResponse()
	r.Version = steersFrom
	r.ErrorCode = kerr.RebootstrapRequired.Code
	return r.AppendTo(nil)
})
