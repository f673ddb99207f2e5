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
// thread that starts them (PR_SET_PDEATHSIG), so one locked thread starts them
// all.
type spawner struct{ tasks chan func() }

func newSpawner() *spawner {
	s := &spawner{tasks: make(chan func())}
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with close
		for f := range s.tasks {
			f()
		}
	}()
	return s
}

// close ends the thread, which kills the remaining processes.
func (s *spawner) close() { close(s.tasks) }

// process is a started process.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended
}

// start runs a command in its own process group, so that Ctrl-C reaches only
// the demo, which stops the processes in order.
func (s *spawner) start(cmd *exec.Cmd) (*process, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	started := make(chan error)
	s.tasks <- func() { started <- cmd.Start() }
	if err := <-started; err != nil {
		return nil, err
	}
	return newProcess(cmd), nil
}

// newProcess waits for a started command in the background.
func newProcess(cmd *exec.Cmd) *process {
	p := &process{cmd: cmd, done: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // cmd.ProcessState has the result
		close(p.done)
	}()
	return p
}

// stop sends SIGTERM, and kills the process if it does not end within limit.
func (p *process) stop(limit time.Duration) error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // may have ended
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
		p.kill()
		return fmt.Errorf("did not stop within %v of SIGTERM", limit)
	}
	// A process that has just started may not handle signals yet.
	status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if p.cmd.ProcessState.Success() || ok && status.Signal() == syscall.SIGTERM {
		return nil
	}
	return errors.New(p.cmd.ProcessState.String())
}

// kill sends SIGKILL and waits for the process.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // may have ended
	<-p.done
}

// folderPrefix is the name prefix of the demo's folders.
const folderPrefix = "penstock-demo-"

// sweeper is a process that outlives this one, however it ends, and removes its
// folder.
type sweeper struct {
	process *process
	hold    *os.File // keeps the folder until closed
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
	return &sweeper{process: newProcess(cmd), hold: w}, nil
}

// sweep removes the folder now.
func (s *sweeper) sweep() {
	s.hold.Close()
	<-s.process.done
}

// Sweep reads in until the demo that holds the other end exits, and then
// removes the demo's folder.
func Sweep(in io.Reader, dir string) error {
	if filepath.Dir(dir) != filepath.Clean(os.TempDir()) || !strings.HasPrefix(filepath.Base(dir), folderPrefix) {
		return fmt.Errorf("%s is not a demo folder", dir)
	}
	signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	if _, err := io.Copy(io.Discard, in); err != nil {
		return err
	}
	// Killed nodes may still be writing.
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

// environment returns this process's environment without PENSTOCK_ variables,
// which are meant for other nodes.
func environment() []string {
	var env []string
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "PENSTOCK_") {
			env = append(env, e)
		}
	}
	return env
}
