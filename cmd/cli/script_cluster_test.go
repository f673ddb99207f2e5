package cli_test

import (
	"fmt"
	"os"
	"regexp"
	"sync/atomic"

	"github.com/rogpeppe/go-internal/testscript"

	"penstock/internal/testkit"
)

// scripts counts the scripts, so that each gets its own addresses.
var scripts atomic.Uint32

// hosts gives a script three loopback addresses of its own: $IP1 to $IP3.
func hosts(e *testscript.Env) {
	n := uint32(os.Getpid())<<5 | scripts.Add(1)&31
	for i := range 3 {
		e.Setenv(fmt.Sprintf("IP%d", i+1), fmt.Sprintf("127.%d.%d.%d", 1+n>>14%250, n>>6%256, n%63*4+1+uint32(i)))
	}
}

// poll is testkit.WaitFor for scripts.
func poll(ts *testscript.TestScript, what string, cond func() bool) {
	if !testkit.Poll(testkit.Patience, cond) {
		ts.Fatalf("still waiting for %s", what)
	}
}

// waitlog FILE PATTERN: wait until the file matches.
func waitLog(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: waitlog FILE PATTERN")
	}
	pattern := regexp.MustCompile("(?m)" + args[1])
	poll(ts, fmt.Sprintf("%s in %s", args[1], args[0]), func() bool {
		data, err := os.ReadFile(ts.MkAbs(args[0]))
		return err == nil && pattern.Match(data)
	})
}

// eventually PATTERN COMMAND...: wait until the command succeeds and its output
// matches. With !: until it succeeds and the output does not match.
func eventually(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: [!] eventually PATTERN COMMAND...")
	}
	pattern := regexp.MustCompile("(?m)" + args[0])
	poll(ts, fmt.Sprintf("%s of %q", args[0], args[1:]), func() bool {
		return ts.Exec(args[1], args[2:]...) == nil && pattern.MatchString(ts.ReadFile("stdout")) != neg
	})
}

// secret FILE NAME: set the variable to the token in the file.
func secret(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: secret FILE NAME")
	}
	token := regexp.MustCompile(`pst1\.[\w-]+`).FindString(ts.ReadFile(args[0]))
	if token == "" {
		ts.Fatalf("%s contains no token", args[0])
	}
	ts.Setenv(args[1], token)
}
