package cli

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"penstock/node"
)

// signals are what the process of a node is sent.
type signals struct {
	end    chan os.Signal // SIGTERM and SIGINT: drain; a second one ends at once
	others chan os.Signal // what would end the process without a drain
}

// listen takes the signals that would end a node without a drain or a word.
//
// SIGHUP is taken also where the process was started with it ignored (nohup):
// it never ends a node, so a terminal that closes does no harm. SIGPIPE is
// ignored: when the reader of the log goes away, the node must go on. SIGQUIT
// and SIGABRT stay as Go has them: they end the process and print its stacks.
func listen() *signals {
	s := &signals{end: make(chan os.Signal, 2), others: make(chan os.Signal, 8)}
	signal.Notify(s.end, os.Interrupt, syscall.SIGTERM)
	signal.Notify(s.others, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM)
	signal.Ignore(syscall.SIGPIPE)
	return s
}

// stop gives the signals back to the Go runtime.
func (s *signals) stop() {
	signal.Stop(s.end)
	signal.Stop(s.others)
	signal.Reset(syscall.SIGPIPE)
}

// attend acts on the signals that do not end the node until ctx ends. started
// gives the node when it serves.
func (s *signals) attend(ctx context.Context, log *slog.Logger, started <-chan *node.Node) {
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
				log.Warn("signal ignored: logs go to stderr, so there is no file to reopen; SIGHUP reads files again, SIGTERM drains", "signal", sig.String())
			case n == nil:
				early = true
				log.Info("SIGHUP: the node is starting; it reads its files again as soon as it serves")
			default:
				log.Info("SIGHUP: reading files again")
				n.Reread()
			}
		case <-ctx.Done():
			return
		}
	}
}
