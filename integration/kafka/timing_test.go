package kafka

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// likelihood returns the probability that one of these took longer than one of
// those: 0.5 if they are indistinguishable (Mann-Whitney U over all pairs; ties
// count half).
func likelihood(these, those []time.Duration) float64 {
	var sum float64
	for _, a := range these {
		for _, b := range those {
			switch {
			case a > b:
				sum++
			case a == b:
				sum += 0.5
			}
		}
	}
	return sum / float64(len(these)*len(those))
}

func TestLikelihoodTellsTimesApart(t *testing.T) {
	source := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a test's
	draw := func(more time.Duration) (all []time.Duration) {
		for range timingPairs {
			all = append(all, time.Millisecond+more+time.Duration(source.ExpFloat64()*float64(300*time.Microsecond)))
		}
		return all
	}
	if got := likelihood(draw(0), draw(0)); got < 0.5-timingBound || got > 0.5+timingBound {
		t.Errorf("equal distributions: %.3f", got)
	}
	if got := likelihood(draw(200*time.Microsecond), draw(0)); got < 0.5+timingBound {
		t.Errorf("a fifth of a millisecond in one and a bit: %.3f", got)
	}
}

const (
	timingPairs = 600
	// timingBound is more than six standard deviations, 1/sqrt(6 n), of likelihood
	// for indistinguishable times.
	timingBound = 0.11
)

// TestTimingOfOtherTenants alternates a tenant's requests for another
// tenant's objects and for unknown ones: their durations must be
// indistinguishable.
func TestTimingOfOtherTenants(t *testing.T) {
	long(t)
	c := cluster(t)
	v := startVirtual(t, c)
	w := tenancy{victim: v.red, attacker: v.blue, physical: direct(c), addresses: v.real}
	victim := newVictim(t, w)
	a := newAttacker(t, w, victim)
	there, nowhere := victim.objectNames, victim.withNames(func(s string) string { return nobody + s[len(secret):] })
	nowhere.topicID = [16]byte{0xfe, 1, 2, 3, 15: 9}
	for _, one := range []struct {
		what         string
		key, version int16
	}{
		{"a topic by name", 3, 9}, {"a topic's settings", 32, 4}, {"records by identity", 1, 13}, {"records by name", 1, 12},
		{"ends of a topic", 2, 7}, {"a group", 15, 5}, {"a group's offsets", 9, 8}, {"a transaction", 65, 0}, {"a topic by identity", 3, 12},
	} {
		t.Run(one.what, func(t *testing.T) {
			compose := func(o objectNames) kmsg.Request {
				if one.key == 3 && one.version >= 10 {
					req := request(3, one.version).(*kmsg.MetadataRequest)
					topic := kmsg.NewMetadataRequestTopic()
					topic.TopicID = o.topicID
					req.Topics = append(req.Topics, topic)
					return req
				}
				return o.fill(request(one.key, one.version))
			}
			var times [2][]time.Duration
			ask := func(which int) {
				req := compose([]objectNames{there, nowhere}[which])
				began := time.Now()
				_, err := a.ask(role(one.key), req)
				took := time.Since(began)
				must(t, err)
				times[which] = append(times[which], took)
			}
			for range timingPairs {
				first := rand.IntN(2) //nolint:gosec // a test's
				ask(first)
				ask(1 - first)
			}
			got := likelihood(times[0], times[1])
			t.Logf("%.3f: medians %v for another tenant's, %v for none", got, median(times[0]), median(times[1]))
			if got < 0.5-timingBound || got > 0.5+timingBound {
				t.Errorf("names of another tenant take longer than unused names with a likelihood of %.3f: they can be told apart", got)
			}
		})
	}
}

func median(all []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[len(sorted)/2]
}
