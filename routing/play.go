package routing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"penstock/routing/balance"
	"penstock/routing/endpoint"
)

// The bounds of what is played.
const (
	// MaxPlayed bounds the connections of one play.
	MaxPlayed = 1_000_000
	// maxPlays bounds the plays of one simulation, maxPlayedInAll their
	// connections together.
	maxPlays, maxPlayedInAll = 50, 10_000_000
	// maxOutcomes bounds the outcomes of a play that are listed.
	maxOutcomes = 1000
)

// ErrPlayed is for a number of connections that cannot be played.
var ErrPlayed = errors.New("cannot play that many connections")

// PlayRequest says what to play, in one of three ways: connections to a
// listener (Input), connections to a service whatever listener they come from
// (Destination), or, with neither, whatever the change may lead elsewhere: each
// service that it touches, and each name of a listener.
type PlayRequest struct {
	// Connections is how many each play has, 1 to MaxPlayed. They stay open.
	Connections int
	Input       *Input
	Destination string
	// Source are the tags of connections to a destination; nil: one play for
	// each source that policies tell apart.
	Source map[string]string
}

// Simulation is where connections would go before a change and after it.
type Simulation struct {
	Connections int    `json:"connections"` // of each play
	Plays       []Play `json:"plays"`
	// MorePlays is how many were left out.
	MorePlays int `json:"morePlays,omitempty"`
}

// Play is connections of one kind.
type Play struct {
	// Listener is where they come to; "": they are played by destination.
	Listener   string `json:"listener,omitempty"`
	ServerName string `json:"serverName,omitempty"`
	ALPN       string `json:"alpn,omitempty"`
	// Destination is the service that they are for; "": what the listener says.
	Destination string        `json:"destination,omitempty"`
	Source      string        `json:"source,omitempty"` // as in EffectiveSource, or tags
	Outcomes    []PlayOutcome `json:"outcomes"`
	// MoreOutcomes are not listed; fewer connections came to each of them.
	MoreOutcomes int `json:"moreOutcomes,omitempty"`
}

// PlayOutcome is one end of connections, and how many came to it.
type PlayOutcome struct {
	Destination string `json:"destination,omitempty"`
	Service     string `json:"service,omitempty"`
	Subset      string `json:"subset,omitempty"` // "k=v,..."; "": the whole service
	Endpoint    string `json:"endpoint,omitempty"`
	Reason      Reason `json:"reason,omitempty"` // why they are closed; "": they are not
	Before      int    `json:"before"`
	After       int    `json:"after"`
}

// game is one play, to be taken on any table.
type game struct {
	play Play
	in   Input
	src  *source // of a play by destination
}

// Play plays connections against copies of both tables.
func (tr *Trial) Play(ctx context.Context, r *PlayRequest, now time.Time) (*Simulation, error) {
	if r.Connections < 1 || r.Connections > MaxPlayed {
		return nil, fmt.Errorf("%w: %d, want 1 to %d", ErrPlayed, r.Connections, MaxPlayed)
	}
	games := tr.games(r)
	sim := &Simulation{Connections: r.Connections, Plays: []Play{}}
	if most := max(1, min(maxPlays, maxPlayedInAll/r.Connections)); len(games) > most {
		sim.MorePlays = len(games) - most
		games = games[:most]
	}
	before, after := tr.again()
	for i := range games {
		if err := games[i].compare(ctx, before.Table(), after.Table(), r.Connections, now); err != nil {
			return nil, err
		}
		sim.Plays = append(sim.Plays, games[i].play)
	}
	return sim, nil
}

// compare plays n connections on both tables and lists the outcomes.
func (g *game) compare(ctx context.Context, before, after *Table, n int, now time.Time) error {
	rows := map[PlayOutcome]*PlayOutcome{}
	for i, table := range []*Table{before, after} {
		ends, err := g.take(ctx, table, n, now)
		if err != nil {
			return err
		}
		for e, count := range ends {
			key := e.outcome()
			if rows[key] == nil {
				row := key
				rows[key] = &row
			}
			if i == 0 {
				rows[key].Before += count
			} else {
				rows[key].After += count
			}
		}
	}
	list := make([]PlayOutcome, 0, len(rows))
	for _, row := range rows {
		list = append(list, *row)
	}
	if more := len(list) - maxOutcomes; more > 0 {
		slices.SortFunc(list, func(a, b PlayOutcome) int {
			return cmp.Or(cmp.Compare(max(b.Before, b.After), max(a.Before, a.After)), a.compare(b))
		})
		list, g.play.MoreOutcomes = list[:maxOutcomes], more
	}
	slices.SortFunc(list, PlayOutcome.compare)
	g.play.Outcomes = list
	return nil
}

