package session

import (
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A session that is to leave first tells its client to bootstrap again
// (KIP-1102): it answers Metadata with REBOOTSTRAP_REQUIRED. The client drops all
// that it knows of the cluster and begins with its bootstrap addresses, at a time
// of its own choice. Clients react as follows:
//
//   - Java from 4.0 closes its connections and bootstraps, unless it has
//     metadata.recovery.strategy=none: then it treats the answer as that of a
//     broker that has just started, and asks again later.
//   - librdkafka from 2.11 does the same, by the same setting.
//   - franz-go with OnRebootstrapRequired takes the seeds that this function
//     returns. Without it, it drops the brokers as well, but may give the error
//     to the application instead of producing what it has buffered. The proxy
//     cannot tell these apart, so it does not answer clients that call
//     themselves franz-go in this way.
//
// The answer leaves in its turn, behind those to earlier requests. Then the
// session ends at its next quiet moment: a client that bootstraps may go on with
// connections that it has (franz-go with those to its seeds), and would get the
// same answer again and again. A client in a transaction does not get this
// answer, since it would abort what is under way. Clients without v13, and those
// that never ask, notice the end of their connection.

// rebootstrapVersion is the first version of Metadata with an error for the
// whole response.
const rebootstrapVersion = 13

// franzGoName is the name by which franz-go introduces itself (KIP-511).
const franzGoName = "kgo"

// needsRebootstrap reports whether a request is answered by
// REBOOTSTRAP_REQUIRED.
func (s *Session) needsRebootstrap(key, version int16) bool {
	return s.leave.wanted && key == keyMetadata && version >= rebootstrapVersion && s.peer.software != franzGoName &&
		!s.peer.inTransaction(s.now())
}

// rebootstrap returns the body of that answer.
func (s *Session) rebootstrap() []byte {
	s.leave.earliest = min(s.leave.earliest, s.now())
	return rebootstrapResponse()
}

// rebootstrapResponse has no brokers, no topics, and the error. It must not be
// written to.
var rebootstrapResponse = sync.OnceValue(func() []byte {
	r := kmsg.NewPtrMetadataResponse()
	r.Version = rebootstrapVersion
	r.ErrorCode = kerr.RebootstrapRequired.Code
	return r.AppendTo(nil)
})
