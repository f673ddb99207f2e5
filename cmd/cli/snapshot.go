package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"penstock/cmd/progress"
	"penstock/node/api"
	"penstock/node/files"
	"penstock/node/rpc"
)

func snapshotCommand(t *target) *cobra.Command {
	return commandGroup(&cobra.Command{
		Use:   "snapshot",
		Short: "Save all resources to a file, or restore them",
	}, snapshotSaveCommand(t), snapshotRestoreCommand(t))
}

func snapshotSaveCommand(t *target) *cobra.Command {
	var force bool
	var req api.SaveRequest
	cmd := &cobra.Command{
		Use:   "save FILE",
		Short: "Save all resources to a file",
		Long: "The file contains private keys in plain text, so that it can be restored into another cluster: protect it like the " +
			"keys. It does not contain nodes, tokens or the keys of the cluster.\n" +
			"It is readable only by its owner, appears only once it is complete, and replaces an existing file only with --force. " +
			"--timeout is how long the node may be silent.\n" +
			"If a majority of the voters is lost, --stale saves the state of the node at --addr, to be restored into a new cluster.",
		Example: "  penstock snapshot save penstock-$(date +%F).snap",
		Args:    argRange(1, 1, "FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			size, err := t.save(cmd, req, args[0], force)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s saved: %d bytes\n", args[0], size)
			return nil
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "overwrite an existing file")
	staleFlag(cmd, &req.Stale)
	return cmd
}

// save streams a snapshot into a new file.
func (t *target) save(cmd *cobra.Command, req api.SaveRequest, name string, force bool) (size int64, err error) {
	bar := progress.Start(cmd.ErrOrStderr(), "saving "+filepath.Base(name), progress.Handled)
	defer bar.Stop()
	err = writeNew(name, force, func(f *os.File) error {
		size, err = t.receive(cmd.Context(), req, f, bar)
		if err == nil && size == 0 {
			return errors.New("the node sent an empty snapshot; nothing was saved")
		}
		return err
	})
	return size, err
}

// errInterrupted ends a save by SIGINT or SIGTERM.
var errInterrupted = errors.New("interrupted; nothing was saved")

// receive writes a snapshot to w. --timeout applies to each chunk. Unlike a stream that
// is shown, one that is interrupted is a failure: it is not the whole snapshot.
func (t *target) receive(ctx context.Context, req api.SaveRequest, w io.Writer, bar *progress.Bar) (size int64, err error) {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	interrupted := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silent := time.AfterFunc(t.timeout, func() { cancel(context.DeadlineExceeded) })
	defer silent.Stop()
	c, err := t.dial(ctx)
	if err == nil {
		defer c.Close()
		err = rpc.Stream(ctx, c, api.MethodSave, req, func(c *api.Chunk) error {
			silent.Reset(t.timeout)
			n, err := w.Write(c.Data)
			size += int64(n)
			bar.Set(0, 0, bytesText(float64(size)))
			return err
		})
	}
	switch {
	case interrupted.Err() != nil:
		return 0, errInterrupted
	case ctx.Err() != nil:
		return 0, context.Cause(ctx)
	}
	return size, err
}

// uploadPartSize is the number of bytes of a snapshot sent per request.
const uploadPartSize = 1 << 20

func snapshotRestoreCommand(t *target) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "restore FILE",
		Short: "Replace all resources of the cluster with those of a snapshot",
		Long: "Resources that are not in the snapshot are deleted, on all nodes at once; established connections continue. The node " +
			"checks the whole file first and refuses one that is damaged or of an unknown format.\n" +
			"Asks for confirmation on a terminal; elsewhere it needs --yes.",
		Example: "  penstock snapshot restore penstock.snap --yes",
		Args:    argRange(1, 1, "FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := files.Open(args[0])
			if err != nil {
				return err
			}
			defer f.Close()
			if !yes {
				if err := confirm(cmd, fmt.Sprintf("This replaces all resources of the cluster with those in %s. Type yes to "+
					"continue: ", args[0])); err != nil {
					return err
				}
			}
			r, err := t.upload(cmd, f)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s restored as index %d: %d resources, %d deleted\n", args[0], r.Index, r.Resources, r.Deleted)
			w := waitFlags{want: api.WaitAll}
			return w.report(cmd.ErrOrStderr(), committed(r.Index), r.Reached)
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask for confirmation")
	return cmd
}

// upload sends a snapshot in parts; the last part triggers the restore.
func (t *target) upload(cmd *cobra.Command, file *os.File) (*api.RestoreResult, error) {
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() == 0 {
		return nil, fmt.Errorf("%s: not a snapshot: the file is empty", file.Name())
	}
	dialing, cancel := context.WithTimeout(cmd.Context(), t.timeout)
	defer cancel()
	c, err := t.dial(dialing)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	bar := progress.Start(cmd.ErrOrStderr(), "restoring "+filepath.Base(file.Name()), progress.Ends)
	defer bar.Stop()
	req := api.UploadRequest{Upload: newID()}
	part := make([]byte, uploadPartSize)
	for !req.Last {
		n, err := io.ReadFull(file, part)
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, fmt.Errorf("%s: truncated while being read: %w", file.Name(), err)
		}
		req.Data, req.Last = part[:n], req.Offset+int64(n) >= info.Size()
		bar.Set(req.Offset, info.Size(), bytesText(float64(req.Offset))+" of "+bytesText(float64(info.Size())))
		if req.Last {
			bar.Set(1, 1, "checked and applied by the node")
		}
		r, err := t.sendPart(cmd.Context(), c, &req)
		switch {
		case err != nil && req.Last && mayHaveActed(err):
			return nil, &unknownOutcomeError{err}
		case err != nil || req.Last:
			return r, err
		}
		req.Offset += int64(n)
	}
	return nil, nil // unreachable: the last part returns
}

func (t *target) sendPart(ctx context.Context, c *rpc.Client, req *api.UploadRequest) (*api.RestoreResult, error) {
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	return rpc.Call[api.RestoreResult](ctx, c, api.MethodRestore, req)
}

// confirm asks for confirmation on the terminal.
func confirm(cmd *cobra.Command, question string) error {
	in, ok := cmd.InOrStdin().(*os.File)
	if !ok || !term.IsTerminal(int(in.Fd())) {
		return usagef("%s asks for confirmation, but stdin is not a terminal; --yes skips the question", cmd.CommandPath())
	}
	fmt.Fprint(cmd.ErrOrStderr(), question)
	answer, err := bufio.NewReader(io.LimitReader(in, 1024)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if !strings.EqualFold(strings.TrimSpace(answer), "yes") {
		return errors.New("not confirmed; nothing was changed")
	}
	return nil
}
