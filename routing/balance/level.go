package balance

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Backup is the level of backups: they are picked only while no other endpoint is
// usable.
const Backup = 128

// level is the endpoints of one priority.
type level struct {
	number int
	near   *tier // all endpoints if no zone is preferred
	far    *tier // nil if there is none
}

// makeLevels sorts the members that may be picked into levels and zones.
func (p *Pool) makeLevels(old *Pool) {
	byLevel := map[int][]int32{}
	for i, m := range p.members {
		if p.takes(i) {
			byLevel[m.Level] = append(byLevel[m.Level], int32(i))
		}
	}
	for number, members := range byLevel {
		p.levels = append(p.levels, p.newLevel(number, members, old))
	}
	if len(p.levels) == 0 {
		p.levels = []*level{p.newLevel(0, nil, old)}
	}
	slices.SortFunc(p.levels, func(a, b *level) int { return cmp.Compare(a.number, b.number) })
	p.shared = len(p.levels) > 1 || p.levels[0].far != nil
}

func (p *Pool) newLevel(number int, members []int32, old *Pool) *level {
	var near, far []int32
	for _, i := range members {
		if p.cfg.ZoneTag == "" || p.cfg.Zone == "" || p.members[i].Tags[p.cfg.ZoneTag] == p.cfg.Zone {
			near = append(near, i)
		} else {
			far = append(far, i)
		}
	}
	if len(near) == 0 {
		near, far = far, nil
	}
	l := &level{number: number, near: newTier(p, near, old)}
	if len(far) > 0 {
		l.far = newTier(p, far, old)
	}
	return l
}

// fewLevels is the number of levels up to which a pick allocates nothing.
const fewLevels = 16

// pick tries the level whose turn it is, then the others that have a share, then
// the rest in order. Endpoints at their bounds are busy, so because of them no
// connection goes to a level without a share.
func (p *Pool) pick(r *round) int {
	if len(p.levels) == 1 {
		return p.levels[0].pick(p, r)
	}
	var buffer [fewLevels]float64
	shares := p.shares(buffer[:0], r.from, r.q.Now)
	point, first := p.point(r), 0
	for point >= shares[first] && first < len(shares)-1 {
		point -= shares[first]
		first++
	}
	if i := p.levels[first].pick(p, r); i >= 0 {
		return i
	}
	for _, shared := range [...]bool{true, false} {
		for k, l := range p.levels {
			if k == first || shares[k] > 0 != shared {
				continue
			}
			if i := l.pick(p, r); i >= 0 {
				return i
			}
		}
		if r.full {
			break
		}
	}
	return None
}

// levelSalt makes a client's level independent of its zone and its slot.
const levelSalt = 0x6c6576656c

// point returns where in [0, 1) a pick is among the shares of the levels. With
// Maglev it depends on the hash alone.
func (p *Pool) point(r *round) float64 {
	if p.cfg.Policy == Maglev {
		return fraction(Mix(r.q.Hash ^ levelSalt))
	}
	return fraction(Mix(r.ticket ^ levelSalt))
}

// shares appends the fraction of the connections that each level has. A level
// takes the share of its candidates among its endpoints, divided by MinHealthy,
// and what is left goes to the next one; if all together take less than
// everything, each takes more in proportion (Envoy, "Priority levels"). Backups
// take nothing while another level has candidates.
func (p *Pool) shares(dst []float64, from candidates, now time.Time) []float64 {
	backups := 0 // index of the first
	for k, l := range p.levels {
		if l.number < Backup {
			backups = k + 1
		}
		dst = append(dst, min(1, l.candidates(p, from, now)*100/float64(max(p.cfg.MinHealthy, 1))))
	}
	if divide(dst[:backups]) {
		clear(dst[backups:])
	} else {
		divide(dst[backups:])
	}
	return dst
}

// divide turns what levels can take into their shares. It returns false if they
// can take nothing.
func divide(levels []float64) bool {
	total := 0.0
	for _, x := range levels {
		total += x
	}
	if total == 0 {
		return false
	}
	left := 1.0
	for k, x := range levels {
		levels[k] = min(left, x/min(1, total))
		left -= levels[k]
	}
	return true
}

// candidates returns the fraction of a level's endpoints that are candidates.
func (l *level) candidates(p *Pool, from candidates, now time.Time) float64 {
	n, all := 0, 0
	for _, t := range [...]*tier{l.near, l.far} {
		if t == nil {
			continue
		}
		all += len(t.members)
		for _, i := range t.members {
			if from.has(&p.members[i], now) {
				n++
			}
		}
	}
	return float64(n) / float64(max(all, 1))
}

// share returns the share of member i's level.
func (p *Pool) share(i int, from candidates, now time.Time) float64 {
	if len(p.levels) == 1 {
		return 1
	}
	k := slices.IndexFunc(p.levels, func(l *level) bool { return l.number == p.members[i].Level })
	if k < 0 {
		return 0 // all its members have weight 0
	}
	return p.shares(nil, from, now)[k]
}

// Levels reports whether the endpoints have several priorities.
func (p *Pool) Levels() bool { return len(p.levels) > 1 }

// LevelShare returns the fraction of the connections that the members of i's
// priority get now, together.
func (p *Pool) LevelShare(i int, now time.Time) float64 {
	from, ok := p.Source(now).candidates()
	if !ok {
		return 0
	}
	return p.share(i, from, now)
}

// pick tries the zone whose turn it is, then the other one.
func (l *level) pick(p *Pool, r *round) int {
	if l.far == nil {
		return l.near.pick(r)
	}
	first, second := l.near, l.far
	if !l.picksNear(p, r) {
		first, second = second, first
	}
	if i := first.pick(r); i >= 0 {
		return i
	}
	return second.pick(r)
}

// picksNear reports whether the near zone has this turn. Turns are spread evenly
// over the picks; with Maglev they depend on the hash alone.
func (l *level) picksNear(p *Pool, r *round) bool {
	share := l.nearShare(p, r.q.Now, r.from)
	if p.cfg.Policy == Maglev {
		return fraction(Mix(r.q.Hash^zoneSalt)) < share
	}
	n := float64(r.ticket)
	return share == 1 || math.Floor((n+1)*share) > math.Floor(n*share)
}

// zoneSalt makes a client's zone independent of its slot in the table.
const zoneSalt = 0x7a6f6e65

// fraction maps a hash to [0, 1).
func fraction(h uint64) float64 { return float64(h>>11) / (1 << 53) }

// NearShare returns the fraction of the first level's connections that stay in the
// zone now, while members are ready.
func (p *Pool) NearShare(now time.Time) float64 { return p.levels[0].nearShare(p, now, ready) }

// nearShare returns this fraction among the candidates. If all members are
// candidates, each zone gets the share of its weights.
func (l *level) nearShare(p *Pool, now time.Time, from candidates) float64 {
	if l.far == nil {
		return 1
	}
	if from == all {
		return l.near.total / (l.near.total + l.far.total)
	}
	n := 0
	for _, i := range l.near.members {
		if from.has(&p.members[i], now) {
			n++
		}
	}
	if n == 0 {
		return 0
	}
	return min(1, float64(n*100)/float64(len(l.near.members)*max(p.cfg.ZoneMinHealthy, 1)))
}

// Near reports whether a member is in the preferred zone, or there is none.
func (p *Pool) Near(i int) bool {
	return slices.ContainsFunc(p.levels, func(l *level) bool { return slices.Contains(l.near.members, int32(i)) })
}
