package cli_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"penstock/cmd/cli"
	"penstock/internal/testkit"
	"penstock/node/api"
	"penstock/node/rpc"
)

// leakChecker runs the tests and then checks for leaked goroutines.
type leakChecker struct{ m *testing.M }

func (t leakChecker) Run() int {
	code := t.m.Run()
	if code != 0 {
		return code
	}
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func TestMain(m *testing.M) {
	testscript.Main(leakChecker{m}, map[string]func(){
		"penstock": func() {
			os.Exit(cli.Run(cli.HideSecrets(os.Args)[1:], cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
		},
	})
}

// TestScripts runs the real command as the scripts in testdata say. Each
// script's node uses the folder d, so commands reach it by its socket, and
// forwards to the services $A and $B, which send their name and echo.
func TestScripts(t *testing.T) {
	a, b := service(t, "A"), service(t, "B")
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(e *testscript.Env) error {
			e.Setenv("GORACE", "atexit_sleep_ms=0") // saves a second per command
			e.Setenv("PENSTOCK_ADDR", "unix:"+filepath.Join(e.WorkDir, "d", "penstock.sock"))
			hosts(e)
			e.Setenv("A", a)
			e.Setenv("B", b)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":     exits,
			"ready":     ready,
			"expand":    expand,
			"connect":   connect,
			"waitstate": waitState,
			"survives":  survives,
			"sigterm":   func(ts *testscript.TestScript, _ bool, _ []string) { sendSignal(ts, false, []string{"TERM"}) },
			"signal":    sendSignal,

			"waitlog":    waitLog,
			"eventually": eventually,
			"secret":     secret,
		},
	})
}

// service starts a server that sends its name and echoes.
func service(t *testing.T, name string) (addr string) {
	t.Helper()
	return testkit.Serve(t, func(conn net.Conn) {
		io.WriteString(conn, name)
		io.Copy(conn, conn)
	})
}

// exits CODE COMMAND...: run a command and check its exit code.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND...")
	}
	err := ts.Exec(args[1], args[2:]...)
	got := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if want, _ := strconv.Atoi(args[0]); got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// ready: wait until the node answers.
func ready(ts *testscript.TestScript, _ bool, _ []string) {
	until(ts, "the node to answer", func(c *rpc.Client) bool {
		_, err := rpc.Call[api.Version](context.Background(), c, api.MethodVersion, api.Empty{})
		return err == nil
	})
}

// until polls the node until cond is true.
func until(ts *testscript.TestScript, what string, cond func(*rpc.Client) bool) {
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
	defer cancel()
	poll(ts, what, func() bool {
		c, err := rpc.Dial(ctx, ts.Getenv("PENSTOCK_ADDR"))
		if err != nil {
			return false
		}
		defer c.Close()
		return cond(c)
	})
}

// expand FILE...: replace environment variables in the files.
func expand(ts *testscript.TestScript, _ bool, args []string) {
	for _, name := range args {
		text := os.Expand(ts.ReadFile(name), ts.Getenv)
		ts.Check(os.WriteFile(ts.MkAbs(name), []byte(text), 0o600))
	}
}

// connect LISTENER NAME: wait until a connection to the listener reaches that
// service. With !: until connections fail.
func connect(ts *testscript.TestScript, neg bool, args []string) {
	until(ts, "listener "+args[0], func(c *rpc.Client) bool {
		s, err := rpc.Call[api.Status](context.Background(), c, api.MethodStatus, api.Empty{})
		ts.Check(err)
		for _, l := range s.Listeners {
			if l.Name == args[0] && l.State == "listening" {
				conn, err := net.Dial("tcp", l.Address)
				if err != nil {
					return neg
				}
				defer conn.Close()
				conn.SetDeadline(time.Now().Add(time.Minute))
				name := make([]byte, 1)
				_, err = io.ReadFull(conn, name)
				if neg {
					return err != nil
				}
				if string(name) != args[1] {
					ts.Fatalf("came to %q (%v), want %s", name, err, args[1])
				}
				return true
			}
		}
		return false
	})
}

// waitstate STATE: wait until the node is in that state.
func waitState(ts *testscript.TestScript, _ bool, args []string) {
	until(ts, "state "+args[0], func(c *rpc.Client) bool {
		m, err := rpc.Call[api.Members](context.Background(), c, api.MethodMembers, api.Empty{})
		return err == nil && (*m)[0].State == args[0]
	})
}

// signal SIGNAL: send the signal to the node with folder d.
func sendSignal(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: signal SIGNAL")
	}
	pid, err := strconv.Atoi(strings.TrimSpace(ts.ReadFile(filepath.Join("d", "lock"))))
	ts.Check(err)
	ts.Check(syscall.Kill(pid, unix.SignalNum("SIG"+args[0])))
}

// survives LISTENER COMMAND...: open a connection through the listener, run the
// command, and check that the connection still works.
func survives(ts *testscript.TestScript, _ bool, args []string) {
	var conn net.Conn
	until(ts, "listener "+args[0], func(c *rpc.Client) bool {
		s, err := rpc.Call[api.Status](context.Background(), c, api.MethodStatus, api.Empty{})
		ts.Check(err)
		for _, l := range s.Listeners {
			if l.Name == args[0] && l.State == "listening" {
				conn, err = net.Dial("tcp", l.Address)
				ts.Check(err)
			}
		}
		return conn != nil
	})
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Minute))
	name := make([]byte, 1)
	_, err := io.ReadFull(conn, name)
	ts.Check(err)
	ts.Check(ts.Exec(args[1], args[2:]...))
	_, err = conn.Write([]byte("!"))
	ts.Check(err)
	_, err = io.ReadFull(conn, name)
	ts.Check(err)
	if name[0] != '!' {
		ts.Fatalf("the connection echoes %q", name)
	}
}
