package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"penstock/cmd/progress"
	"penstock/node/api"
	"penstock/node/rpc"
)

func debugCommand(t *target) *cobra.Command {
	return commandGroup(&cobra.Command{
		Use:   "debug",
		Short: "Collect what helps to find a fault",
	}, debugBundleCommand(t))
}

// bundleFlags are the flags of debug bundle.
type bundleFlags struct {
	cpu   time.Duration
	since time.Duration
	force bool
}

func debugBundleCommand(t *target) *cobra.Command {
	var b bundleFlags
	var output string
	cmd := &cobra.Command{
		Use:   "bundle [FILE]",
		Short: "Save the state of all nodes to one archive",
		Long: "The archive (.tar.gz) has the state of the cluster, its resources, its metrics of the last hour, its log and audit log, and of each " +
			"node the settings, metrics, goroutines and profiles. README.md in it says what each file is, and what is missing and why: " +
			"nodes that do not answer do not stop the command.\n" +
			"It contains no keys, passwords, tokens or values of headers, but names, addresses and log lines: read it before you pass it on.\n" +
			"It is readable only by its owner, appears only once it is complete, and replaces an existing file only with --force. " +
			"FILE is penstock-debug-TIME.tar.gz by default. --timeout is how long a node may be silent. It needs the role admin.",
		Example: "  penstock debug bundle\n  penstock debug bundle --cpu 30s incident.tar.gz",
		Args:    argRange(0, 1, "[FILE]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			now := time.Now()
			name := "penstock-debug-" + now.UTC().Format("20060102-150405") + ".tar.gz"
			if len(args) > 0 {
				name = args[0]
			}
			if b.cpu < 0 || b.cpu > api.MaxDebugProfile {
				return usagef("--cpu %v: want 0s to %v", b.cpu, api.MaxDebugProfile)
			}
			if b.since < 0 {
				return usagef("--since %v: want 0s or more", b.since)
			}
			r, err := t.bundle(cmd, &b, name, now)
			if err != nil {
				return err
			}
			for _, m := range r.Missing {
				fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s is missing: %s\n", sanitize(m.Path), sanitize(m.Why))
			}
			if output == "json" {
				return printJSON(cmd.OutOrStdout(), r)
			}
			r.print(cmd.OutOrStdout())
			return nil
		},
	}
	f := cmd.Flags()
	f.DurationVar(&b.cpu, "cpu", 5*time.Second, "how long each node records a CPU profile; 0s: not at all")
	f.DurationVar(&b.since, "since", time.Hour, "age of the oldest lines of the log and the audit log")
	f.BoolVar(&b.force, "force", false, "overwrite an existing file")
	outputFlag(cmd, &output, "table", "json")
	return cmd
}

// bundleReport says what a bundle contains.
type bundleReport struct {
	File    string        `json:"file"`
	Bytes   int64         `json:"bytes"`
	Files   []bundleFile  `json:"files"`
	Missing []bundleFault `json:"missing"`
}

// bundleFile is a file of a bundle.
type bundleFile struct {
	Path  string `json:"path"`
	Bytes int    `json:"bytes"`
	About string `json:"about"`
}

// bundleFault is a file that is missing or incomplete.
type bundleFault struct {
	Path string `json:"path"`
	Why  string `json:"why"`
}

func (r *bundleReport) print(w io.Writer) {
	rows := make([][]string, len(r.Files))
	for i, f := range r.Files {
		rows[i] = []string{sanitize(f.Path), strconv.Itoa(f.Bytes), f.About}
	}
	printTable(w, []string{"FILE", "BYTES", "WHAT"}, rows)
	fmt.Fprintf(w, "%s saved: %s\n", r.File, bytesText(float64(r.Bytes)))
}

// bundle collects a bundle into a new file.
func (t *target) bundle(cmd *cobra.Command, flags *bundleFlags, name string, now time.Time) (r *bundleReport, err error) {
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err = writeNew(name, flags.force, func(f *os.File) error {
		dialing, cancel := context.WithTimeout(ctx, t.timeout)
		defer cancel()
		c, err := t.dial(dialing)
		if err != nil {
			return err
		}
		defer c.Close()
		b := &bundler{
			flags: flags, client: c, timeout: t.timeout, now: now, archive: newBundleArchive(f, now),
			bar: progress.Start(cmd.ErrOrStderr(), "collecting "+filepath.Base(name), progress.Handled),
		}
		err = b.collect(ctx)
		b.bar.Stop()
		if ctx.Err() != nil {
			err = errors.New("interrupted: nothing was saved")
		}
		if err != nil {
			return err
		}
		if r, err = b.archive.end(); err != nil {
			return err
		}
		info, err := f.Stat()
		if err != nil {
			return err
		}
		r.File, r.Bytes = name, info.Size()
		return nil
	})
	return r, err
}

// bundler collects a bundle.
type bundler struct {
	flags   *bundleFlags
	client  *rpc.Client
	timeout time.Duration
	now     time.Time
	archive *bundleArchive
	bar     *progress.Bar
}

// bundleWorkers bounds the requests at once. Each may hold a file of the bundle in memory.
const bundleWorkers = 4

// collect adds everything to the archive. Its error means that there is no bundle;
// whatever else goes wrong is in the archive's list of what is missing.
func (b *bundler) collect(ctx context.Context) error {
	members, err := callOnce[api.Members](ctx, b, api.MethodMembers, api.Empty{})
	if err != nil {
		return err // the node that was asked knows nothing
	}
	jobs := append(b.nodeJobs(*members), b.clusterJobs()...)
	return b.run(ctx, jobs)
}

// bundleJob makes one or more files of the archive. Its error ends the command.
type bundleJob struct {
	what string
	do   func(ctx context.Context) error
}

// run runs the jobs in order, bundleWorkers at once.
func (b *bundler) run(ctx context.Context, jobs []bundleJob) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	queue := make(chan bundleJob, len(jobs))
	for _, j := range jobs {
		queue <- j
	}
	close(queue)
	var workers sync.WaitGroup
	var finished atomic.Int64
	for range bundleWorkers {
		workers.Go(func() {
			for j := range queue {
				if ctx.Err() != nil {
					return
				}
				b.bar.Set(finished.Load(), int64(len(jobs)), sanitize(j.what))
				if err := j.do(ctx); err != nil {
					cancel(err)
				}
				finished.Add(1)
			}
		})
	}
	workers.Wait()
	return context.Cause(ctx)
}

// callOnce makes a request within the bundler's timeout.
func callOnce[Resp any](ctx context.Context, b *bundler, method string, req any) (*Resp, error) {
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	return rpc.Call[Resp](ctx, b.client, method, req)
}

// whyMissing explains the error of a request.
func whyMissing(err error) string {
	var refusal *api.Error
	switch {
	case errors.As(err, &refusal) && refusal.Code == api.Unknown:
		return "the node does not have it: it runs an older version, or with --dev"
	case timedOut(err):
		return "no answer in time"
	}
	return err.Error()
}
