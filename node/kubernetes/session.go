package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"penstock/routing/kubeapi"
)

// following is what a session knows of one of its followers.
type following struct {
	source    *source
	namespace string
	name      string // of the only object; "": all
	synced    bool   // there was a complete list
	err       error
	ended     bool // what it still sends is out of date
	stop      context.CancelFunc
}

// update is what a follower tells the session.
type update struct {
	kubeapi.Update[*object]
	of *following
}

// session belongs to the goroutine of Manager.Run.
type session struct {
	*Manager
	client    *kubeapi.Client
	group     sync.WaitGroup // of what it started
	updates   chan update
	following []*following
	objects   map[*source]map[kubeapi.Key]*object
	classes   map[string]bool // the GatewayClasses that are ours

	secretSource *source
	secrets      map[kubeapi.Key]*wantedSecret
	unread       []string // why Secrets that are referred to are not read

	holds map[holdKey]*hold // of status writes
	// missing are the resources that the last pass found without an object.
	missing map[string]bool
	// due is when a pass is to be made again after a failure; zero: none is.
	due      time.Time
	failures int // of passes, in a row
}

func newSession(m *Manager, client *kubeapi.Client, secrets *source) *session {
	return &session{
		Manager: m, client: client, updates: make(chan update, 100),
		objects:      map[*source]map[kubeapi.Key]*object{secrets: {}},
		secretSource: secrets, secrets: map[kubeapi.Key]*wantedSecret{}, holds: map[holdKey]*hold{},
	}
}

// follow starts to follow.
func (s *session) follow(ctx context.Context, f *following) {
	ctx, f.stop = context.WithCancel(ctx)
	s.following = append(s.following, f)
	one := &kubeapi.Follower[*object]{
		Client: s.client, Kind: f.source.kindOf(s.cfg.Selector), Namespace: f.namespace, Name: f.name,
		Send: func(ctx context.Context, u kubeapi.Update[*object]) bool {
			select {
			case s.updates <- update{u, f}:
				return true
			case <-ctx.Done():
				return false
			}
		},
	}
	s.group.Go(func() { one.Run(ctx) })
}

// unfollow ends it, and forgets its objects.
func (s *session) unfollow(f *following) {
	f.ended = true
	f.stop()
	s.following = slices.DeleteFunc(s.following, func(other *following) bool { return other == f })
	for k := range s.objects[f.source] {
		if f.covers(k) {
			delete(s.objects[f.source], k)
		}
	}
}

// covers reports whether an object is one of those that are followed.
func (f *following) covers(k kubeapi.Key) bool {
	return (f.namespace == "" || f.namespace == k.Namespace) && (f.name == "" || f.name == k.Name)
}

func (s *session) run(ctx context.Context, inForce <-chan struct{}, found []*source) error {
	tick, again := time.NewTicker(checkInterval), time.NewTicker(s.cfg.Rediscover)
	defer tick.Stop()
	defer again.Stop()
	next, dirty := time.NewTimer(s.cfg.Debounce), true
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case u := <-s.updates:
			if errors.Is(u.Err, kubeapi.ErrCredentials) {
				return u.Err // the next session reads the kubeconfig again
			}
			dirty = s.take(u) || dirty
		case <-inForce:
			dirty = true
		case <-tick.C:
			if !s.cfg.Leads() {
				return nil
			}
			if !s.due.IsZero() && time.Now().After(s.due) {
				s.due, dirty = time.Time{}, true
			}
		case <-again.C:
			dirty = true
			if now, err := discover(ctx, s.client); err == nil && !sameSources(now, found) {
				return nil
			}
		case <-next.C:
			if dirty && s.ready() {
				var err error
				if dirty, err = s.pass(ctx); err != nil {
					return err
				}
			}
			next.Reset(s.cfg.Debounce)
		}
	}
}

// take applies an update and reports whether there is something to do.
func (s *session) take(u update) bool {
	f, known := u.of, s.objects[u.of.source]
	if f.ended {
		return false
	}
	before := f.err
	if f.err = u.Err; u.Err != nil {
		if before == nil || before.Error() != u.Err.Error() {
			s.cfg.Log.Warn("cannot read a kind from Kubernetes; nothing of it changes", "error", u.Err)
		}
		return true
	}
	if u.Relisted {
		f.synced = true
		listed := make(map[kubeapi.Key]bool, len(u.Objects))
		for _, o := range u.Objects {
			listed[o.key()] = true
		}
		for k := range known {
			if f.covers(k) && !listed[k] {
				delete(known, k)
			}
		}
	}
	for _, o := range u.Objects {
		if old := known[o.key()]; old != nil {
			o.logged, o.refused = old.logged, old.refused
		}
		if o.gone {
			delete(known, o.key())
		} else {
			known[o.key()] = o
		}
	}
	return u.Relisted || len(u.Objects) > 0 || before != nil
}

// ready reports whether every follower has an answer or an error.
func (s *session) ready() bool {
	return !slices.ContainsFunc(s.following, func(f *following) bool { return !f.synced && f.err == nil })
}

// complete reports whether all objects of a kind are known.
func (s *session) complete(group, kind string) bool {
	found := false
	for _, f := range s.following {
		if f.source.group == group && f.source.kind == kind {
			if !f.synced {
				return false
			}
			found = true
		}
	}
	return found
}

// publish tells status and metrics what the last pass found.
func (s *session) publish(pending []string) {
	now := State{Synced: true}
	for _, f := range s.following {
		if f.err != nil || !f.synced {
			now.Synced = false
		}
		if f.err != nil {
			now.Problems = append(now.Problems, f.err.Error())
		}
	}
	now.Problems = append(now.Problems, pending...)
	now.Problems = append(now.Problems, s.unread...)
	for _, h := range s.holds {
		now.Problems = append(now.Problems, h.text)
	}
	for _, list := range s.objects {
		for _, o := range list {
			if !o.counts {
				continue
			}
			now.Objects++
			if o.trouble() == "" {
				continue
			}
			now.Refused++
			now.Problems = append(now.Problems, fmt.Sprintf("kubernetes: %v is not accepted: %s", o, o.trouble()))
		}
	}
	slices.Sort(now.Problems)
	now.Problems = slices.Compact(now.Problems)
	if more := len(now.Problems) - maxListed; more > 0 {
		now.Problems = append(now.Problems[:maxListed], fmt.Sprintf("kubernetes: and %d more", more))
	}
	s.update(func(st *State) {
		st.Synced, st.Problems, st.Objects, st.Refused = now.Synced, now.Problems, now.Objects, now.Refused
	})
}
