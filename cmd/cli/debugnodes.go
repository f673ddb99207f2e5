package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"penstock/node/api"
	"penstock/node/rpc"
)

// nodeFiles say what the parts of api.DebugPart are. Others are left out.
var nodeFiles = map[string]string{
	api.DebugAbout:      "version, machine and limits of the process",
	api.DebugSettings:   "the settings that the node runs with",
	api.DebugMetrics:    "its metrics",
	api.DebugGoroutines: "what its goroutines are doing",
	api.DebugHeap:       "what holds its memory, for go tool pprof",
	api.DebugCPU:        "where its CPU time went, for go tool pprof",
}

// nodeJobs collect what each node has.
func (b *bundler) nodeJobs(members api.Members) (jobs []bundleJob) {
	seen := map[string]bool{}
	for i := range members {
		m := &members[i]
		folder := fileName(m.Name)
		if folder == "" || seen[folder] {
			folder = fileName(m.Name + "-" + m.ID)
		}
		seen[folder] = true
		jobs = append(jobs, bundleJob{"profiles of " + m.Name, func(ctx context.Context) error { return b.node(ctx, m, "nodes/"+folder) }})
	}
	return jobs
}

// node adds the files of a node.
func (b *bundler) node(ctx context.Context, m *api.Member, folder string) error {
	parts := &nodeParts{b: b, folder: folder}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silent := time.AfterFunc(b.timeout+b.flags.cpu, func() { cancel(context.DeadlineExceeded) })
	defer silent.Stop()
	err := rpc.Stream(ctx, b.client, api.MethodDebug, api.DebugRequest{Node: m.ID, CPU: b.flags.cpu}, func(p *api.DebugPart) error {
		silent.Reset(b.timeout + b.flags.cpu)
		return parts.add(p)
	})
	if cause := context.Cause(ctx); errors.Is(cause, context.DeadlineExceeded) {
		err = cause
	}
	var refusal *api.Error
	switch {
	case err == nil:
		return nil
	case parts.failed != nil:
		return parts.failed
	case errors.As(err, &refusal) && refusal.Code == api.Forbidden:
		return err
	}
	b.archive.miss(folder, fmt.Sprintf("%s (%s): %s", m.Name, m.State, whyMissing(err)))
	return nil
}

// nodeParts puts the pieces of a node's parts together.
type nodeParts struct {
	b      *bundler
	folder string
	name   string // of the present part
	data   []byte
	count  int
	failed error // why the archive cannot be written
}

// errTooLong ends the answer of a node that keeps no bound.
var errTooLong = errors.New("sent more than its share of data")

func (n *nodeParts) add(p *api.DebugPart) error {
	if n.name != p.Name {
		n.name, n.data = p.Name, nil
	}
	n.data = append(n.data, p.Data...)
	if len(n.data) > api.MaxDebugPart {
		return errTooLong
	}
	if !p.Last {
		return nil
	}
	if n.count++; n.count > api.MaxDebugParts {
		return errTooLong
	}
	about, known := nodeFiles[p.Name]
	if !known {
		return nil // of a newer version
	}
	path := n.folder + "/" + p.Name
	if p.Error != "" {
		n.b.archive.miss(path, p.Error)
	}
	if len(n.data) > 0 || p.Error == "" {
		n.failed = n.b.archive.add(path, about, n.data)
	}
	n.name, n.data = "", nil
	return n.failed
}
