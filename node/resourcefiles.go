package node

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"penstock/consensus/store"
	"penstock/node/api"
	"penstock/node/catalog"
	"penstock/node/ops"
	"penstock/node/rpc"
	"penstock/routing/resource"
)

// AppliedBy is the label of resources that a node applied from its files. Its
// value is ResourceFiles.Description. A sync deletes resources with the label that
// the files no longer contain; it never deletes resources without it.
const AppliedBy = resource.LabelAppliedBy

// ResourceFiles describes the files of --resources.
type ResourceFiles struct {
	// Paths are absolute. They identify the set of files: nodes with the same
	// paths apply the same set.
	Paths []string
	// Sync applies the files at each start and each Reread. Otherwise they
	// are applied once, when the cluster is new.
	Sync bool
	// Read reads and checks the files. Its error lists every fault, by file
	// and line.
	Read func() ([]resource.Object, error)
	// Changed reports whether the files have changed since it last said so; with Sync
	// they are then read and applied. nil: only Reread does that.
	Changed func() bool
	// Fault is the error of Read at the start of the node. With it the node
	// serves the configuration that its cluster already has.
	Fault error
}

// Description returns the value of AppliedBy for resources from the files.
func (f *ResourceFiles) Description() string {
	sum := sha256.Sum256([]byte(strings.Join(slices.Sorted(slices.Values(f.Paths)), "\x00")))
	return "resources-" + hex.EncodeToString(sum[:6])
}

// labelled returns the objects with the label AppliedBy if Sync is set, by which
// a later sync finds those to delete.
func (f *ResourceFiles) labelled(objects []resource.Object) []resource.Object {
	if f == nil || !f.Sync {
		return objects
	}
	objects = slices.Clone(objects)
	for i := range objects {
		labels := maps.Clone(objects[i].Labels)
		if labels == nil {
			labels = map[string]string{}
		}
		labels[AppliedBy] = f.Description()
		objects[i].Labels = labels
	}
	return objects
}

// rereader reads the node's files again on request, and applies the resources in
// them if Sync is set. Only the goroutine of run uses objects.
type rereader struct {
	log   *slog.Logger
	files *ResourceFiles // nil: none
	certs *certFiles     // of HTTP; nil: none
	// clients has the CAs of HTTP's clients; nil: they need no certificate.
	clients *clientCAFile
	admin   *rpc.Server // applies resources; set before run

	requested chan struct{} // buffers one request; more at once count as one
	synced    atomic.Bool   // the resources of the files are in force

	objects []resource.Object // to be applied; nil: nothing
}

// Reread reads the node's files again: the certificate of HTTP, those that resources
// leave to the nodes, and the resources. Files of the access log are opened anew.
// It returns at once; the outcome is logged.
func (n *Node) Reread() {
	n.followed.Reread()
	n.access.Reopen()
	select {
	case n.reread.requested <- struct{}{}:
	default: // a reread that has not begun yet covers this one
	}
}

// minSyncBackoff is the first and maxSyncBackoff the longest backoff between
// attempts to apply the files while the cluster cannot commit.
const minSyncBackoff, maxSyncBackoff = time.Second, 30 * time.Second

// checkInterval is how often files that are followed are checked.
const checkInterval = 5 * time.Second

// run applies the files of --resources-mode sync or follow and reads all files again at
// each Reread, until ctx ends.
func (r *rereader) run(ctx context.Context, first []resource.Object) {
	switch f := r.files; {
	case f != nil && f.Fault != nil:
		logFaults(r.log, "the files of --resources have faults and were not applied; the node serves its cluster's configuration",
			f.Fault)
	case f != nil && f.Sync:
		r.objects = first
	}
	var check <-chan time.Time // nil: never
	if f := r.files; f != nil && f.Changed != nil {
		ticker := time.NewTicker(checkInterval)
		defer ticker.Stop()
		check = ticker.C
	}
	wait, logged := minSyncBackoff, ""
	for {
		var retry <-chan time.Time
		if r.objects != nil {
			err := r.sync(ctx)
			if err == nil {
				wait, logged, r.objects = minSyncBackoff, "", nil
			} else {
				if err.Error() != logged && ctx.Err() == nil {
					logged = err.Error()
					r.log.Warn("cannot apply the files of --resources yet; retrying", "error", err)
				}
				retry = time.After(wait)
				wait = min(2*wait, maxSyncBackoff)
			}
		}
		select {
		case <-retry:
		case <-check:
			if r.files.Changed() {
				r.rereadResources(ctx)
				wait, logged = minSyncBackoff, ""
			}
		case <-r.requested:
			r.rereadHTTP()
			r.rereadResources(ctx)
			wait, logged = minSyncBackoff, ""
		case <-ctx.Done():
			return
		}
	}
}

