package reactor

import (
	"math/bits"
	"time"
)

// An Expirer is called on the loop when its timer is due.
type Expirer interface {
	Expired(t *Timer)
}

// A Timer calls its Expirer once, some time after it was armed. Embed it by
// value. Arming and disarming are constant time and allocate nothing. A timer
// that is due is disarmed before its Expirer is called, which may arm it
// again.
//
// Timers are never early, up to one tick (8 ms) late, and fire in the order of
// their ticks. For a deadline that moves with every byte, do not move the
// timer: store the time of the last byte, and let Expired check it and arm the
// timer for the rest.
type Timer struct {
	next, prev *Timer
	tick       int64 // when due, in ticks since the wheel began
	expirer    Expirer
	slot       uint16 // 1 + level*wheelSlots + index; 0: not armed
}

// Init sets the Expirer. It must not be called on an armed timer.
func (t *Timer) Init(e Expirer) { t.expirer = e }

// Armed reports whether the timer is going to fire.
func (t *Timer) Armed() bool { return t.slot != 0 }

const (
	tickShift   = 23 // 2^23 ns: 8.4 ms
	wheelLevels = 6  // 64^6 ticks: 18 years
	wheelBits   = 6
	wheelSlots  = 1 << wheelBits
	maxDelay    = 10 * 365 * 24 * time.Hour
)

// wheel is a hierarchical timing wheel. Level k has 64 slots of 64^k ticks
// each. A timer goes to the lowest level whose current round still covers it;
// when the clock reaches a slot of a higher level, its timers move down. One
// bitmap per level finds the next occupied slot without walking empty ones.
type wheel struct {
	now   int64 // the tick up to which everything has fired
	used  [wheelLevels]uint64
	slots [wheelLevels][wheelSlots]*Timer
}

// add files the timer under its tick, which must not be before w.now.
func (w *wheel) add(t *Timer) {
	// The level is given by the highest group of bits in which the two
	// ticks differ: everything above is the same round.
	level := (bits.Len64(uint64(t.tick^w.now)) - 1) / wheelBits
	if level >= wheelLevels {
		level = wheelLevels - 1
		t.tick = w.now | (1<<(wheelBits*wheelLevels) - 1)
	}
	i := int(t.tick>>(wheelBits*level)) & (wheelSlots - 1)
	head := &w.slots[level][i]
	t.prev, t.next = nil, *head
	if t.next != nil {
		t.next.prev = t
	}
	*head = t
	t.slot = uint16(1 + level<<wheelBits + i)
	w.used[level] |= 1 << i
}

func (w *wheel) remove(t *Timer) {
	if t.next != nil {
		t.next.prev = t.prev
	}
	if t.prev != nil {
		t.prev.next = t.next
	} else {
		level, i := int(t.slot-1)>>wheelBits, int(t.slot-1)&(wheelSlots-1)
		w.slots[level][i] = t.next
		if t.next == nil {
			w.used[level] &^= 1 << i
		}
	}
	t.next, t.prev, t.slot = nil, nil, 0
}

// next is the tick at which the wheel has work to do next, which may be
// moving timers down only; ok is false when it is empty.
func (w *wheel) next() (tick int64, ok bool) {
	for level := range wheelLevels {
		if w.used[level] == 0 {
			continue
		}
		// All slots in use lie after the current index: what was at or
		// before it has been taken, and a later round is a higher level.
		shift := wheelBits * level
		i := int64(bits.TrailingZeros64(w.used[level]))
		return (w.now>>(shift+wheelBits)<<wheelBits | i) << shift, true
	}
	return 0, false
}

// advance fires everything due at or before the tick.
func (w *wheel) advance(to int64, fire func(*Timer)) {
	for {
		tick, ok := w.next()
		if !ok || tick > to {
			w.now = max(w.now, to)
			return
		}
		w.now = tick
		for level := wheelLevels - 1; level > 0; level-- {
			if tick&(1<<(wheelBits*level)-1) == 0 {
				w.moveDown(level, int(tick>>(wheelBits*level))&(wheelSlots-1))
			}
		}
		w.fireSlot(int(tick)&(wheelSlots-1), fire)
	}
}

// moveDown files the timers of a slot anew. One that is due at this very tick
// comes into its slot of the lowest level, which is fired next; so it can
// still be disarmed by one that fires before it.
func (w *wheel) moveDown(level, i int) {
	for t := w.slots[level][i]; t != nil; t = w.slots[level][i] {
		w.remove(t)
		w.add(t)
	}
}

func (w *wheel) fireSlot(i int, fire func(*Timer)) {
	for t := w.slots[0][i]; t != nil; t = w.slots[0][i] {
		w.remove(t)
		fire(t)
	}
}

// Arm sets the timer to fire after d. It may be armed already.
func (l *Loop) Arm(t *Timer, d time.Duration) {
	if t.slot != 0 {
		l.wheel.remove(t)
	}
	// Rounded up, so that it is never early.
	d = min(max(d, 0), maxDelay)
	t.tick = max(int64(l.now+d)>>tickShift+1, l.wheel.now+1)
	l.wheel.add(t)
}

// Disarm stops the timer if it is armed.
func (l *Loop) Disarm(t *Timer) {
	if t.slot != 0 {
		l.wheel.remove(t)
	}
}
