package accesslog

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// maxSample bounds how many records one may stand for.
const maxSample = 1_000_000

// The keys of a Sampling that are no reasons.
const (
	sampleDefault  = "default"  // whatever no other key is about
	sampleOrdinary = "ordinary" // what did not fail
	sampleOpen     = "open"     // lines about connections that have not ended
	sampleAnswered = "answered" // requests with an answer of an endpoint
)

// Sampling says of how many records with a reason one is written. The zero value
// writes each.
type Sampling struct{ of map[string]int }

// ParseSampling parses "REASON=N,...": of the records with that reason one of N is
// written. Instead of a reason there may be default, ordinary, open or answered. The
// most precise key counts.
func ParseSampling(text string) (Sampling, error) {
	s := Sampling{of: map[string]int{}}
	if strings.TrimSpace(text) == "" {
		return s, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		key, number, ok := strings.Cut(strings.TrimSpace(part), "=")
		n, err := strconv.Atoi(number)
		switch {
		case !ok || err != nil || n < 1 || n > maxSample:
			return s, fmt.Errorf("%.80q: want REASON=N, N from 1 to %d, such as client_fin=100", part, maxSample)
		case key == "" || strings.Trim(key, "abcdefghijklmnopqrstuvwxyz_") != "":
			return s, fmt.Errorf("%.80q: want a reason such as client_fin, or one of default, ordinary, open, answered", key)
		case s.of[key] != 0:
			return s, fmt.Errorf("%s: given twice", key)
		}
		s.of[key] = n
	}
	return s, nil
}

// Reasons returns the reasons that the sampling names, sorted.
func (s Sampling) Reasons() (all []string) {
	for key := range s.of {
		if !slices.Contains([]string{sampleDefault, sampleOrdinary, sampleOpen, sampleAnswered}, key) {
			all = append(all, key)
		}
	}
	slices.Sort(all)
	return all
}

// sampler picks records. One goroutine uses it.
type sampler struct {
	of   Sampling
	seen map[string]int // by key: since the last record that was picked, that one too
}

// weight returns the number of records that this one stands for; 0: it is not picked.
func (s *sampler) weight(r *Record) int {
	if len(s.of.of) == 0 {
		return 1
	}
	key := s.key(r)
	n := s.of.of[key]
	if n <= 1 {
		return 1
	}
	if s.seen == nil {
		s.seen = map[string]int{}
	}
	at := s.seen[key]
	s.seen[key] = (at + 1) % n
	if at > 0 {
		return 0
	}
	return n
}

// key returns the most precise key that is given for a record.
func (s *sampler) key(r *Record) string {
	own := r.Reason
	switch {
	case r.Event == Connected || r.Event == Ongoing:
		own = sampleOpen
	case own == "":
		own = sampleAnswered
	}
	if s.of.of[own] != 0 {
		return own
	}
	if !r.Failed() && s.of.of[sampleOrdinary] != 0 {
		return sampleOrdinary
	}
	return sampleDefault
}
