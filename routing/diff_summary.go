package routing

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// maxSentences bounds the number of sentences about one change.
const maxSentences = 100

// ActiveElsewhere returns the number of established connections to an endpoint
// of a service from other nodes.
type ActiveElsewhere func(service, address string) int64

// DiffSummary describes the effect of the change on traffic, one sentence each:
// which share of new connections moves, by which policy, and how many
// established connections stay. elsewhere may be nil.
func (w *WhatIf) DiffSummary(elsewhere ActiveElsewhere) []string {
	if elsewhere == nil {
		elsewhere = func(string, string) int64 { return 0 }
	}
	var sentences []string
	for _, name := range w.changedServices {
		sentences = append(sentences, w.summarizePolicy(name, elsewhere)...)
		sentences = append(sentences, w.summarizeRequests(name)...)
	}
	sentences = append(sentences, w.summarizeRollout()...)
	sentences = append(sentences, w.summarizeNames()...)
	sentences = append(sentences, w.summarizeListener()...)
	if more := len(sentences) - maxSentences; more > 0 {
		sentences = append(sentences[:maxSentences], "and "+count(more, "more change"))
	}
	return sentences
}

// part is a backend's share of the connections from a source.
type part struct {
	backend *backend
	share   float64
	closed  string // why these connections are closed; "" if they are not
}

// partOf returns a backend's share as a part. A backend without endpoints,
// which a mesh route skips, keeps its share in a Gateway API route: those
// connections are closed.
func partOf(b *backend, share float64) part {
	x := part{backend: b, share: share, closed: b.closed}
	if x.closed == "" && b.pool.Empty() {
		x.closed = b.name + " has no endpoint"
	}
	return x
}

// sameAs reports whether connections of x and y are routed alike. All closed parts
// are alike, whatever the cause.
func (x *part) sameAs(y *part) bool {
	if x.closed != "" || y.closed != "" {
		return x.closed != "" && y.closed != ""
	}
	return x.backend.isSubset(y.backend.name, y.backend.tags)
}

// parts returns how connections from a source to a destination are divided, and
// by which policy, or the reason why all are closed.
func (t *Table) parts(destination string, src *source) (list []part, by string, reason Reason) {
	s, ok := t.services.Get(destination)
	if !ok {
		return nil, "", NoBackend
	}
	p := s.chooser.choose(src)
	switch {
	case p == nil && s.whole.pool.Empty():
		return nil, "", NoEndpoint
	case p == nil:
		return []part{partOf(s.whole, 1)}, "", OK
	case len(p.live) == 0:
		return nil, p.route, NoBackend
	}
	if list = p.parts(); len(list) > 1 || list[0].closed == "" {
		return list, p.route, OK
	}
	if list[0].backend.closed == "" {
		return list, p.route, NoEndpoint
	}
	return list, p.route, NoBackend
}

// parts lists the backends that get a share, merged by backend; all closed
// shares form one part.
func (sh *shares) parts() (list []part) {
	sum := 0
	for _, w := range sh.weight {
		sum += w
	}
	for i, b := range sh.live {
		x := partOf(b, float64(sh.weight[i])/float64(sum))
		j := slices.IndexFunc(list, func(y part) bool { return y.sameAs(&x) })
		if j < 0 {
			list = append(list, x)
			continue
		}
		y := &list[j]
		if y.share += x.share; x.closed != "" && !slices.Contains(strings.Split(y.closed, "; "), x.closed) {
			y.closed += "; " + x.closed
		}
		if x.backend.closed != "" { // takes precedence over a lack of endpoints
			y.backend = b
		}
	}
	return list
}

// summarizePolicy describes the effect on connections to one destination.
func (w *WhatIf) summarizePolicy(destination string, elsewhere ActiveElsewhere) (sentences []string) {
	_, was := w.table.services.Get(destination)
	_, is := w.after.services.Get(destination)
	if !was || !is {
		return nil // no connections before, or none after
	}
	return bySource(w.classesOf(destination), func(src *source) []string {
		return []string{w.sentence(destination, src, elsewhere)}
	})
}

