// Package process runs the real binaries of Penstock and its peers for tests
// and measurements, and reads what the kernel says of them: CPU, resident
// memory, descriptors.
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
)

// A Process is one running program with all its children.
type Process struct {
	Name string
	cmd  *exec.Cmd
	out  *os.File
}

// Start runs the command, its output in a file of dir, and waits until every
// port accepts. The process dies with the one that started it.
func Start(name, dir string, argv []string, ports ...int) (*Process, error) {
	out, err := os.CreateTemp(dir, name+"-*.log")
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(argv[0], argv[1:]...) //nolint:noctx // ended by stop
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

// starters is served by a thread that does nothing else and never ends: the
// kernel ties a child's life to the thread that started it.
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
	deadline := time.Now().Add(limit)
	for {
		c, err := net.DialTimeout("tcp", Loopback(port), time.Second) //nolint:noctx // it has a timeout
		if err == nil {
			return c.Close()
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("port %d does not accept: %w", port, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// Output is the end of what the process printed.
func (p *Process) Output() string {
	text, _ := os.ReadFile(p.out.Name())
	if len(text) > 4000 {
		text = text[len(text)-4000:]
	}
	return string(text)
}

// Log is the file that holds everything the process printed.
func (p *Process) Log() string { return p.out.Name() }

// Signal sends a signal to the process itself.
func (p *Process) Signal(sig syscall.Signal) error { return p.cmd.Process.Signal(sig) }

// Wait waits for the process to end by itself.
func (p *Process) Wait() error {
	defer p.out.Close()
	return p.cmd.Wait()
}

// ExitCode waits until the process has ended by itself, and gives its exit
// code. One that takes longer than the limit is killed.
func (p *Process) ExitCode(limit time.Duration) (int, error) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = p.Wait() // the code says it
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

// Kill ends the process and its children at once, unless it has ended.
func (p *Process) Kill() {
	if p.cmd.ProcessState != nil {
		return // its number may be another process's by now
	}
	for _, pid := range p.pids() {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	_ = p.cmd.Wait()
	p.out.Close()
}

// pids are the process and its descendants.
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

// CPU is the user and system time of all threads so far. It reads the
// scheduler's own nanosecond count; a thread that ended takes its share along,
// which none of the proxies does while measured.
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

// RSS is the resident memory of all processes, in bytes.
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

// SettledRSS waits until the resident memory stops moving: a collector or an
// allocator may give back for some seconds after the last work.
func (p *Process) SettledRSS() int64 {
	last := p.RSS()
	still := 0
	for i := 0; i < 40 && still < 5; i++ {
		time.Sleep(250 * time.Millisecond)
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

// Descriptors is how many files the processes have open.
func (p *Process) Descriptors() int {
	n := 0
	for _, pid := range p.pids() {
		entries, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		n += len(entries)
	}
	return n
}

// Loopback is the port on 127.0.0.1.
func Loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// FreePorts finds n ports that nobody listens on. They are none of those that
// the kernel gives to connections and to listeners that ask for any: one that
// was free would not stay so until it is used.
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
		l, err := net.Listen("tcp", Loopback(port)) //nolint:noctx // closed below
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
