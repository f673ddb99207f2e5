package limit

import (
	"net/netip"
	"testing"
	"time"
)

// Keys that meet in one hash have buckets of their own, in whatever order they go.
func TestKeysOfOneHashHaveBucketsOfTheirOwn(t *testing.T) {
	names := []string{"a", "b", "c"}
	for gone := range names {
		l := New("l", connections(perSecond(1, 1), func(c *Config) { c.MaxKeys = 10 }), 0)
		s := &l.table.shards[0]
		made := map[string]*Bucket{}
		for _, name := range names {
			made[name] = l.add(s, Key{Text: name}, 7, 0)
		}
		s.unlink(made[names[gone]])
		s.remove(made[names[gone]])
		for i, name := range names {
			want := made[name]
			if i == gone {
				want = nil
			}
			if got := s.find(&Key{Text: name}, 7); got != want {
				t.Errorf("without %s: %s has %v, want %v", names[gone], name, got, want)
			}
		}
		if s.n != 2 {
			t.Errorf("%d buckets, want 2", s.n)
		}
	}
}

// What tells keys apart is their text, their network and their cluster.
func TestKeysThatDifferInOnePartHaveBucketsOfTheirOwn(t *testing.T) {
	l := New("l", connections(perSecond(1, 1), func(c *Config) { c.MaxKeys = 100_000 }), 0)
	seen := map[*Bucket]Key{}
	for _, k := range []Key{
		{}, {Text: "a"}, {Text: "b"}, {Text: "a", Cluster: "x"}, {Text: "a", Cluster: "y"}, {Text: "x", Cluster: "a"},
		{Text: "a", Cluster: "a"}, {Text: "b", Cluster: "b"},
		{Network: netip.MustParsePrefix("10.0.0.0/8")}, {Network: netip.MustParsePrefix("10.0.0.0/16")},
		{Network: netip.MustParsePrefix("::ffff:10.0.0.0/104")}, {Network: netip.MustParsePrefix("2001:db8::/64")},
		{Network: netip.MustParsePrefix("2001:db8:0:1::/64")},
	} {
		b := l.Bucket(k, 0)
		if other, is := seen[b]; is {
			t.Errorf("%v and %v share a bucket", other, k)
		}
		seen[b] = k
		if again := l.Bucket(k, int64(time.Second)); again != b {
			t.Errorf("%v has another bucket when it comes again", k)
		}
	}
}