// bySource merges equal sentences and names the classes of sources of each,
// unless it is true for all. It drops empty sentences.
func bySource(classes []class, describe func(*source) []string) (sentences []string) {
	var bodies []string
	sources := map[string][]string{}
	for i := range classes {
		c := &classes[i]
		for _, body := range describe(&c.sample) {
			if body == "" {
				continue
			}
			if sources[body] == nil {
				bodies = append(bodies, body)
			}
			sources[body] = append(sources[body], c.name())
		}
	}
	for _, body := range bodies {
		from := ""
		if list := sources[body]; len(list) < len(classes) {
			for i, name := range list {
				if name == kindMesh || name == OtherSources {
					list[i] = "other sources"
				}
			}
			from = " from " + strings.Join(list, ", ")
		}
		sentences = append(sentences, strings.Replace(body, fromHere, from, 1))
	}
	return sentences
}

// fromHere marks the place in a sentence for the names of its sources.
const fromHere = "\x00"

// sentence describes the effect on connections from a source to a destination,
// or returns "" if there is none.
func (w *WhatIf) sentence(destination string, src *source, elsewhere ActiveElsewhere) string {
	before, by, closedBefore := w.table.parts(destination, src)
	after, name, closedAfter := w.after.parts(destination, src)
	if name == "" {
		name = by
	}
	if name == "" {
		name = destination
	}
	m := movement{
		name: name, destination: destination, what: "new connections to " + destination + fromHere, refused: "closed",
		before: before, after: after, closedBefore: closedBefore, closedAfter: closedAfter,
	}
	m.stay = w.established(differences(before, after), elsewhere)
	return m.text()
}

// movement is the effect of a change on one kind of connections or requests.
type movement struct {
	name, destination, what   string
	refused                   string // what happens to those without a usable backend: "closed" or "answered 503"
	before, after             []part
	closedBefore, closedAfter Reason
	stay                      string
}

// text describes the movement in one sentence, or returns "" if nothing moves.
func (m *movement) text() string {
	before, after, what, stay := m.before, m.after, m.what, m.stay
	label := labels(m.destination, before, after)
	losers, gainers := differences(before, after), differences(after, before)
	switch {
	case m.closedBefore != OK && m.closedAfter != OK, len(losers)+len(gainers) == 0:
		return ""
	case m.closedAfter != OK:
		return fmt.Sprintf("%s: all %s are %s (%s)%s", m.name, what, m.refused, closedText(m.closedAfter, after), stay)
	case m.closedBefore != OK:
		return fmt.Sprintf("%s: %s go to %s; until now they were %s (%s)",
			m.name, what, sharesText(after, label), m.refused, closedText(m.closedBefore, before))
	case overlapping(losers, gainers):
		return fmt.Sprintf("%s: %s go to %s, no longer to %s%s", m.name, what, sharesText(after, label), sharesText(before, label), stay)
	case len(losers) == 1 || len(gainers) == 1:
		var moves []string
		for _, l := range losers {
			for _, g := range gainers {
				moves = append(moves, fmt.Sprintf("from %s to %s", label(l), label(g)))
				if len(losers)+len(gainers) > 2 {
					moves[len(moves)-1] = percent(min(l.share, g.share)) + " " + moves[len(moves)-1]
				}
			}
		}
		sum := 0.0
		for _, l := range losers {
			sum += l.share
		}
		if len(moves) > 1 {
			moves[0] = ": " + moves[0]
		} else {
			moves[0] = " " + moves[0]
		}
		share := percent(sum) + " of"
		if sum > 1-1e-9 {
			share = "all"
		}
		return fmt.Sprintf("%s: %s %s move%s%s", m.name, share, what, strings.Join(moves, ", "), stay)
	}
	return fmt.Sprintf("%s: %s are shared by %s, no longer by %s%s", m.name, what, sharesText(after, label), sharesText(before, label), stay)
}

// closedText returns the reason why all parts are closed, with its detail if known.
func closedText(reason Reason, list []part) string {
	if len(list) == 0 || list[0].closed == "" {
		return string(reason)
	}
	return string(reason) + ": " + list[0].closed
}

