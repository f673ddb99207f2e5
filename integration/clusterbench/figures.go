package main

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// percentile returns the p-th percentile of v.
func percentile[T cmp.Ordered](v []T, p float64) T {
	var zero T
	if len(v) == 0 {
		return zero
	}
	s := slices.Sorted(slices.Values(v))
	return s[min(len(s)-1, int(float64(len(s))*p/100))]
}

func median[T cmp.Ordered](v []T) T { return percentile(v, 50) }

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// service returns a small resource whose content depends on turn.
func service(name string, turn int) []byte {
	return fmt.Appendf(nil, `{"kind":"Service","name":%q,"spec":{"endpoints":[{"address":"127.0.0.1:%d"}]}}`, name, 1024+turn%60000)
}
