package events

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"time"

	"penstock/node/api"
)

// maxKept bounds the bytes that a feed keeps of a list; the last item is always kept.
const maxKept = 1 << 20

// feed computes what one topic with certain parameters sends. Hub.mu guards its fields,
// but for those that do not change.
type feed struct {
	key    string
	topic  string
	source Source
	cancel context.CancelFunc
	faster chan struct{} // capacity 1: interval has become shorter

	subscribers map[*subscription]struct{}
	interval    time.Duration // the shortest of the subscribers
	frames      [][]byte      // the last ones, each whole as it is sent
	size        int           // bytes of frames
	last        uint64        // number of the last frame; the first one has 1
}

// subscription is a stream's place in a feed. Hub.mu guards it.
type subscription struct {
	feed     *feed
	interval time.Duration
	wake     chan struct{} // of the stream, capacity 1
	seen     uint64        // number of the last frame that was taken
	next     time.Time     // when the stream may take frames again
}

// subscribe makes a stream's place in a feed, which it starts if there is none. The caller
// holds mu.
func (h *Hub) subscribe(t *Topic, source Source, interval time.Duration, wake chan struct{}) (*subscription, bool) {
	key := t.Name + "?" + source.Key
	f := h.feeds[key]
	if f == nil {
		if len(h.feeds) >= h.cfg.Feeds {
			return nil, false
		}
		f = &feed{
			key: key, topic: t.Name, source: source, faster: make(chan struct{}, 1),
			subscribers: map[*subscription]struct{}{}, interval: interval,
		}
		if source.State != nil {
			f.source.Keep = 1
		}
		h.feeds[key] = f
		var ctx context.Context
		ctx, f.cancel = context.WithCancel(h.ctx)
		h.work.Go(func() { h.run(ctx, f) })
	}
	s := &subscription{feed: f, interval: interval, wake: wake}
	if f.source.Keep == 0 {
		s.seen = f.last
	}
	f.subscribers[s] = struct{}{}
	if interval < f.interval {
		f.interval = interval
		notify(f.faster)
	}
	notify(wake) // what the feed has already is due
	return s, true
}

// unsubscribe ends a stream's place in a feed, and the feed with the last one. The caller
// holds mu.
func (h *Hub) unsubscribe(s *subscription) {
	f := s.feed
	delete(f.subscribers, s)
	if len(f.subscribers) == 0 {
		f.cancel()
		delete(h.feeds, f.key)
		return
	}
	f.interval = MaxInterval
	for other := range f.subscribers {
		f.interval = min(f.interval, other.interval)
	}
}

// run computes a feed until ctx ends.
func (h *Hub) run(ctx context.Context, f *feed) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var last time.Time // when the last round began
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.faster:
			if !last.IsZero() {
				timer.Reset(time.Until(last.Add(h.intervalOf(f))))
			}
			continue
		case <-timer.C:
		}
		last = time.Now()
		var err error
		if f.source.State != nil {
			var state any
			if state, err = f.source.State(ctx); err == nil {
				h.publish(f, f.topic, state, true)
			}
		} else {
			err = f.source.Items(ctx, h.intervalOf(f), func(item any) { h.publish(f, f.topic, item, false) })
		}
		if err != nil && ctx.Err() == nil {
			h.publish(f, eventFailed, failure(f.topic, err), true)
		}
		timer.Reset(time.Until(last.Add(max(h.intervalOf(f), pause(f, time.Since(last))))))
	}
}

// costShare and maxPause bound what a feed costs: a state that takes long is computed less
// often, so that all of it takes at most a costShare-th of a core, but every maxPause.
const (
	costShare = 100
	maxPause  = 5 * time.Second
)

// pause returns the least time between two rounds of which the last one took so long. A
// list waits for its items itself.
func pause(f *feed, took time.Duration) time.Duration {
	if f.source.State == nil {
		return 0
	}
	return min(costShare*took, maxPause)
}

func (h *Hub) intervalOf(f *feed) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return f.interval
}

// The events that are no topics.
const (
	// eventFailed: a topic cannot be computed now, {"topic","error","code"}.
	eventFailed = "failed"
	// eventLost: the stream has missed items of a list, {"topic"}.
	eventLost = "lost"
	// eventEnd: the node ends the stream, {"reason"}.
	eventEnd = "end"
)

// failed is the data of eventFailed.
type failed struct {
	Topic string   `json:"topic"`
	Error string   `json:"error"`
	Code  api.Code `json:"code,omitempty"`
}

func failure(topic string, err error) failed {
	f := failed{Topic: topic, Error: err.Error()}
	var e *api.Error
	if errors.As(err, &e) {
		f.Code = e.Code
	}
	return f
}

// encode returns an event as it is sent.
func encode(event string, data any) ([]byte, error) {
	b := bytes.NewBufferString("event: " + event + "\ndata: ")
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(data); err != nil { // ends with the only newline
		return nil, err
	}
	b.WriteByte('\n')
	return b.Bytes(), nil
}

// publish gives an event to the subscribers: if unlessSame, only if it differs from the one
// before.
func (h *Hub) publish(f *feed, event string, data any, unlessSame bool) {
	frame, err := encode(event, data)
	if err != nil { // a type that has no JSON
		h.cfg.Log.Error("cannot encode an event", "topic", f.topic, "error", err)
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if unlessSame && len(f.frames) > 0 && bytes.Equal(f.frames[len(f.frames)-1], frame) {
		return
	}
	f.frames = append(f.frames, frame)
	f.size += len(frame)
	f.last++
	for len(f.frames) > max(f.source.Keep, 1) && f.source.Keep > 0 || len(f.frames) > 1 && f.size > maxKept || len(f.frames) > maxItems {
		f.size -= len(f.frames[0])
		f.frames[0] = nil
		f.frames = f.frames[1:]
	}
	for s := range f.subscribers {
		notify(s.wake)
	}
}

// maxItems bounds the items that a feed keeps for streams that are behind.
const maxItems = 1000

// take returns the frames that are due for a stream, whether it has missed some before
// them, and otherwise when to look again; zero: when it is woken.
func (s *subscription) take(now time.Time) (frames [][]byte, lost bool, again time.Time) {
	f := s.feed
	if s.seen == f.last {
		return nil, false, time.Time{}
	}
	if now.Before(s.next) {
		return nil, false, s.next
	}
	behind := int(min(f.last-s.seen, uint64(len(f.frames))))      //nolint:gosec // at most maxItems
	list := f.source.Keep == 0 || f.source.Keep > 1 && s.seen > 0 // a new stream misses nothing of what is kept
	lost = list && f.last-s.seen > uint64(len(f.frames))
	frames = append(frames, f.frames[len(f.frames)-behind:]...)
	s.seen, s.next = f.last, now.Add(s.interval)
	return frames, lost, time.Time{}
}

// notify wakes who waits on a channel of capacity 1.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