// rereadHTTP reads the files of --http-cert and of --http-ca.
func (r *rereader) rereadHTTP() {
	reread := func(what string, check func(force bool) (changed bool, err error)) {
		changed, err := check(true)
		if err != nil {
			r.log.Error("cannot use the reread files of --http; the last ones stay in use", "what", what, "error", err)
			return
		}
		r.log.Info("reread files of --http", "what", what, "changed", changed)
	}
	if r.certs != nil {
		reread("certificate", r.certs.check)
	}
	if r.clients != nil {
		reread("CAs of clients", r.clients.check)
	}
}

// rereadResources reads the files of --resources. If they have faults, it logs these
// and changes nothing.
func (r *rereader) rereadResources(ctx context.Context) {
	f := r.files
	if f == nil {
		r.log.Info("no files of --resources to reread; change resources with penstock apply")
		return
	}
	objects, err := f.Read()
	if err != nil {
		r.objects = nil
		r.synced.Store(false)
		logFaults(r.log, "the reread files of --resources have faults; nothing was changed", err)
		return
	}
	if f.Sync {
		r.objects = objects
		return
	}
	r.compare(ctx, objects)
}

// sync applies the resources of the files and deletes those that the files no
// longer contain. It returns an error if a later attempt may succeed; it logs a
// final refusal.
func (r *rereader) sync(ctx context.Context) error {
	f, objects := r.files, r.objects
	r.synced.Store(false)
	result, err := r.apply(ctx, api.ApplyRequest{
		Documents: ops.Documents(f.labelled(objects)), Prune: map[string]string{AppliedBy: f.Description()}, Wait: api.Wait{Nodes: -1},
	})
	switch {
	case err == nil:
		r.synced.Store(true)
		r.log.Info("the files of --resources are in effect",
			append(changeAttrs(result.Changes), "label", AppliedBy+"="+f.Description())...)
	case isTransient(err):
		return err
	default:
		logFaults(r.log, "the files of --resources were refused; nothing was changed", locateFaults(err, objects))
	}
	return nil
}

// isTransient reports whether err is transient. Sending the request again is safe: it
// is declarative.
func isTransient(err error) bool {
	var refusal *api.Error
	if !errors.As(err, &refusal) {
		return true
	}
	switch refusal.Code {
	case api.NoLeader, api.NotLeader, api.Unavailable, api.Deadline, api.Busy, api.UnknownOutcome, api.Internal:
		return true
	}
	return false
}

// compareTimeout bounds the comparison of files with the cluster.
const compareTimeout = 10 * time.Second

// compare logs how files that are not applied differ from the cluster's resources.
func (r *rereader) compare(ctx context.Context, objects []resource.Object) {
	ctx, cancel := context.WithTimeout(ctx, compareTimeout)
	defer cancel()
	result, err := r.apply(ctx, api.ApplyRequest{Documents: ops.Documents(objects), DryRun: true, Wait: api.Wait{Nodes: -1}})
	const message = "reread the files of --resources without applying them; penstock apply -f applies them, " +
		"or --resources-mode sync at each start and SIGHUP"
	if err != nil {
		logFaults(r.log, message, locateFaults(err, objects))
		return
	}
	args := []any{"same", 0, "differ", ""}
	var differ []string
	for _, c := range result.Changes {
		if c.Action != api.Unchanged {
			differ = append(differ, c.Kind+"/"+c.Name)
		}
	}
	args[1], args[3] = len(result.Changes)-len(differ), ops.List(differ)
	r.log.Info(message, args...)
}

// apply sends an apply request as the principal "resources".
func (r *rereader) apply(ctx context.Context, req api.ApplyRequest) (*api.ApplyResult, error) {
	c, err := ops.ConnectLocal(ctx, r.admin, api.Principal{Name: "resources", Role: api.RoleAdmin})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return rpc.Call[api.ApplyResult](ctx, c, api.MethodApply, req)
}

