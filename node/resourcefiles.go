package node

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"penstock/consensus"
	"penstock/node/admin"
	"penstock/node/catalog"
	"penstock/routing/resource"
)

// AppliedBy is the label of resources that a node applied from its files. Its
// value is ResourceFiles.Description: resources that the files no longer hold are
// deleted by it, and resources without it are never deleted.
const AppliedBy = "penstock.io/applied-by"

// ResourceFiles are the files of --resources.
type ResourceFiles struct {
	// Paths are absolute. They tell these files from those of other nodes:
	// nodes with the same paths apply the same set.
	Paths []string
	// Sync applies the files at each start and each Reread. Otherwise they
	// are applied once, when the cluster is new.
	Sync bool
	// Read reads and checks them. The error lists every fault, by file and
	// line.
	Read func() ([]resource.Object, error)
	// Fault is what Read said at the start of the node, if that was not in
	// order: the node serves what its cluster agreed on before.
	Fault error
}

// Description is the value of AppliedBy for resources that come from the files.
func (f *ResourceFiles) Description() string {
	sum := sha256.Sum256([]byte(strings.Join(slices.Sorted(slices.Values(f.Paths)), "\x00")))
	return "resources-" + hex.EncodeToString(sum[:6])
}

// labelled gives the objects as they are applied: with the label, so that a
// later Sync knows them.
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

// rereader reads the node's files again when it is told to, and applies those
// that are to be applied. Its loop alone touches objects.
type rereader struct {
	asked  chan struct{} // holds one: more at once are one
	synced atomic.Bool   // what the files say acts

	objects []resource.Object // still to be applied; nil: nothing
}

// Reread reads again what the node was given as files: the certificate of HTTP
// and the resources. It returns at once; the log says what came of it.
func (n *Node) Reread() {
	select {
	case n.reread.asked <- struct{}{}:
	default: // one that has not begun yet reads the same
	}
}

// The waits between attempts to apply the files while the cluster cannot
// decide.
const rereadAgain, rereadAgainMost = time.Second, 30 * time.Second

// keepFiles applies the files of --resources-mode sync, and reads all files
// again whenever Reread says so, until the node stops.
func (n *Node) keepFiles(first []resource.Object) {
	switch f := n.cfg.ResourceFiles; {
	case f != nil && f.Fault != nil:
		logFaults(n.log, "the files of --resources have faults and were not applied; the node serves what its cluster agreed on", f.Fault)
	case f != nil && f.Sync:
		n.reread.objects = first
	}
	wait, told := rereadAgain, ""
	for {
		var again <-chan time.Time
		if n.reread.objects != nil {
			err := n.syncFiles(n.alive)
			if err == nil {
				wait, told, n.reread.objects = rereadAgain, "", nil
			} else {
				if err.Error() != told && n.alive.Err() == nil {
					told = err.Error()
					n.log.Warn("the files of --resources cannot be applied yet; this is tried again", "error", err)
				}
				again = time.After(wait)
				wait = min(2*wait, rereadAgainMost)
			}
		}
		select {
		case <-again:
		case <-n.reread.asked:
			n.rereadCertificate()
			n.rereadResources(n.alive)
			wait, told = rereadAgain, ""
		case <-n.alive.Done():
			return
		}
	}
}

// rereadCertificate reads the files of --http-cert.
func (n *Node) rereadCertificate() {
	if n.certs == nil {
		return
	}
	changed, err := n.certs.reread()
	if err != nil {
		n.log.Error("the certificate of --http was read again and cannot be used; the last one stays in use", "error", err)
		return
	}
	n.log.Info("the certificate of --http was read again", "changed", changed)
}

// rereadResources reads the files of --resources. Faults change nothing.
func (n *Node) rereadResources(ctx context.Context) {
	f := n.cfg.ResourceFiles
	if f == nil {
		n.log.Info("no --resources to read again; resources change by penstock apply")
		return
	}
	objects, err := f.Read()
	if err != nil {
		n.reread.objects = nil
		n.reread.synced.Store(false)
		logFaults(n.log, "the files of --resources were read again and have faults; nothing was changed", err)
		return
	}
	if f.Sync {
		n.reread.objects = objects
		return
	}
	n.compareFiles(ctx, objects)
}

// syncFiles applies what the files say and deletes what they said before. The
// error is for what may succeed later; a refusal is logged and final.
func (n *Node) syncFiles(ctx context.Context) error {
	f, objects := n.cfg.ResourceFiles, n.reread.objects
	n.reread.synced.Store(false)
	r, err := n.applyAsFiles(ctx, admin.ApplyRequest{
		Documents: documentsOf(f.labelled(objects)), Prune: map[string]string{AppliedBy: f.Description()}, Wait: admin.Wait{Nodes: -1},
	})
	switch {
	case err == nil:
		n.reread.synced.Store(true)
		n.log.Info("what the files of --resources say acts", append(changesSaid(r.Changes), "label", AppliedBy+"="+f.Description())...)
	case passing(err):
		return err
	default:
		logFaults(n.log, "the files of --resources were refused; nothing was changed", asFaults(err, objects))
	}
	return nil
}

// passing tells an error that the same request may not meet again. To send it
// again is safe, since it says what is to be and not what to change.
func passing(err error) bool {
	var refusal *admin.Error
	if !errors.As(err, &refusal) {
		return true
	}
	switch refusal.Code {
	case admin.NoLeader, admin.NotLeader, admin.Unavailable, admin.Deadline, admin.Busy, admin.UnknownOutcome, admin.Internal:
		return true
	}
	return false
}

