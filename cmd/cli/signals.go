package cli

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"penstock/node"
)

// signals holds the channels for the signals sent to a node's process.
type signals struct {
	end    chan os.Signal // SIGTERM and SIGINT: drain; a second one ends at once
	others chan os.Signal // SIGHUP, SIGUSR1, SIGUSR2 and SIGALRM, which must not end the node
}

// catchSignals catches the signals that would otherwise end a node without a
// drain or a log line.
//
// SIGHUP is caught even if the process was started with it ignored (nohup): it
// never ends a node, so closing the terminal does no harm. SIGPIPE is ignored:
// when the reader of the log goes away, the node must go on. SIGQUIT and SIGABRT
// keep Go's behaviour: they end the process and print its stacks.
func catchSignals() *signals {
	s := &signals{end: make(chan os.Signal, 2), others: make(chan os.Signal, 8)}
	signal.Notify(s.end, os.Interrupt, syscall.SIGTERM)
	signal.Notify(s.others, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM)
	signal.Ignore(syscall.SIGPIPE)
	return s
}

// stop restores the Go runtime's signal handling.
func (s *signals) stop() {
	signal.Stop(s.end)
	signal.Stop(s.others)
	signal.Reset(syscall.SIGPIPE)
}

// handle handles the signals that do not end the node, until ctx ends. started
// delivers the node once it serves.
func (s *signals) handle(ctx context.Context, log *slog.Logger, started <-chan *node.Node) {
	var n *node.Node
	early := false
	for {
		select {
		case n = <-started:
			if early {
				n.Reread()
			}
		case sig := <-s.others:
			switch {
			case sig != syscall.SIGHUP:
				log.Warn(
					"signal ignored: SIGHUP reloads files and opens those of the access log anew, SIGTERM drains",
					"signal", sig.String())
			case n == nil:
				early = true
				log.Info("SIGHUP: the node is starting; it reloads its files once it serves")
			default:
				log.Info("SIGHUP: reloading files")
				n.Reread()
			}
		case <-ctx.Done():
			return
		}
	}
}
