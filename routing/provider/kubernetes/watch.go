package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"penstock/routing/provider"
)

const (
	// The server is asked to end each watch after watchTime to twice that, as
	// client-go's informers do it.
	watchTime = 5 * time.Minute
	// A watch that ends sooner than this without an event is taken for a failure.
	shortWatch = time.Second
	// A list or watch that fails is tried again after a pause that doubles up to
	// maxRetry, each with jitter.
	maxRetry = 30 * time.Second
)

// kind is one of the two kinds of objects.
type kind struct {
	resource string
	group    schema.GroupVersion
	selector string // beside Config.LabelSelector
	// list returns the objects of a list, and one returns one. They return false
	// for a value of another type.
	list func(from runtime.Object, cfg *Config) ([]object, bool, error)
	one  func(from runtime.Object, cfg *Config) (object, bool, error)
}

var services = &kind{
	resource: "services", group: corev1.SchemeGroupVersion,
	list: func(from runtime.Object, _ *Config) ([]object, bool, error) {
		list, ok := from.(*corev1.ServiceList)
		if !ok {
			return nil, false, nil
		}
		objects, err := convert(list.Items, newService)
		return objects, true, err
	},
	one: func(from runtime.Object, _ *Config) (object, bool, error) {
		s, ok := from.(*corev1.Service)
		if !ok {
			return object{}, false, nil
		}
		o, err := newService(s)
		return o, true, err
	},
}

var endpointSlices = &kind{
	resource: "endpointslices", group: discoveryv1.SchemeGroupVersion, selector: discoveryv1.LabelServiceName,
	list: func(from runtime.Object, cfg *Config) ([]object, bool, error) {
		list, ok := from.(*discoveryv1.EndpointSliceList)
		if !ok {
			return nil, false, nil
		}
		objects, err := convert(list.Items, func(s *discoveryv1.EndpointSlice) (object, error) { return newSlice(s, cfg.Family) })
		return objects, true, err
	},
	one: func(from runtime.Object, cfg *Config) (object, bool, error) {
		s, ok := from.(*discoveryv1.EndpointSlice)
		if !ok {
			return object{}, false, nil
		}
		o, err := newSlice(s, cfg.Family)
		return o, true, err
	},
}

var kinds = []*kind{services, endpointSlices}

func convert[T any](items []T, one func(*T) (object, error)) ([]object, error) {
	objects := make([]object, 0, len(items))
	for i := range items {
		o, err := one(&items[i])
		if err != nil {
			return nil, err
		}
		objects = append(objects, o)
	}
	return objects, nil
}

// update is what a follower tells the run.
type update struct {
	from *follower
	err  error // set: what is known may be out of date
	// relisted is true if objects are all that there are; otherwise they are new,
	// changed or gone, and if there are none, the server says that nothing is.
	relisted bool
	objects  []object
}

// follower lists the objects of one kind in one namespace and watches them. It
// does not use client-go's reflector, which keeps failures of a watch to itself,
// skips objects of a wrong type and holds whole lists of whole objects.
type follower struct {
	source    *Source
	client    *client
	kind      *kind
	namespace string // "" for all
	scope     *scope
	updates   chan<- update

	// What the goroutine of run knows.
	sizes map[key]int // of the objects that count
	total int         // of sizes

	// What the goroutine of Source.Run knows.
	synced bool  // there was a list
	err    error // of the last attempt
}

// run lists and watches until ctx ends.
func (f *follower) run(ctx context.Context) {
	ctx = klog.NewContext(ctx, klog.Logger{}) // errors are for the sink
	pause := f.source.firstRetry
	for {
		events, err := f.follow(ctx)
		if !f.send(ctx, update{err: f.explain(err)}) {
			return
		}
		if events > 0 {
			pause = f.source.firstRetry
		}
		if !provider.Sleep(ctx, pause/2+rand.N(pause)) {
			return
		}
		pause = min(2*pause, maxRetry)
	}
}

func (f *follower) send(ctx context.Context, u update) bool {
	u.from = f
	select {
	case f.updates <- u:
		return true
	case <-ctx.Done():
		return false
	}
}

