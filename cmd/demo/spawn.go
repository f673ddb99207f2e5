package demo

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// spawner starts processes that die with this one. The kernel ties them to the
// thread that starts them, so there is one thread that does nothing else.
type spawner struct{ tasks chan func() }

func newSpawner() *spawner {
	s := &spawner{tasks: make(chan func())}
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with close
		for f := range s.tasks {
			f()
		}
	}()
	return s
}

// close kills what still runs.
func (s *spawner) close() { close(s.tasks) }

// process is one that runs or has run.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
}

// start runs a command, out of reach of the terminal's Ctrl-C: that one is for
// the demo, which stops them in order.
func (s *spawner) start(cmd *exec.Cmd) (*process, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	started := make(chan error)
	s.tasks <- func() { started <- cmd.Start() }
	if err := <-started; err != nil {
		return nil, err
	}
	return watched(cmd), nil
}

// watched is a command that has started.
func watched(cmd *exec.Cmd) *process {
	p := &process{cmd: cmd, done: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // cmd.ProcessState says what happened
		close(p.done)
	}()
	return p
}

// stop asks the process to end, and kills it when it takes too long.
func (p *process) stop(limit time.Duration) error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
		p.kill()
		return fmt.Errorf("did not end within %v of SIGTERM", limit)
	}
	// One that had only just begun to run may not listen to signals yet.
	status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if p.cmd.ProcessState.Success() || ok && status.Signal() == syscall.SIGTERM {
		return nil
	}
	return errors.New(p.cmd.ProcessState.String())
}

// kill ends the process with SIGKILL and waits for it.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.done
}

// folderPrefix is how the names of the demo's folders begin.
const folderPrefix = "penstock-demo-"

// sweeper is a process that outlives this one, whatever ends it, and takes its
// folder away.
type sweeper struct {
	process *process
	hold    *os.File // open as long as the folder is needed
}

func newSweeper(exe, dir string) (*sweeper, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	cmd := exec.Command(exe, "demo", "--sweep", dir) //nolint:noctx // it ends when the pipe does
	cmd.Stdin, cmd.Env = r, environment()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		w.Close()
		return nil, err
	}
	return &sweeper{process: watched(cmd), hold: w}, nil
}

// sweep lets it do its work now.
func (s *sweeper) sweep() {
	s.hold.Close()
	<-s.process.done
}

// Sweep waits for the end of what it reads, which is that of the demo that
// started it, and removes the demo's folder.
func Sweep(in io.Reader, dir string) error {
	if filepath.Dir(dir) != filepath.Clean(os.TempDir()) || !strings.HasPrefix(filepath.Base(dir), folderPrefix) {
		return fmt.Errorf("%s is no folder of a demo", dir)
	}
	signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	if _, err := io.Copy(io.Discard, in); err != nil {
		return err
	}
	// Nodes that were killed may be about to end, and write meanwhile.
	var err error
	for range 100 {
		if err = os.RemoveAll(dir); err == nil {
			if _, gone := os.Stat(dir); errors.Is(gone, os.ErrNotExist) {
				break
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	return err
}

// environment is this process's own, without settings that a user has for
// other nodes.
func environment() []string {
	var env []string
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "PENSTOCK_") {
			env = append(env, e)
		}
	}
	return env
}
