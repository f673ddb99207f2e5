package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"penstock/internal/testkit/process"
	"penstock/node/api"
	"penstock/node/rpc"
)

// measureWrites measures the small changes per second of 32 clients. Penstock's
// clients are spread over three nodes and wait until the node asked acts on the
// change; each change is forwarded to the leader, validated, and recorded in
// the history. The clients of plain Raft talk directly to the leader. Both
// clusters run at the same time and are loaded in turn.
func measureWrites(e *env) error {
	for _, where := range []struct {
		name, dir string
		goal      float64
	}{{"in memory", e.base, 0.8}, {"on disk", e.disk, 0}} {
		if err := writesIn(e, where.name, where.dir, where.goal); err != nil {
			return err
		}
	}
	return nil
}

func writesIn(e *env, name, dir string, goal float64) error {
	f, err := startCluster(e, plan{size: 3, dir: dir})
	if err != nil {
		return err
	}
	defer f.stop()
	p, err := startPlain(e, dir)
	if err != nil {
		return err
	}
	defer p.stop()
	loads := []struct {
		load func(time.Duration) (float64, error)
		cpu  func() time.Duration
	}{{f.writes, f.cpu}, {p.writes, p.cpu}}
	var rates, costs [2][]float64
	var ratios []float64
	for round := -1; round < e.rounds; round++ {
		var rate [2]float64
		for i := range loads {
			which := (i + max(round, 0)) % 2
			before := loads[which].cpu()
			if rate[which], err = loads[which].load(e.window); err != nil {
				return err
			}
			if round >= 0 {
				cost := float64(loads[which].cpu()-before) / 1e3 / (rate[which] * e.window.Seconds())
				rates[which], costs[which] = append(rates[which], rate[which]), append(costs[which], cost)
			}
		}
		e.say("round %d: %.0f a second, plain raft %.0f", round+1, rate[0], rate[1])
		if round >= 0 {
			ratios = append(ratios, rate[0]/rate[1])
		}
	}
	what := fmt.Sprintf("small writes by %d clients, %s", e.clients, name)
	e.note(what+", a second", "", median(rates[0]))
	e.note(what+", plain raft, a second", "", median(rates[1]))
	e.add(what+", relative to plain raft", "x", median(ratios), goal, true)
	e.note(what+", CPU of all three nodes each", "us", median(costs[0]))
	e.note(what+", plain raft, CPU of all three servers each", "us", median(costs[1]))
	return nil
}

func (f *cluster) cpu() (sum time.Duration) {
	for _, n := range f.nodes {
		sum += n.proc.CPU()
	}
	return sum
}

// turns makes each change unique.
var turns atomic.Int64

// writes returns the changes per second of the clients.
func (f *cluster) writes(d time.Duration) (float64, error) {
	return writers(f.e.clients, d, func(i int) (func() error, func(), error) {
		c, err := f.nodes[i%len(f.nodes)].connect()
		if err != nil {
			return nil, nil, err
		}
		name := fmt.Sprintf("svc-%d", i)
		return func() error {
			ctx, cancel := context.WithTimeout(f.e.ctx, 30*time.Second)
			defer cancel()
			_, err := rpc.Call[api.ApplyResult](ctx, c, api.MethodApply, api.ApplyRequest{
				Documents: [][]byte{service(name, int(turns.Add(1)))}, Wait: api.Wait{Nodes: -1},
			})
			return err
		}, func() { _ = c.Close() }, nil
	})
}

// writers runs n clients, each of which writes and waits for the answer in a
// loop, for d. It returns the total per second.
func writers(n int, d time.Duration, begin func(i int) (write func() error, end func(), err error)) (float64, error) {
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		errs  []error
		total atomic.Int64
		over  atomic.Bool
	)
	began := time.Now()
	timer := time.AfterFunc(d, func() { over.Store(true) })
	defer timer.Stop()
	for i := range n {
		write, end, err := begin(i)
		if err != nil {
			over.Store(true)
			wg.Wait()
			return 0, err
		}
		wg.Go(func() {
			defer end()
			for !over.Load() {
				if err := write(); err != nil {
					over.Store(true)
					mu.Lock()
					defer mu.Unlock()
					errs = append(errs, err)
					return
				}
				total.Add(1)
			}
		})
	}
	wg.Wait()
	return float64(total.Load()) / time.Since(began).Seconds(), errors.Join(errs...)
}

// plainCluster is three servers of plain Raft.
type plainCluster struct {
	e       *env
	servers []*process.Process
	clients []string // addresses for clients
	leader  string
	dirs    []string
}

func startPlain(e *env, dir string) (*plainCluster, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if dir, err = os.MkdirTemp(dir, "p"); err != nil {
		return nil, err
	}
	p := &plainCluster{e: e}
	prefix := freshNet()
	var ids []string
	for i := range 3 {
		ids = append(ids, fmt.Sprintf("%s%d:7000", prefix, i+1))
	}
	for i, id := range ids {
		own := filepath.Join(dir, fmt.Sprint("p", i+1))
		if err := os.Mkdir(own, 0o700); err != nil {
			return nil, err
		}
		listen := fmt.Sprintf("%s%d:7001", prefix, i+1)
		s, err := process.Start("plain", own, []string{
			self, plainCommand, "-id", id, "-dir", own,
			"-listen", listen, "-peers", strings.Join(ids, ","),
		})
		if err != nil {
			p.stop()
			return nil, err
		}
		p.servers, p.clients, p.dirs = append(p.servers, s), append(p.clients, listen), append(p.dirs, own)
	}
	err = until("plain raft to have a leader", 20*time.Second, func() error {
		for _, at := range p.clients {
			write, end, err := dialPlain(e.ctx, at, "start")
			if err != nil {
				return err
			}
			err = write()
			end()
			if err == nil {
				p.leader = at
				return nil
			}
		}
		return fmt.Errorf("nobody leads:\n%s", p.servers[0].Output())
	})
	if err != nil {
		p.stop()
		return nil, err
	}
	return p, nil
}

func (p *plainCluster) stop() {
	for i, s := range p.servers {
		s.Kill()
		_ = os.RemoveAll(p.dirs[i])
	}
}

func (p *plainCluster) cpu() (sum time.Duration) {
	for _, s := range p.servers {
		sum += s.CPU()
	}
	return sum
}

func (p *plainCluster) writes(d time.Duration) (float64, error) {
	return writers(p.e.clients, d, func(i int) (func() error, func(), error) {
		return dialPlain(p.e.ctx, p.leader, fmt.Sprintf("svc-%d", i))
	})
}

// dialPlain connects to a server; write sends it a value and waits for the
// answer.
func dialPlain(ctx context.Context, at, name string) (write func() error, end func(), err error) {
	c, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "tcp", at)
	if err != nil {
		return nil, nil, err
	}
	in := bufio.NewReader(c)
	return func() error {
		_ = c.SetDeadline(time.Now().Add(30 * time.Second))
		// Padded to the length of Penstock's log entry for the same change.
		line := fmt.Appendf(nil, "%s %s%s\n", name, service(name, int(turns.Add(1))), strings.Repeat(" ", 150))
		if _, err := c.Write(line); err != nil {
			return err
		}
		answer, err := in.ReadString('\n')
		if err == nil && !strings.HasPrefix(answer, "ok ") {
			err = fmt.Errorf("plain raft at %s: %q", at, answer)
		}
		return err
	}, func() { _ = c.Close() }, nil
}
