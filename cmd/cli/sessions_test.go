package cli

import (
	"strings"
	"testing"
	"time"

	"penstock/node/api"
)

// The table says what is left off, and nothing of a client reaches the terminal as it is.
func TestSessionsTable(t *testing.T) {
	since := time.Now().Add(-90 * time.Second)
	var b strings.Builder
	printSessions(&b, &api.Sessions{Total: 7, Sessions: []api.Session{
		{Node: "n1", ID: 4, User: "\x1b[2J", Service: "tidb", Endpoint: "10.0.0.7:4000", State: "transaction", Age: time.Minute,
			Cause: "left", Since: &since, Why: "in a transaction", Moves: 2},
		{Node: "n2", ID: 5, User: "app", State: "idle", Failure: "the move took too long"},
	}})
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	if len(lines) != 4 {
		t.Fatalf("printed %q", b.String())
	}
	for i, want := range map[int][]string{
		1: {"n1", `"\x1b[2J"`, "10.0.0.7:4000", "1m0s", "transaction", "left", "1m30s", "in a transaction"},
		2: {"n2", "app", "idle", "last move: the move took too long"},
		3: {"2 of 7 sessions are listed"},
	} {
		for _, word := range want {
			if !strings.Contains(lines[i], word) {
				t.Errorf("line %d is %q, without %q", i, lines[i], word)
			}
		}
	}
}

func TestMovedSessionsText(t *testing.T) {
	var b strings.Builder
	printMoved(&b, &api.MovedSessions{Asked: 9, Moved: 4, Stayed: 2, Open: 2, Closed: 1, Why: []api.MoveReason{{Reason: "in a transaction", Count: 2}}})
	want := "9 sessions asked: 4 moved, 2 stay, 2 move later, 1 have ended\n  2: in a transaction\n"
	if b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
}
