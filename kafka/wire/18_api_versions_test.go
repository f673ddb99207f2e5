package wire

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

type span struct{ lo, hi int16 }

// everything is the offer of a broker of the far future.
func everything() map[int16]span {
	all := map[int16]span{}
	for key := range int16(MaxKey + 20) {
		all[key] = span{0, 30}
	}
	return all
}

// offered is the body of an ApiVersions response.
func offered(version int16, offer map[int16]span) []byte {
	m := kmsg.NewPtrApiVersionsResponse()
	m.Version, m.ThrottleMillis, m.FinalizedFeaturesEpoch = version, 17, 4
	for key, s := range offer {
		k := kmsg.NewApiVersionsResponseApiKey()
		k.ApiKey, k.MinVersion, k.MaxVersion = key, s.lo, s.hi
		k.UnknownTags.Set(99, []byte("kept"))
		m.ApiKeys = append(m.ApiKeys, k)
	}
	slices.SortFunc(m.ApiKeys, func(a, b kmsg.ApiVersionsResponseApiKey) int { return int(a.ApiKey - b.ApiKey) })
	f := kmsg.NewApiVersionsResponseFinalizedFeature()
	f.Name, f.MaxVersionLevel = "metadata.version", 29
	m.FinalizedFeatures = append(m.FinalizedFeatures, f)
	m.UnknownTags.Set(77, []byte("kept too"))
	return m.AppendTo(nil)
}

func known(key int16) (int16, int16) {
	lo, hi, _ := Known(key)
	return lo, hi
}

func narrow(t testing.TB, version int16, body []byte, ranges func(int16) (int16, int16)) *kmsg.ApiVersionsResponse {
	t.Helper()
	out, err := NarrowApiVersions(nil, version, body, ranges)
	if err != nil {
		t.Fatal(err)
	}
	m := kmsg.NewPtrApiVersionsResponse()
	m.Version = version
	if err := m.ReadFrom(out); err != nil {
		t.Fatal(err)
	}
	return m
}

func ranges(m *kmsg.ApiVersionsResponse) map[int16]span {
	all := map[int16]span{}
	for _, k := range m.ApiKeys {
		all[k.ApiKey] = span{k.MinVersion, k.MaxVersion}
	}
	return all
}

// Rule 5: the intersection is offered, unknown APIs leave; features, throttle
// and unknown tags stay.
func TestRule5TheIntersectionIsOffered(t *testing.T) {
	for version := int16(0); version <= 5; version++ {
		before := kmsg.NewPtrApiVersionsResponse()
		before.Version = version
		body := offered(version, everything())
		if err := before.ReadFrom(body); err != nil {
			t.Fatal(err)
		}
		after := narrow(t, version, body, known)
		want := map[int16]span{}
		for key := range int16(MaxKey + 1) {
			if lo, hi, ok := Known(key); ok {
				want[key] = span{lo, hi}
			}
		}
		if got := ranges(after); !reflect.DeepEqual(got, want) {
			t.Errorf("v%d: offered %v, want %v", version, got, want)
		}
		before.ApiKeys, after.ApiKeys = nil, nil
		if !reflect.DeepEqual(before, after) {
			t.Errorf("v%d: the rest became %+v, was %+v", version, after, before)
		}
	}
}

// Rule 5: a broker that does not support the version answers in the layout of v0
// with error 35; that answer is narrowed whatever version was requested.
func TestRule5FallbackToV0IsNarrowed(t *testing.T) {
	for asked := int16(0); asked <= 5; asked++ {
		body := AppendUnsupportedApiVersions(nil, 0, 99)
		out, err := NarrowApiVersions(nil, asked, body, func(int16) (int16, int16) { return 0, 3 })
		if err != nil {
			t.Fatal(err)
		}
		m := kmsg.NewPtrApiVersionsResponse()
		if err := m.ReadFrom(out); err != nil || m.ErrorCode != 35 || !reflect.DeepEqual(ranges(m), map[int16]span{18: {0, 3}}) {
			t.Errorf("asked for v%d: %v, got %+v", asked, err, m)
		}
	}
}

// Error 35 in the layout of the requested version is read in that layout.
func TestErrorInItsOwnLayoutIsRead(t *testing.T) {
	m := kmsg.NewPtrApiVersionsResponse()
	m.Version, m.ErrorCode = 3, 35
	k := kmsg.NewApiVersionsResponseApiKey()
	k.ApiKey, k.MaxVersion = 18, 4
	m.ApiKeys = append(m.ApiKeys, k)
	if got := narrow(t, 3, m.AppendTo(nil), func(int16) (int16, int16) { return 0, 2 }); !reflect.DeepEqual(ranges(got),
		map[int16]span{18: {0, 2}}) {
		t.Errorf("got %+v", got)
	}
}

// Rule 6: Produce is offered from v0 if the broker does, even if the carried
// versions begin later, and never below the broker's lowest.
func TestRule6ProduceIsOfferedFromV0(t *testing.T) {
	for _, c := range []struct{ broker, carried, want span }{
		{span{0, 13}, span{3, 12}, span{0, 12}},
		{span{3, 13}, span{0, 13}, span{3, 13}},
		{span{0, 13}, span{0, 13}, span{0, 13}},
		{span{0, 13}, span{1, 0}, span{0, -1}}, // hidden
		{span{0, 2}, span{3, 13}, span{0, -1}}, // nothing in common
	} {
		got := ranges(narrow(t, 3, offered(3, map[int16]span{0: c.broker}), func(int16) (int16, int16) { return c.carried.lo, c.carried.hi }))
		want := map[int16]span{0: c.want}
		if c.want.hi < 0 {
			want = map[int16]span{}
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("the broker offers %v, the proxy %v: %v, want %v", c.broker, c.carried, got, want)
		}
	}
}

// Rule 8: unframed tokens follow SaslHandshake v0, so it is not offered.
func TestRule8SaslHandshakeBeginsAtV1(t *testing.T) {
	got := ranges(narrow(t, 4, offered(4, map[int16]span{17: {0, 1}}), known))
	if !reflect.DeepEqual(got, map[int16]span{17: {1, 1}}) {
		t.Errorf("got %v", got)
	}
	if got := ranges(narrow(t, 4, offered(4, map[int16]span{17: {0, 0}}), known)); len(got) != 0 {
		t.Errorf("a broker with only v0: got %v", got)
	}
}

func TestMatchingOffersStayUnchanged(t *testing.T) {
	body := offered(3, map[int16]span{0: {0, 11}, 1: {4, 12}})
	out, err := NarrowApiVersions(nil, 3, body, known)
	if err != nil || &out[0] != &body[0] {
		t.Errorf("%v; it was copied", err)
	}
}

func FuzzNarrowApiVersions(f *testing.F) {
	f.Add(int16(3), offered(3, everything()), int64(1))
	f.Add(int16(0), offered(0, everything()), int64(2))
	f.Add(int16(4), AppendUnsupportedApiVersions(nil, 0, 4), int64(3))
	f.Fuzz(func(t *testing.T, version int16, body []byte, seed int64) {
		out, err := NarrowApiVersions(nil, version, body, func(key int16) (int16, int16) {
			rnd := rand.New(rand.NewPCG(uint64(seed), uint64(key)))
			return int16(rnd.IntN(4)), int16(rnd.IntN(8))
		})
		if err != nil {
			return
		}
		if len(out) > len(body)+4 {
			t.Fatalf("%d bytes became %d", len(body), len(out))
		}
		if _, err := NarrowApiVersions(nil, version, out, known); err != nil {
			t.Fatalf("the result cannot be parsed: %v", err)
		}
	})
}