// changeAttrs returns the log attributes for changes: counts by action, and names.
func changeAttrs(changes []api.Change) []any {
	counts, names := map[string]int{}, []string{}
	for _, c := range changes {
		if counts[c.Action]++; c.Action != api.Unchanged {
			names = append(names, c.Kind+"/"+c.Name+" "+c.Action)
		}
	}
	args := []any{}
	for _, action := range []string{api.Created, api.Configured, api.Deleted, api.Unchanged} {
		args = append(args, action, counts[action])
	}
	if len(names) > 0 {
		args = append(args, "changes", ops.List(names))
	}
	return args
}

// maxLoggedFaults bounds the faults that logFaults logs.
const maxLoggedFaults = 50

// logFaults logs an error, one line for each fault.
func logFaults(log *slog.Logger, message string, err error) {
	var faults resource.Faults
	if !errors.As(err, &faults) {
		log.Error(message, "error", err)
		return
	}
	for i, f := range faults {
		if i == maxLoggedFaults {
			log.Error(message, "faults not listed", len(faults)-maxLoggedFaults)
			return
		}
		log.Error(message, "fault", f.Error())
	}
}

// Locate converts a fault that a node found into one with the file and line of
// the resource o. A nil o means that the resource is not from a file.
func Locate(o *resource.Object, f api.Fault) resource.Fault {
	out := resource.Fault{Path: strings.TrimSpace(f.Key + " " + f.Path), Message: f.Message, Value: f.Value}
	if o != nil {
		out.File, out.Line = o.File, o.LineOf(f.Path)
		out.Path = strings.TrimSpace(o.Subject() + " " + o.PathOf(f.Path))
	}
	return out
}

// locateFaults converts a refusal into faults located in the objects. Other errors
// are returned unchanged.
func locateFaults(err error, objects []resource.Object) error {
	var refusal *api.Error
	if !errors.As(err, &refusal) || len(refusal.Faults) == 0 {
		return err
	}
	byKey := make(map[string]*resource.Object, len(objects))
	for i := range objects {
		key := objects[i].Key
		byKey[key.String()] = &objects[i]
	}
	var faults resource.Faults
	for _, f := range refusal.Faults {
		faults = append(faults, Locate(byKey[f.Key], f))
	}
	return faults
}

// startResources applies the resources of the settings and starts the rereader.
func (n *Node) startResources(ctx context.Context) error {
	objects := n.cfg.Resources
	n.cfg.Resources = nil // may be large, so cfg should not keep them
	if err := n.applyInitialResources(ctx, objects); err != nil {
		return err
	}
	n.reread.admin = n.admin
	n.background.Go(func() { n.reread.run(n.ctx, objects) })
	return nil
}

// applyInitialResources applies the resources of the settings if the cluster is new. If
// several nodes do so, the resources of the first one take effect.
func (n *Node) applyInitialResources(ctx context.Context, objects []resource.Object) error {
	if len(objects) == 0 {
		return nil
	}
	files := n.cfg.ResourceFiles
	given := objects
	objects = files.labelled(objects)
	if n.cluster == nil {
		_, err := n.catalog.Apply(ctx, catalog.Change{Objects: objects, Note: store.Note{Who: "start"}})
		return locateFaults(err, given)
	}
	if !n.cfg.Init && n.cfg.Expect == 0 || n.store.Snapshot().Sequence() > 0 {
		if files != nil && !files.Sync {
			n.log.Info("the files of --resources were not applied: the cluster is not new; penstock apply -f applies them, "+
				"or --resources-mode sync at each start", "files", strings.Join(files.Paths, ", "))
		}
		return nil
	}
	sum := sha256.Sum256([]byte("first resources of " + n.cluster.ClusterID()))
	req := api.ApplyRequest{Documents: ops.Documents(objects), Wait: api.Wait{Nodes: -1}, ID: sum[:16]}
	c, err := ops.ConnectLocal(ctx, n.admin, api.Principal{Name: "start", Role: api.RoleAdmin})
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = rpc.Call[api.ApplyResult](ctx, c, api.MethodApply, req)
	return locateFaults(err, given)
}
