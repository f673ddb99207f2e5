package kubeapi

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"penstock/routing/provider"
)

const (
	// PageSize is how many objects an answer to a list has at most.
	PageSize = 250
	// The server is asked to end each watch after watchTime to twice that, as
	// client-go's informers do it.
	watchTime = 5 * time.Minute
	// A watch that ends sooner than this without an event is taken for a failure.
	shortWatch = time.Second
	// A list or watch that fails is tried again after a pause that doubles up to
	// maxRetry, each with jitter.
	maxRetry = 30 * time.Second
)

// Kind is a kind of objects to follow. O is what is kept of one.
type Kind[O any] struct {
	Resource string
	Group    schema.GroupVersion
	Selector string // of labels
	// List returns the objects of a list, and One returns one. They return false
	// for a value of another type. The object of a deletion, by Gone, has no more
	// than its key.
	List func(from runtime.Object) ([]O, bool, error)
	One  func(from runtime.Object) (O, bool, error)
	Gone func(o O) O
	// Key identifies an object within its kind, and Size is what it counts towards
	// Config.MaxObjects, 0 for one that is gone.
	Key  func(o *O) Key
	Size func(o *O) int
}

// Key names an object of a kind.
type Key struct{ Namespace, Name string }

func (k Key) String() string { return k.Namespace + "/" + k.Name }

// Update is what a follower tells.
type Update[O any] struct {
	From *Follower[O]
	Err  error // set: what is known may be out of date
	// Relisted is true if Objects are all that there are; otherwise they are new,
	// changed or gone, and if there are none, the server says that nothing is.
	Relisted bool
	Objects  []O
}

// Follower lists the objects of one kind in one namespace, or one of them, and watches them. It
// does not use client-go's reflector, which keeps failures of a watch to itself,
// skips objects of a wrong type and holds whole lists of whole objects.
type Follower[O any] struct {
	Client    *Client
	Kind      *Kind[O]
	Namespace string // "" for all
	Name      string // of the only object; "" for all
	// Send receives the updates, in order. It returns false when ctx has ended.
	Send func(ctx context.Context, u Update[O]) bool

	// What the goroutine of Run knows.
	sizes map[Key]int // of the objects that count
	total int         // of sizes
}

// Run lists and watches until ctx ends.
func (f *Follower[O]) Run(ctx context.Context) {
	ctx = klog.NewContext(ctx, klog.Logger{}) // errors are for the sink
	pause := f.Client.cfg.FirstRetry
	for {
		events, err := f.follow(ctx)
		if !f.send(ctx, Update[O]{Err: f.explain(err)}) {
			return
		}
		if events > 0 {
			pause = f.Client.cfg.FirstRetry
		}
		if !provider.Sleep(ctx, pause/2+rand.N(pause)) {
			return
		}
		pause = min(2*pause, maxRetry)
	}
}

func (f *Follower[O]) send(ctx context.Context, u Update[O]) bool {
	u.From = f
	return f.Send(ctx, u)
}

// follow lists, and watches until something fails. It returns how many events
// came. Revisions that the server has dropped are no failure: the objects are
// listed again, unless that did not help.
func (f *Follower[O]) follow(ctx context.Context) (events int, err error) {
	for before := -1; ; {
		revision, err := f.List(ctx)
		if err != nil {
			return events, err
		}
		n, err := f.watchOn(ctx, revision)
		events += n
		expired := apierrors.IsResourceExpired(err) || apierrors.IsGone(err)
		if !expired || events == before {
			return events, err
		}
		before = events
	}
}

// watchOn watches from a revision on until a watch fails, with the reason. The
// first that is short goes on: it may have met an idle connection that the server
// was about to close.
func (f *Follower[O]) watchOn(ctx context.Context, revision string) (events int, err error) {
	for resumed := false; ; {
		reached, n, err := f.watch(ctx, revision)
		events += n
		switch {
		case err == nil:
			revision, resumed = reached, false
		case errors.Is(err, errShortWatch) && !resumed && provider.Sleep(ctx, f.Client.cfg.FirstRetry):
			resumed = true
		default:
			return events, err
		}
	}
}

// request returns a request, without its options.
func (f *Follower[O]) request(options *metav1.ListOptions) *rest.Request {
	options.LabelSelector = f.Kind.Selector
	if f.Name != "" { // in this form a Role may name the object
		options.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, f.Name).String()
	}
	return f.Client.groups[f.Kind.Group].Get().Resource(f.Kind.Resource).Namespace(f.Namespace).
		SpecificallyVersionedParams(options, parameters, v1).MaxRetries(0)
}

