package balance

// The table of Maglev hashing (Eisenbud et al. 2016, section 3.4): each
// endpoint has a permutation of the table's slots, derived from its address,
// and the endpoints take turns to claim the first free slot in their
// permutation. Endpoints with lower weights skip some turns.
//
// The table depends only on addresses and weights, so it is the same on all
// nodes.

// maglevSizes are primes with at least 60 slots per endpoint, so that shares
// are within two percent of the weights. A change of size remaps most clients
// once, so there are few sizes.
var maglevSizes = []struct{ endpoints, size int }{{16, 1021}, {1000, 65537}, {1 << 62, 655373}}

func maglevSize(endpoints int) int {
	for _, s := range maglevSizes {
		if endpoints <= s.endpoints {
			return s.size
		}
	}
	return 0 // not reached
}

// free marks an unclaimed slot.
const free = ^uint32(0)

func maglevTable(t *tier) []uint32 {
	type claimant struct {
		at, step uint64  // current slot in the permutation, and distance to the next one
		due      float64 // the round of its next turn
		every    float64 // rounds between turns; 1 for the largest weight
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

// hash returns a hash of the address that is the same on every node.
func (d id) hash() uint64 {
	s := d.address
	if d.unix == "" {
		s = d.addr.String() // the resolved address, whatever name led to it
	}
	return Hash(s)
}

// Hash hashes a string, the same on every node and in every version: FNV-1a,
// whose upper bits are weak, followed by Mix.
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

// maglev looks up the hash. If the endpoint is not eligible it rehashes, so
// that the clients of a failed endpoint spread over all others, each always to
// the same one, while other clients stay where they are.
func (t *tier) maglev(r *round) int {
	h := r.q.Hash
	for range maxDraws {
		i := t.members[t.table[h%uint64(len(t.table))]]
		h = Mix(h)
		if r.eligible(t.pool, i) && t.acceptsClient(r, i, h) {
			return int(i)
		}
	}
	best, most := None, uint64(0)
	for _, i := range t.members {
		if !r.eligible(t.pool, i) {
			continue
		}
		if score := Mix(identity(&t.pool.members[i]).hash() ^ h); best == None || score > most {
			best, most = int(i), score
		}
	}
	return best
}

// acceptsClient reports whether an endpoint in slow start accepts a client. The
// accepted clients remain accepted while the endpoint's share grows.
func (t *tier) acceptsClient(r *round, i int32, h uint64) bool {
	share := t.pool.SlowStartShare(int(i), r.q.Now)
	return share >= 1 || fraction(h) < share
}
