package dataplane

import (
	"strings"
	"testing"
	"time"

	"penstock/internal/testkit"
	"penstock/node/nodetest"
)

func TestOpenConnectionsAreLoggedPeriodically(t *testing.T) {
	b := nodetest.NewBackend(t, "b")
	n := start(t, nodetest.OneService(b), func(c *Config) { c.AccessAll = true })
	conn, _ := nodetest.Dial(t, n.at(t, "edge"))
	nodetest.Echo(t, conn)
	n.logOpen(time.Now(), time.Hour)
	n.logOpen(time.Now(), 0)
	testkit.WaitFor(t, "the line", func() bool { return strings.Contains(n.lines.String(), `msg="connection open"`) })
	want := "service=apps endpoint=" + b.At() + " in=5 out=7"
	if got := n.lines.String(); strings.Count(got, `msg="connection open"`) != 1 || !strings.Contains(got, want) {
		t.Errorf("logged\n%swant one line with %s", got, want)
	}
}
