package dataplane

import (
	"context"
	"iter"
	"sync"
	"time"

	"penstock/routing/health"
	"penstock/routing/resource"
)

// How a listener learns what its servers call themselves.
const (
	// maxVersion is the length of a version that is passed on, in bytes.
	maxVersion = 60
	// maxAsked is how many servers are asked for it at once.
	maxAsked = 3
	// versionTimeout is how long the first clients wait for an answer.
	versionTimeout = time.Second
	// versionRetry is the time after which the servers are asked again if none answered.
	versionRetry = 5 * time.Second
)

// mysqlVersions knows the version with which each listener greets: that of a server behind
// it. Drivers choose their statements by it, so the first clients of a listener wait until
// a server has been asked. Its methods are safe for concurrent use.
type mysqlVersions struct {
	// ask asks a server behind a listener; "": none answered.
	ask func(ctx context.Context, listener string) string

	known sync.Map // listener -> string

	mu        sync.Mutex
	questions map[string]*versionQuestion // by listener
	ctx       context.Context
	stop      context.CancelFunc
	running   sync.WaitGroup
}

// versionQuestion is a question to servers that is under way, or had no answer.
type versionQuestion struct {
	waiting []*mysqlConn
	failed  time.Time // when; zero: it is under way
}

func (v *mysqlVersions) init(ask func(ctx context.Context, listener string) string) {
	v.ask, v.questions = ask, map[string]*versionQuestion{}
	v.ctx, v.stop = context.WithCancel(context.Background())
}

// close ends the questions.
func (v *mysqlVersions) close() {
	v.mu.Lock()
	v.stop() // no other question begins
	v.mu.Unlock()
	v.running.Wait()
}

// saw notes the version of a server behind a listener.
func (v *mysqlVersions) saw(listener, version string) {
	if old, ok := v.known.Load(listener); version != "" && len(version) <= maxVersion && (!ok || old.(string) != version) {
		v.known.Store(listener, version)
	}
}

// forget forgets a listener that has been removed.
func (v *mysqlVersions) forget(listener string) {
	v.known.Delete(listener)
	v.mu.Lock()
	defer v.mu.Unlock()
	if q := v.questions[listener]; q != nil && !q.failed.IsZero() {
		delete(v.questions, listener)
	}
}

// of returns the version for a client's greeting. If it is "", Session.GreetAs follows.
func (v *mysqlVersions) of(h *mysqlConn) string {
	listener := h.conn.Listener()
	if version, ok := v.known.Load(listener); ok {
		return version.(string)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	q, begins := v.question(listener)
	if q == nil {
		return defaultServerVersion
	}
	q.waiting = append(q.waiting, h)
	if begins {
		v.running.Go(func() { v.answer(listener, q) })
	}
	return ""
}

// question returns the question that a client of a listener waits for, and whether it is
// a new one; nil: none, since the last one failed not long ago, or the node closes.
func (v *mysqlVersions) question(listener string) (q *versionQuestion, begins bool) {
	q = v.questions[listener]
	switch {
	case v.ctx.Err() != nil, q != nil && !q.failed.IsZero() && time.Since(q.failed) < versionRetry:
		return nil, false
	case q != nil && q.failed.IsZero():
		return q, false
	}
	q = new(versionQuestion)
	v.questions[listener] = q
	return q, true
}

// answer asks servers and greets the clients that wait for it.
func (v *mysqlVersions) answer(listener string, q *versionQuestion) {
	ctx, cancel := context.WithTimeout(v.ctx, versionTimeout)
	defer cancel()
	v.saw(listener, v.ask(ctx, listener))
	version, ok := v.known.Load(listener)
	if !ok {
		version = defaultServerVersion
	}
	v.mu.Lock()
	waiting := q.waiting
	q.waiting, q.failed = nil, time.Now()
	if ok {
		delete(v.questions, listener)
	}
	v.mu.Unlock()
	for _, h := range waiting {
		h.conn.Post(func() { h.session.GreetAs(version.(string)) })
	}
}

// askVersion asks servers behind a listener, maxAsked of them at once; the first answer
// counts.
func (r *reconciler) askVersion(ctx context.Context, listener string) string {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	next, stop := iter.Pull(r.versionTargets(listener))
	defer stop()
	answers := make(chan string, maxAsked)
	asked := 0
	ask := func() {
		t, ok := next()
		if !ok || ctx.Err() != nil {
			return
		}
		asked++
		go func() {
			version, err := r.checker.MySQLVersion(ctx, t)
			if err != nil {
				version = ""
			}
			answers <- version
		}()
	}
	for range maxAsked {
		ask()
	}
	for ; asked > 0; asked-- {
		if version := <-answers; version != "" {
			return version
		}
		ask()
	}
	return ""
}

// versionTargets yields the endpoints of the services to which a listener leads by itself,
// the default service first.
func (r *reconciler) versionTargets(listener string) iter.Seq[health.Target] {
	return func(yield func(health.Target) bool) {
		table := r.router.Table()
		l, ok := table.Listener(listener)
		if !ok {
			return
		}
		for _, name := range servicesOf(l.Spec()) {
			s, ok := table.Service(name)
			if !ok {
				continue
			}
			check := &health.Check{Type: health.MySQL, Timeout: versionTimeout, Preface: prefaceOf(s.Spec())}
			for _, m := range s.Members() {
				if !yield(health.Target{Group: s.Group(), Endpoint: m.Endpoint, Check: check}) {
					return
				}
			}
		}
	}
}

// servicesOf lists the services that a mysql listener names.
func servicesOf(l *resource.Listener) []string {
	names := []string{l.Service}
	for i := range l.MySQL.Users {
		names = append(names, l.MySQL.Users[i].Service)
	}
	for i := range l.Hosts {
		names = append(names, l.Hosts[i].Service)
	}
	return names
}
