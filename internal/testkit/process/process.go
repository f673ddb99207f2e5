// Package process runs the binaries of Penstock and its peers for tests and
// measurements, and reads their CPU time, resident memory and descriptors from
// /proc.
package process

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"penstock/internal/testkit"
)

// A Process is a running program with all its descendants.
type Process struct {
	Name string
	cmd  *exec.Cmd
	out  *os.File
}

// Start runs argv with its output in a file of dir, and waits until every port
// accepts connections. The process dies with its parent.
func Start(name, dir string, argv []string, ports ...int) (*Process, error) {
	out, err := os.CreateTemp(dir, name+"-*.log")
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := start(cmd); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	p := &Process{Name: name, cmd: cmd, out: out}
	for _, port := range ports {
		if err := WaitPort(port, 20*time.Second); err != nil {
			text := p.Output()
			p.Kill()
			return nil, fmt.Errorf("%s: %w\n%s", name, err, text)
		}
	}
	return p, nil
}

// starters runs tasks on a locked thread that never ends: the kernel ties a
// child's life to the thread that started it (PR_SET_PDEATHSIG).
var starters = sync.OnceValue(func() chan<- func() {
	tasks := make(chan func())
	go func() {
		runtime.LockOSThread()
		for task := range tasks {
			task()
		}
	}()
	return tasks
})

func start(cmd *exec.Cmd) error {
	result := make(chan error)
	starters() <- func() { result <- cmd.Start() }
	return <-result
}

// WaitPort waits until the port accepts a connection.
func WaitPort(port int, limit time.Duration) error {
	var last error
	if !testkit.Poll(limit, func() bool {
		c, err := net.DialTimeout("tcp", Loopback(port), time.Second)
		if err == nil {
			c.Close()
		}
		last = err
		return err == nil
	}) {
		return fmt.Errorf("port %d does not accept: %w", port, last)
	}
	return nil
}

// Output returns the last 4000 bytes that the process printed.
func (p *Process) Output() string {
	text, _ := os.ReadFile(p.out.Name())
	if len(text) > 4000 {
		text = text[len(text)-4000:]
	}
	return string(text)
}

// Log returns the path of the file that holds the whole output.
func (p *Process) Log() string { return p.out.Name() }

// Signal sends a signal to the process itself.
func (p *Process) Signal(sig syscall.Signal) error { return p.cmd.Process.Signal(sig) }

// Wait waits for the process to end by itself.
func (p *Process) Wait() error {
	defer p.out.Close()
	return p.cmd.Wait()
}

// ExitCode waits until the process ends by itself and returns its exit code. It
// kills a process that takes longer than limit.
func (p *Process) ExitCode(limit time.Duration) (int, error) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = p.Wait() // ProcessState holds the result
	}()
	select {
	case <-ended:
		return p.cmd.ProcessState.ExitCode(), nil
	case <-time.After(limit):
		_ = p.cmd.Process.Kill()
		<-ended
		return -1, fmt.Errorf("%s did not end within %v", p.Name, limit)
	}
}

// Kill kills the process and its descendants, unless it has ended.
func (p *Process) Kill() {
	if p.cmd.ProcessState != nil {
		return // the PID may have been reused
	}
	for _, pid := range p.pids() {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	_ = p.cmd.Wait()
	p.out.Close()
}

// pids returns the PIDs of the process and its descendants.
func (p *Process) pids() []int {
	all := []int{p.cmd.Process.Pid}
	for i := 0; i < len(all); i++ {
		lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", all[i]))
		for _, list := range lists {
			text, _ := os.ReadFile(list)
			for _, f := range strings.Fields(string(text)) {
				if pid, err := strconv.Atoi(f); err == nil {
					all = append(all, pid)
				}
			}
		}
	}
	return all
}

// CPU returns the user and system time of all threads so far, from the
// scheduler's nanosecond counters. The time of threads that have ended is lost;
// no measured proxy ends threads.
func (p *Process) CPU() time.Duration {
	var sum time.Duration
	for _, pid := range p.pids() {
		stats, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
		for _, s := range stats {
			text, _ := os.ReadFile(s)
			if f := bytes.Fields(text); len(f) > 0 {
				n, _ := strconv.ParseInt(string(f[0]), 10, 64)
				sum += time.Duration(n)
			}
		}
	}
	return sum
}

// RSS returns the resident memory of all processes, in bytes.
func (p *Process) RSS() int64 {
	var sum int64
	for _, pid := range p.pids() {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
		if f := strings.Fields(string(text)); len(f) > 1 {
			pages, _ := strconv.ParseInt(f[1], 10, 64)
			sum += pages * int64(os.Getpagesize())
		}
	}
	return sum
}

// SettledRSS waits, for at most 20 seconds, until the resident memory has been
// stable for five: a garbage collector or an allocator may return memory some
// seconds after the last work, and be still until then.
func (p *Process) SettledRSS() int64 {
	last := p.RSS()
	still := 0
	sample := time.NewTicker(250 * time.Millisecond)
	defer sample.Stop()
	for i := 0; i < 80 && still < 20; i++ {
		<-sample.C
		now := p.RSS()
		if d := now - last; d < 128<<10 && d > -(128<<10) {
			still++
		} else {
			still = 0
		}
		last = now
	}
	return last
}

// Descriptors returns the number of open files of all processes.
func (p *Process) Descriptors() int {
	n := 0
	for _, pid := range p.pids() {
		entries, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		n += len(entries)
	}
	return n
}

// Loopback returns the address of a port on 127.0.0.1.
func Loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// FreePorts returns n free ports. It avoids the ephemeral range: the kernel
// could assign a port from it to another socket before it is used.
func FreePorts(n int) ([]int, error) {
	const lowest, highest, tries = 12000, 32000, 1000
	var ports []int
	var held []net.Listener
	defer func() {
		for _, l := range held {
			l.Close()
		}
	}()
	var last error
	for range tries {
		if len(ports) == n {
			break
		}
		port := lowest + rand.IntN(highest-lowest)
		l, err := net.Listen("tcp", Loopback(port))
		if err != nil {
			last = err
			continue
		}
		held = append(held, l)
		ports = append(ports, port)
	}
	if len(ports) < n {
		return nil, fmt.Errorf("%d of %d ports are free: %w", len(ports), n, last)
	}
	return ports, nil
}

// Pid returns the number of the process.
func (p *Process) Pid() int { return p.cmd.Process.Pid }
