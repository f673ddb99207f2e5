package limit

import (
	"fmt"
	"testing"
	"time"
)

// The fullest budgets come first, no more than asked for, and without unused ones.
func TestFullestBudgets(t *testing.T) {
	l := New("l", connections(perSecond(10, 10), func(c *Config) { c.Concurrent = 4 }), 0)
	for i := range 5 {
		b := l.Bucket(Key{Text: fmt.Sprint(i)}, 0)
		for range 2 * i {
			b.Take(Connections, 1, 0)
		}
		b.Release()
	}
	b := l.Bucket(Key{Text: "full"}, 0)
	for range 10 {
		b.Take(Connections, 1, 0)
	}
	b.Enter()
	got := l.Fullest(4, int64(100*time.Millisecond))
	if len(got) != 4 || got[0].Key.Text != "full" || got[0].Used != 0.9 || got[0].Wait != 0 || got[1].Key.Text != "4" || got[3].Key.Text != "2" {
		t.Errorf("%+v", got)
	}
	if got := l.Fullest(1, 0); got[0].Used != 1 || got[0].Wait != 100*time.Millisecond {
		t.Errorf("%+v", got)
	}
	if got := l.Fullest(10, int64(time.Minute)); len(got) != 1 || !got[0].Concurrent || got[0].Used != 0.25 {
		t.Errorf("%+v", got)
	}
}