// List reads all objects, page by page, sends them on, and returns the revision
// that they are of.
func (f *Follower[O]) List(ctx context.Context) (revision string, err error) {
	var objects []O
	f.sizes, f.total = map[Key]int{}, 0
	options := metav1.ListOptions{Limit: PageSize}
	for {
		page, err := f.page(ctx, options)
		if err != nil {
			return "", err
		}
		found, ok, err := f.Kind.List(page)
		if err != nil {
			return "", err
		}
		meta, isList := page.(metav1.ListMetaAccessor)
		if !ok || !isList {
			return "", wrongType(page)
		}
		for i := range found {
			f.count(&found[i])
		}
		if f.total > f.Client.cfg.MaxObjects {
			return "", f.tooMany()
		}
		objects = append(objects, found...)
		options.Continue = meta.GetListMeta().GetContinue()
		switch {
		case options.Continue != "" && len(found) == 0:
			return "", errors.New("an empty page of a list came that is not the last one")
		case options.Continue != "":
			continue
		}
		if revision = meta.GetListMeta().GetResourceVersion(); revision == "" {
			return "", errors.New("a list without a resourceVersion came")
		}
		f.send(ctx, Update[O]{Relisted: true, Objects: objects})
		return revision, nil
	}
}

// page reads one page of a list.
func (f *Follower[O]) page(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	if err := f.Client.limiter.Wait(ctx); err != nil {
		return nil, err
	}
	m := newMeter(f.Client.cfg.MaxBytes)
	reading, cancel := context.WithTimeoutCause(context.WithValue(ctx, meterKey{}, m), f.Client.cfg.Timeout, errSilent)
	defer cancel()
	page, err := f.request(&options).Do(reading).Get()
	switch {
	case m.exceeded.Load():
		return nil, errTooLarge
	case err != nil && errors.Is(context.Cause(reading), errSilent):
		return nil, errSilent
	}
	return page, err
}

// watch sends on what changes after a revision, until the watch ends: as it was
// asked to or because the connection was lost, both without an error, or with
// one. It returns the revision that it reached and how many events came.
func (f *Follower[O]) watch(ctx context.Context, revision string) (reached string, events int, err error) {
	if err := f.Client.limiter.Wait(ctx); err != nil {
		return "", 0, err
	}
	m := newMeter(f.Client.cfg.MaxBytes)
	wanted := watchTime + rand.N(watchTime)
	seconds := int64(wanted.Seconds())
	options := metav1.ListOptions{ResourceVersion: revision, AllowWatchBookmarks: true, TimeoutSeconds: &seconds, Watch: true}
	watching, cancel := context.WithCancelCause(context.WithValue(ctx, meterKey{}, m))
	defer cancel(nil)
	silent := time.AfterFunc(f.Client.cfg.Timeout, func() { cancel(errSilent) })
	defer silent.Stop()
	began := time.Now()
	w, err := f.request(&options).Watch(watching)
	if err != nil {
		if errors.Is(context.Cause(watching), errSilent) {
			err = errSilent
		}
		return "", 0, err
	}
	defer w.Stop()
	silent.Reset(wanted + f.Client.cfg.Timeout)
	for event := range w.ResultChan() {
		m.reset()
		if m.exceeded.Load() {
			break
		}
		if event.Type == watch.Error {
			return "", events, apierrors.FromObject(event.Object)
		}
		if revision, err = f.event(ctx, event); err != nil {
			return "", events, err
		}
		events++
	}
	switch {
	case ctx.Err() != nil:
		return "", events, ctx.Err()
	case m.exceeded.Load():
		return "", events, errTooLarge
	case events == 0 && time.Since(began) < shortWatch:
		return "", events, errShortWatch
	}
	return revision, events, nil
}

// event sends on one event and returns its revision.
func (f *Follower[O]) event(ctx context.Context, event watch.Event) (revision string, err error) {
	o, ok, err := f.Kind.One(event.Object)
	if err != nil {
		return "", err
	}
	meta, isObject := event.Object.(metav1.ObjectMetaAccessor)
	if !ok || !isObject {
		return "", wrongType(event.Object)
	}
	if revision = meta.GetObjectMeta().GetResourceVersion(); revision == "" {
		return "", errors.New("an event without a resourceVersion came")
	}
	switch event.Type {
	case watch.Bookmark:
		f.send(ctx, Update[O]{})
		return revision, nil
	case watch.Deleted:
		o = f.Kind.Gone(o)
	}
	f.count(&o)
	if f.total > f.Client.cfg.MaxObjects {
		return "", f.tooMany()
	}
	f.send(ctx, Update[O]{Objects: []O{o}})
	return revision, nil
}

// count takes an object into account for Config.MaxObjects.
func (f *Follower[O]) count(o *O) {
	size, key := f.Kind.Size(o), f.Kind.Key(o)
	f.total += size - f.sizes[key]
	if size == 0 {
		delete(f.sizes, key)
	} else {
		f.sizes[key] = size
	}
}

func (f *Follower[O]) tooMany() error { return errors.New(f.Client.cfg.TooMany) }