// follow lists, and watches until something fails. It returns how many events
// came. Revisions that the server has dropped are no failure: the objects are
// listed again, unless that did not help.
func (f *follower) follow(ctx context.Context) (events int, err error) {
	for before := -1; ; {
		revision, err := f.list(ctx)
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
func (f *follower) watchOn(ctx context.Context, revision string) (events int, err error) {
	for resumed := false; ; {
		reached, n, err := f.watch(ctx, revision)
		events += n
		switch {
		case err == nil:
			revision, resumed = reached, false
		case errors.Is(err, errShortWatch) && !resumed && provider.Sleep(ctx, f.source.firstRetry):
			resumed = true
		default:
			return events, err
		}
	}
}

// request returns a request, without its options.
func (f *follower) request(options *metav1.ListOptions) *rest.Request {
	options.LabelSelector = f.source.cfg.LabelSelector
	if s := f.kind.selector; s != "" && options.LabelSelector != "" {
		options.LabelSelector += "," + s
	} else if s != "" {
		options.LabelSelector = s
	}
	return f.client.groups[f.kind.group].Get().Resource(f.kind.resource).Namespace(f.namespace).
		VersionedParams(options, parameters).MaxRetries(0)
}

// list reads all objects, page by page, sends them on, and returns the revision
// that they are of.
func (f *follower) list(ctx context.Context) (revision string, err error) {
	var objects []object
	f.sizes, f.total = map[key]int{}, 0
	options := metav1.ListOptions{Limit: pageSize}
	for {
		page, err := f.page(ctx, options)
		if err != nil {
			return "", err
		}
		found, ok, err := f.kind.list(page, &f.source.cfg)
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
		if f.total > f.source.cfg.MaxObjects {
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
		f.send(ctx, update{relisted: true, objects: objects})
		return revision, nil
	}
}

// page reads one page of a list.
func (f *follower) page(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	if err := f.client.limiter.Wait(ctx); err != nil {
		return nil, err
	}
	m := newMeter(f.source.cfg.MaxBytes)
	reading, cancel := context.WithTimeoutCause(context.WithValue(ctx, meterKey{}, m), f.source.cfg.Timeout, errSilent)
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
func (f *follower) watch(ctx context.Context, revision string) (reached string, events int, err error) {
	if err := f.client.limiter.Wait(ctx); err != nil {
		return "", 0, err
	}
	m := newMeter(f.source.cfg.MaxBytes)
	wanted := watchTime + rand.N(watchTime)
	seconds := int64(wanted.Seconds())
	options := metav1.ListOptions{ResourceVersion: revision, AllowWatchBookmarks: true, TimeoutSeconds: &seconds, Watch: true}
	watching, cancel := context.WithCancelCause(context.WithValue(ctx, meterKey{}, m))
	defer cancel(nil)
	silent := time.AfterFunc(f.source.cfg.Timeout, func() { cancel(errSilent) })
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
	silent.Reset(wanted + f.source.cfg.Timeout)
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
func (f *follower) event(ctx context.Context, event watch.Event) (revision string, err error) {
	o, ok, err := f.kind.one(event.Object, &f.source.cfg)
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
		f.send(ctx, update{})
		return revision, nil
	case watch.Deleted:
		o = object{key: o.key}
	}
	f.count(&o)
	if f.total > f.source.cfg.MaxObjects {
		return "", f.tooMany()
	}
	f.send(ctx, update{objects: []object{o}})
	return revision, nil
}

// count takes an object into account for Config.MaxObjects.
func (f *follower) count(o *object) {
	size := o.size()
	f.total += size - f.sizes[o.key]
	if size == 0 {
		delete(f.sizes, o.key)
	} else {
		f.sizes[o.key] = size
	}
}

func (f *follower) tooMany() error {
	return fmt.Errorf("there are more than %d objects, endpoints and ports: narrow them by namespaces or a labelSelector, or raise maxObjects",
		f.source.cfg.MaxObjects)
}