// comparePatience bounds the comparison of files with the cluster.
const comparePatience = 10 * time.Second

// compareFiles says how files that are not applied differ from the cluster.
func (n *Node) compareFiles(ctx context.Context, objects []resource.Object) {
	ctx, cancel := context.WithTimeout(ctx, comparePatience)
	defer cancel()
	r, err := n.applyAsFiles(ctx, admin.ApplyRequest{Documents: documentsOf(objects), DryRun: true, Wait: admin.Wait{Nodes: -1}})
	const said = "the files of --resources were read again and not applied; penstock apply -f does that, or --resources-mode sync at each start and SIGHUP"
	if err != nil {
		logFaults(n.log, said, asFaults(err, objects))
		return
	}
	args := []any{"same", 0, "differ", ""}
	var differ []string
	for _, c := range r.Changes {
		if c.Action != admin.Unchanged {
			differ = append(differ, c.Kind+"/"+c.Name)
		}
	}
	args[1], args[3] = len(r.Changes)-len(differ), short(differ)
	n.log.Info(said, args...)
}

// applyAsFiles makes a change in the name of the files.
func (n *Node) applyAsFiles(ctx context.Context, req admin.ApplyRequest) (*admin.ApplyResult, error) {
	c, err := n.ask(ctx, admin.Principal{Name: "resources", Role: admin.RoleAdmin})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return admin.Call[admin.ApplyResult](ctx, c, admin.MethodApply, req)
}

// documentsOf gives objects in the form in which they travel.
func documentsOf(objects []resource.Object) [][]byte {
	docs := make([][]byte, len(objects))
	for i, o := range objects {
		docs[i] = resource.EncodeWithSecrets(o)
	}
	return docs
}

// changesSaid are the attributes of a log line about changes.
func changesSaid(changes []admin.Change) []any {
	counts, names := map[string]int{}, []string{}
	for _, c := range changes {
		if counts[c.Action]++; c.Action != admin.Unchanged {
			names = append(names, c.Kind+"/"+c.Name+" "+c.Action)
		}
	}
	args := []any{}
	for _, action := range []string{admin.Created, admin.Configured, admin.Deleted, admin.Unchanged} {
		args = append(args, action, counts[action])
	}
	if len(names) > 0 {
		args = append(args, "changes", short(names))
	}
	return args
}

// maxSaid bounds what one log line lists, and how many lines tell faults.
const maxSaid = 50

func short(names []string) string {
	if len(names) > maxSaid {
		names = append(slices.Clone(names[:maxSaid]), fmt.Sprintf("and %d more", len(names)-maxSaid))
	}
	return strings.Join(names, ", ")
}

// logFaults logs an error, a line for each fault.
func logFaults(log *slog.Logger, message string, err error) {
	var faults resource.Faults
	if !errors.As(err, &faults) {
		log.Error(message, "error", err)
		return
	}
	for i, f := range faults {
		if i == maxSaid {
			log.Error(message, "faults not listed", len(faults)-maxSaid)
			return
		}
		log.Error(message, "fault", f.Error())
	}
}

// Locate gives a fault that a node found the file and line of its resource;
// nil: the resource came from no file.
func Locate(o *resource.Object, f admin.Fault) resource.Fault {
	out := resource.Fault{Path: strings.TrimSpace(f.Key + " " + f.Path), Message: f.Message, Value: f.Value}
	if o != nil {
		out.File, out.Line = o.File, o.LineOf(f.Path)
		out.Path = strings.TrimSpace(o.Subject() + " " + o.PathOf(f.Path))
	}
	return out
}

// asFaults says a refusal by what is wrong with which of the objects.
func asFaults(err error, objects []resource.Object) error {
	var refusal *admin.Error
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

// startResources applies the resources of the settings, and goes on to apply
// their files when that is due.
func (n *Node) startResources(ctx context.Context) error {
	objects := n.cfg.Resources
	n.cfg.Resources = nil // they may be many, and are kept where they are changed
	if err := n.applyFirst(ctx, objects); err != nil {
		return err
	}
	n.background.Go(func() { n.keepFiles(objects) })
	return nil
}

// applyFirst applies the resources of the settings, in a cluster that has
// never had any. Where several nodes bring them, the first one's act.
func (n *Node) applyFirst(ctx context.Context, objects []resource.Object) error {
	if len(objects) == 0 {
		return nil
	}
	files := n.cfg.ResourceFiles
	given := objects
	objects = files.labelled(objects)
	if n.cluster == nil {
		_, err := n.catalog.Apply(ctx, catalog.Change{Objects: objects, Note: consensus.Note{Who: "start"}})
		return asFaults(err, given)
	}
	if !n.cfg.Init && n.cfg.Expect == 0 || n.store.Snapshot().Sequence() > 0 {
		if files != nil && !files.Sync {
			n.log.Info("the files of --resources were not applied: the cluster is not new; penstock apply -f applies them, or --resources-mode sync at each start",
				"files", strings.Join(files.Paths, ", "))
		}
		return nil
	}
	sum := sha256.Sum256([]byte("first resources of " + n.cluster.ClusterID()))
	req := admin.ApplyRequest{Documents: documentsOf(objects), Wait: admin.Wait{Nodes: -1}, ID: sum[:16]}
	c, err := n.ask(ctx, admin.Principal{Name: "start", Role: admin.RoleAdmin})
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = admin.Call[admin.ApplyResult](ctx, c, admin.MethodApply, req)
	return asFaults(err, given)
}
