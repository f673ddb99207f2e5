package balance

// The table of Maglev hashing (Eisenbud et al. 2016, section 3.4): each
// endpoint has a permutation of the table's places, made from its address, and
// the endpoints claim places in turn, each the first in its permutation that
// is free. An endpoint with a lower weight passes on some of its turns.
//
// The table depends on addresses and weights alone, so all nodes have the same.

// Sizes are primes, at least 60 places for an endpoint, so that shares are
// within two percent of the weights. Another size moves most clients once, so
// there are few of them.
var maglevSizes = []struct{ endpoints, size int }{{16, 1021}, {1000, 65537}, {1 << 62, 655373}}

func maglevSize(endpoints int) int {
	for _, s := range maglevSizes {
		if endpoints <= s.endpoints {
			return s.size
		}
	}
	return 0 // not reached
}

// free marks a place that is not claimed.
const free = ^uint32(0)

func maglevTable(t *tier) []uint32 {
	type claimant struct {
		at, step uint64  // place at hand in the permutation, and to the next one
		due      float64 // when it has its next turn
		every    float64 // between its turns; 1 for the greatest weight
	}
	if len(t.members) < 2 {
		return nil
	}
	size := uint64(maglevSize(len(t.members)))
	claimants := make([]claimant, len(t.members))
	most := 0
	for _, i := range t.members {
		most = max(most, t.pool.members[i].Weight)
	}
	for n, i := range t.members {
		h := identity(&t.pool.members[i]).hash()
		every := float64(most) / float64(t.pool.members[i].Weight)
		claimants[n] = claimant{at: h % size, step: Mix(h)%(size-1) + 1, due: every, every: every}
	}
	table := make([]uint32, size)
	for i := range table {
		table[i] = free
	}
	for claimed, turn := uint64(0), 1.0; ; turn++ {
		for n := range claimants {
			c := &claimants[n]
			if c.due > turn {
				continue
			}
			c.due += c.every
			for table[c.at] != free {
				c.at = (c.at + c.step) % size
			}
			table[c.at] = uint32(n)
			if claimed++; claimed == size {
				return table
			}
		}
	}
}

// hash is the same on every node.
func (d id) hash() uint64 {
	s := d.address
	if d.unix == "" {
		s = d.addr.String() // what it is reached at, whatever name led there
	}
	return Hash(s)
}

// Hash hashes a text, the same on every node and in every version (FNV-1a,
// mixed once more: its upper bits alone are weak).
func Hash(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return Mix(h)
}

// Mix makes each bit of the result depend on all bits of x (splitmix64).
func Mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// maglev looks the hash up. Where the endpoint may not be picked the hash is
// mixed anew, so that the clients of a failed endpoint spread over all others,
// each again to one and the same, and the other clients stay where they are.
func (t *tier) maglev(r *round) int {
	h := r.q.Hash
	for range draws {
		i := t.members[t.table[h%uint64(len(t.table))]]
		h = Mix(h)
		if r.may(t.pool, i) && t.takes(r, i, h) {
			return int(i)
		}
	}
	best, most := None, uint64(0)
	for _, i := range t.members {
		if !r.may(t.pool, i) {
			continue
		}
		if score := Mix(identity(&t.pool.members[i]).hash() ^ h); best == None || score > most {
			best, most = int(i), score
		}
	}
	return best
}

// takes lets an endpoint in slow start have part of its clients; a client that
// it took once it takes from then on.
func (t *tier) takes(r *round, i int32, h uint64) bool {
	grown := t.pool.Grown(int(i), r.q.Now)
	return grown >= 1 || fraction(h) < grown
}