// differences returns the parts that are larger in a than in b, reduced to the
// excess.
func differences(a, b []part) (list []part) {
	for _, x := range a {
		if i := slices.IndexFunc(b, func(y part) bool { return y.sameAs(&x) }); i >= 0 {
			x.share -= b[i].share
		}
		if x.share > 1e-9 {
			list = append(list, x)
		}
	}
	return list
}

// overlapping reports whether a whole service loses and a subset of it gains,
// or the reverse. Then the share that moves is not known.
func overlapping(losers, gainers []part) bool {
	for _, l := range losers {
		for _, g := range gainers {
			if l.closed == "" && g.closed == "" && l.backend.name == g.backend.name && (len(l.backend.tags) == 0 || len(g.backend.tags) == 0) {
				return true
			}
		}
	}
	return false
}

// established says how many connections stay at the backends that lose share.
func (w *WhatIf) established(losers []part, elsewhere ActiveElsewhere) string {
	n := int64(0)
	for _, l := range losers {
		for _, m := range l.backend.pool.Members() {
			at := m.Address
			if m.Addr.IsValid() {
				at = m.Addr.String()
			}
			n += m.Active() + elsewhere(l.backend.name, at)
		}
	}
	switch n {
	case 0:
		return ""
	case 1:
		return "; 1 established connection stays"
	}
	return fmt.Sprintf("; %d established connections stay", n)
}

// labels returns the shortest distinct names for backends: for subsets with one
// common tag key, the tag's value.
func labels(destination string, lists ...[]part) func(part) string {
	key, short := "", true
	for _, list := range lists {
		for _, x := range list {
			for k := range x.backend.tags {
				short = short && len(x.backend.tags) == 1 && (key == "" || key == k)
				key = k
			}
		}
	}
	return func(x part) string {
		b := x.backend
		tags := tagList(b.tags)
		if short && key != "" {
			tags = b.tags[key]
		}
		switch {
		case x.closed != "":
			return "no backend (" + x.closed + ")"
		case len(b.tags) == 0 && b.name == destination:
			return "all endpoints of " + destination
		case len(b.tags) == 0:
			return b.name
		case b.name == destination:
			return tags
		}
		return b.name + " " + tags
	}
}

func percent(share float64) string { return fmt.Sprintf("%.4g %%", math.Round(share*1e8)/1e6) }

// sharesText lists parts, as in "v1 (90 %) and v2 (10 %)".
func sharesText(list []part, label func(part) string) string {
	var texts []string
	for _, x := range list {
		text := label(x)
		if len(list) > 1 {
			text += " (" + percent(x.share) + ")"
		}
		texts = append(texts, text)
	}
	if len(texts) < 2 {
		return strings.Join(texts, "")
	}
	return strings.Join(texts[:len(texts)-1], ", ") + " and " + texts[len(texts)-1]
}

// summarizeNames describes the names whose destination changes.
func (w *WhatIf) summarizeNames() (sentences []string) {
	for _, m := range w.nameMoves() {
		what := "new connections without a server name"
		l, _ := w.after.listeners.Get(m.listener)
		if l.spec.Protocol != "tls" && l.spec.Protocol != meshProtocol {
			what = "new connections"
		}
		switch {
		case m.hello.user != "":
			what = "new connections of user " + strings.Replace(m.hello.user, anyUser, "*", 1)
		case len(l.spec.MySQL.Users) > 0 && m.hello.name == "":
			what = "new connections of other users"
		}
		if m.hello.name != "" {
			what = "new connections for " + strings.Replace(m.hello.name, anyLabel, "*", 1)
		}
		if m.hello.alpn != "" {
			what += " with ALPN " + m.hello.alpn
		}
		switch {
		case m.after == "" && m.before == "": // closed for another reason
		case m.after == "":
			sentences = append(sentences, fmt.Sprintf("%s: %s are closed (%s); until now they went to %s", m.listener, what, m.closed, m.before))
		case m.before == "":
			sentences = append(sentences, fmt.Sprintf("%s: %s go to %s; until now they were closed (%s)", m.listener, what, m.after, m.closed))
		default:
			sentences = append(sentences, fmt.Sprintf("%s: %s go to %s, no longer to %s", m.listener, what, m.after, m.before))
		}
	}
	return sentences
}
