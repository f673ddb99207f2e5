package session

import (
	"time"

	"penstock/kafka/filter"
)

// inFlightRequest is a request that will be answered and has not been.
type inFlightRequest struct {
	call   *filter.Call // nil: no filter is concerned
	answer []byte       // answered: the whole frame, which waits for its turn
	// start is when its header was there, sent when its last byte went to
	// the broker; 0: it is on its way.
	start, sent     time.Duration
	correlation     int32
	size            int32 // of the request's frame, as the broker has it
	key, version    int16
	answerCode      int16 // answered: its error
	answeredLocally bool
}

// inFlightQueue holds them in the order of the requests, which is that of the
// responses.
type inFlightQueue struct {
	list []inFlightRequest
	head int
}

func (q *inFlightQueue) len() int                   { return len(q.list) - q.head }
func (q *inFlightQueue) at(i int) *inFlightRequest  { return &q.list[q.head+i] }
func (q *inFlightQueue) first() *inFlightRequest    { return q.at(0) }
func (q *inFlightQueue) last() *inFlightRequest     { return q.at(q.len() - 1) }
func (q *inFlightQueue) push(f inFlightRequest)     { q.list = append(q.list, f) }
func (q *inFlightQueue) pop() (f inFlightRequest)   { return q.remove(0) }
func (q *inFlightQueue) dropLast() *inFlightRequest { f := q.remove(q.len() - 1); return &f }

// maxIdleInFlight is how many places an empty queue keeps.
const maxIdleInFlight = 8

// remove removes the i-th request.
func (q *inFlightQueue) remove(i int) inFlightRequest {
	f := *q.at(i)
	if i == 0 {
		*q.at(0) = inFlightRequest{}
		q.head++
	} else {
		at := q.head + i
		copy(q.list[at:], q.list[at+1:])
		q.list[len(q.list)-1] = inFlightRequest{}
		q.list = q.list[:len(q.list)-1]
	}
	switch {
	case q.len() == 0:
		q.list, q.head = q.list[:0], 0
		if cap(q.list) > maxIdleInFlight {
			q.list = nil
		}
	case q.head >= 64 && q.head > len(q.list)/2:
		n := copy(q.list, q.list[q.head:])
		clear(q.list[n:])
		q.list, q.head = q.list[:n], 0
	}
	return f
}
