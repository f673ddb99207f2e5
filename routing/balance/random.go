package balance

import (
	"math/rand/v2"
	"sort"
)

// few is the number of endpoints up to which LeastConnections compares all.
// Each comparison costs a few ns and reads a cache line that other threads
// write.
const few = 32

// maxDraws bounds the random draws before a scan of all endpoints.
const maxDraws = 8

// sumWeights returns the running sums of the weights, for draw.
func sumWeights(t *tier) []uint64 {
	sums := make([]uint64, len(t.members))
	var sum uint64
	for n, i := range t.members {
		sum += uint64(t.pool.members[i].Weight)
		sums[n] = sum
	}
	return sums
}

// random picks an eligible member at random by weight.
func (t *tier) random(r *round) int {
	for range maxDraws {
		if i := t.draw(r); i != None {
			return i
		}
	}
	return t.scan(r, func(int32, float64) float64 { return 0 })
}

// draw picks one member at random by weight. It returns None if that member is
// not eligible, or in the part of its share that slow start withholds.
func (t *tier) draw(r *round) int {
	point := rand.Uint64N(t.sums[len(t.sums)-1])
	i := t.members[sort.Search(len(t.sums), func(n int) bool { return t.sums[n] > point })]
	if !r.eligible(t.pool, i) {
		return None
	}
	if share := t.pool.SlowStartShare(int(i), r.q.Now); share < 1 && rand.Float64() >= share {
		return None
	}
	return int(i)
}

// leastConnections picks by connections per weight, counting those being
// established. A busy server has only a part of its weight, if its load counts.
func (t *tier) leastConnections(r *round) int {
	load := func(i int32, weight float64) float64 {
		m := &t.pool.members[i]
		return float64(m.Active()) / (weight * m.LoadShare())
	}
	if len(t.members) > few {
		best, bestLoad, drawn := None, 0.0, 0
		for tries := 0; tries < maxDraws && drawn < 2; tries++ {
			i := t.draw(r)
			if i == None || i == best {
				continue
			}
			drawn++
			if l := load(int32(i), t.pool.weight(int32(i), r.q.Now)); best == None || l < bestLoad {
				best, bestLoad = i, l
			}
		}
		if best != None {
			return best
		}
	}
	return t.scan(r, load)
}

// scan returns the eligible member with the lowest load. Ties are broken at
// random by weight, so that idle endpoints share evenly.
func (t *tier) scan(r *round, load func(i int32, weight float64) float64) int {
	best, bestLoad, weights := None, 0.0, 0.0
	for _, i := range t.members {
		if !r.eligible(t.pool, i) {
			continue
		}
		w := t.pool.weight(i, r.q.Now)
		l := load(i, w)
		switch {
		case best == None || l < bestLoad:
			best, bestLoad, weights = int(i), l, w
		case l == bestLoad:
			weights += w
			if rand.Float64()*weights < w {
				best = int(i)
			}
		}
	}
	return best
}
