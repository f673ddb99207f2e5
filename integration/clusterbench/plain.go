package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
)

// plainCommand runs a server of plain Raft, the baseline for Penstock's writes:
// hashicorp/raft and raft-boltdb with a map as the state machine, without TLS,
// validation or history.
const plainCommand = "plain-raft-server"

// runPlain serves lines: a line is a value to store, its answer "ok INDEX" or
// "no" and a reason. A server that is not the leader refuses; clients know the
// leader.
func runPlain(args []string) error {
	flags := flag.NewFlagSet(plainCommand, flag.ContinueOnError)
	id := flags.String("id", "", "ID of the server, which is its address for Raft")
	dir := flags.String("dir", "", "folder")
	listen := flags.String("listen", "", "address for clients")
	peers := flags.String("peers", "", "IDs of all servers")
	if err := flags.Parse(args); err != nil {
		return err
	}
	r, err := openPlain(*id, *dir, strings.Split(*peers, ","))
	if err != nil {
		return err
	}
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", *listen)
	if err != nil {
		return err
	}
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			servePlain(r, c)
		}()
	}
}

// openPlain uses the settings of package consensus, with the timeouts that
// package cluster sets.
func openPlain(id, dir string, peers []string) (*raft.Raft, error) {
	store, err := raftboltdb.New(raftboltdb.Options{
		Path:                    filepath.Join(dir, "raft.db"),
		BoltOptions:             &bbolt.Options{NoFreelistSync: true, FreelistType: bbolt.FreelistMapType},
		MsgpackUseNewTimeFormat: true,
	})
	if err != nil {
		return nil, err
	}
	snapshots, err := raft.NewFileSnapshotStore(dir, 2, io.Discard)
	if err != nil {
		return nil, err
	}
	addr, err := net.ResolveTCPAddr("tcp", id)
	if err != nil {
		return nil, err
	}
	log := hclog.New(&hclog.LoggerOptions{Output: os.Stderr, Level: hclog.Warn})
	transport, err := raft.NewTCPTransportWithLogger(id, addr, 3, 10*time.Second, log)
	if err != nil {
		return nil, err
	}
	c := raft.DefaultConfig()
	c.LocalID, c.Logger = raft.ServerID(id), log
	c.HeartbeatTimeout, c.ElectionTimeout, c.LeaderLeaseTimeout = 700*time.Millisecond, 700*time.Millisecond, 525*time.Millisecond
	c.CommitTimeout = time.Second
	c.SnapshotThreshold, c.TrailingLogs, c.SnapshotInterval = 8192, 10240, 2*time.Minute
	c.BatchApplyCh, c.NoLegacyTelemetry = true, true
	r, err := raft.NewRaft(c, &plainMachine{values: map[string][]byte{}}, store, store, snapshots, transport)
	if err != nil {
		return nil, err
	}
	var servers []raft.Server
	for _, p := range peers {
		servers = append(servers, raft.Server{ID: raft.ServerID(p), Address: raft.ServerAddress(p)})
	}
	return r, r.BootstrapCluster(raft.Configuration{Servers: servers}).Error()
}

func servePlain(r *raft.Raft, c net.Conn) {
	in := bufio.NewReader(c)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		future := r.Apply(line, 10*time.Second)
		var answer string
		if err := future.Error(); err != nil {
			answer = fmt.Sprintf("no %v\n", err)
		} else {
			answer = fmt.Sprintf("ok %d\n", future.Index())
		}
		if _, err := io.WriteString(c, answer); err != nil {
			return
		}
	}
}

// plainMachine stores values under the text before their first space.
type plainMachine struct {
	mu     sync.Mutex
	values map[string][]byte
}

func (m *plainMachine) Apply(l *raft.Log) any {
	name, _, _ := strings.Cut(string(l.Data), " ")
	m.mu.Lock()
	defer m.mu.Unlock()
	m.values[name] = l.Data
	return nil
}

func (m *plainMachine) Snapshot() (raft.FSMSnapshot, error) { return noSnapshot{}, nil }
func (m *plainMachine) Restore(io.ReadCloser) error         { return errors.New("there are no snapshots") }

// noSnapshot is empty: the servers never restart.
type noSnapshot struct{}

func (noSnapshot) Persist(s raft.SnapshotSink) error { return s.Close() }
func (noSnapshot) Release()                          {}