// compare orders outcomes: what is served first, then by name.
func (o PlayOutcome) compare(p PlayOutcome) int {
	return cmp.Or(
		strings.Compare(string(o.Reason), string(p.Reason)), strings.Compare(o.Destination, p.Destination),
		strings.Compare(o.Service, p.Service), strings.Compare(o.Subset, p.Subset), strings.Compare(o.Endpoint, p.Endpoint),
	)
}

// games are the plays that a request asks for.
func (tr *Trial) games(r *PlayRequest) (games []game) {
	switch {
	case r.Input != nil:
		g := game{in: *r.Input, play: Play{Listener: r.Input.Listener, ServerName: r.Input.ServerName, Source: tagList(r.Input.Tags)}}
		g.play.ALPN = strings.Join(r.Input.ALPN, ",")
		return []game{g}
	case r.Destination != "":
		return tr.gamesTo(r.Destination, r.Source)
	}
	for _, name := range tr.touched {
		games = append(games, tr.gamesTo(name, r.Source)...)
	}
	for _, m := range tr.moves() {
		in := m.input()
		in.Tags = r.Source
		games = append(games, game{in: *in, play: Play{Listener: m.listener, ServerName: m.hello.name, ALPN: m.hello.alpn, Source: tagList(r.Source)}})
	}
	return games
}

// gamesTo are the plays of one destination: from one source, or from each that
// policies tell apart.
func (tr *Trial) gamesTo(destination string, tags map[string]string) (games []game) {
	if tags != nil {
		src := &source{layers: [4]map[string]string{0: tags, 3: tr.table.node}}
		return []game{{src: src, in: Input{Tags: tags}, play: Play{Destination: destination, Source: tagList(tags)}}}
	}
	for _, c := range tr.classesOf(destination) {
		src := c.like
		games = append(games, game{src: &src, play: Play{Destination: destination, Source: c.name()}})
	}
	return games
}

// end is where a connection comes to.
type end struct {
	destination string
	backend     *backend
	endpoint    *endpoint.Endpoint
	reason      Reason
}

// take plays n connections on a table and tells how many come to which end. All
// are open until the last one is; then they are closed, so that the next play
// begins with what there was.
func (g *game) take(ctx context.Context, t *Table, n int, now time.Time) (map[end]int, error) {
	ends := map[end]int{}
	for i := range n {
		if i&4095 == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		d, reason := g.decide(t)
		e := end{destination: d.Destination(), backend: d.backend, reason: reason}
		if reason == OK {
			if !g.in.Client.IsValid() { // of many clients, whom Maglev tells apart
				d.hash = balance.Mix(uint64(i) + 1)
			}
			e.endpoint, e.reason = d.Next(now)
		}
		ends[e]++
	}
	for e, n := range ends {
		for range n {
			if e.endpoint != nil {
				e.endpoint.Release()
			}
		}
	}
	return ends, nil
}

func (g *game) decide(t *Table) (Decision, Reason) {
	if g.src == nil {
		return t.Decide(&g.in)
	}
	s, ok := t.services.Get(g.play.Destination)
	if !ok {
		return Decision{}, NoBackend
	}
	b, reason := s.send(g.src, nil)
	if reason != OK {
		return Decision{destination: s.life}, reason
	}
	return Decision{destination: s.life, service: b.life, backend: b, hash: b.hash(&g.in)}, OK
}

// outcome names an end, without a count.
func (e *end) outcome() PlayOutcome {
	o := PlayOutcome{Destination: e.destination, Reason: e.reason}
	if e.backend != nil {
		o.Service, o.Subset = e.backend.name, tagList(e.backend.tags)
	}
	if e.endpoint != nil {
		if o.Endpoint = e.endpoint.Address; e.endpoint.Addr.IsValid() && e.endpoint.Addr.String() != o.Endpoint {
			o.Endpoint += " at " + e.endpoint.Addr.String()
		}
	}
	return o
}
