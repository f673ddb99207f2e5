package integration

import (
	"fmt"
	"net"
	"regexp"
	"strings"
	"testing"

	"penstock/internal/testkit"
)

// top shows the cluster on a terminal, leads from a service to its endpoints, and goes on
// with another node when the one that it asks dies.
func TestTopFollowsTheClusterOnATerminal(t *testing.T) {
	t.Parallel()
	f := startCluster(t, 3)
	backend := named(t, "b")
	f.members[0].apply(serviceOnAll("shop", "9100", backend))
	for _, m := range f.members { // a connection on each node
		c, err := net.DialTimeout("tcp", m.ip+":9100", testkit.Patience)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	token := strings.TrimSpace(f.members[0].must("token", "create", "--name", "watch", "--role", "reader"))
	at := f.waitLeader()
	x := startTerminal(t, []string{"LANG=C.UTF-8", "PENSTOCK_TOKEN=" + token}, "top", "--addr", at.ip+":"+clusterPort, "--interval", "200ms")

	x.await("[1 Services]", "3 of 3 nodes", "▸ shop", "3 connections", "1/1")
	x.press("\r")
	x.await("services › shop", backend, "ENDPOINT▲")
	x.press("\r")
	x.await("services › shop › "+backend, "3 open", "AGE")
	x.press("\r")
	x.await("CONNECTION ", "TIMELINE", "accepted", "connected", "DECISION, as it is made now")
	x.press("\x1b")
	x.await("3 open")
	x.press("\x1b")
	x.await("ENDPOINT")
	x.press("\x1b")
	x.await("SERVICE")
	x.press("2")
	x.await("[2 Nodes]", "n1", "n2", "n3", "leader", "serving")
	x.press("/n2\r")
	x.await("filter: n2")
	x.press("\r")
	x.await("node n2", "1 connections")
	x.press("n") // after n2: n3
	x.await("node n3")
	x.press("n")
	x.await("cluster", "3 connections")
	x.press("?")
	x.await("any key closes the help")
	x.press("x1")
	x.await("[1 Services]")
	x.resize(50, 12)
	x.await("[1 Services] 2 Nodes  3 Listeners  4 Connections\n", "▸ shop")
	x.resize(120, 30)
	x.await("6 Problems", "BYTES 2M")

	at.kill()
	x.await(fmt.Sprintf("%s no longer answers; the numbers are from", at.name), "2 of 3 nodes", at.name+" is left out")
	x.await("2 connections")
	x.press("q")
	if out := x.wantExit(0); !strings.HasSuffix(strings.TrimSpace(out), "\x1b[?1049l") && !strings.Contains(out, "\x1b[?1049l") {
		t.Errorf("the screen from before is not restored: %.200q", out)
	}
}

// With NO_COLOR there is no colour, without UTF-8 no character beyond ASCII.
func TestTopRespectsNoColorAndTheLocale(t *testing.T) {
	t.Parallel()
	n := startNode(t, serviceOnAll("shop", "0", named(t, "b")))
	x := startTerminal(t, []string{"LC_ALL=C", "NO_COLOR=1"}, "top", "--addr", "unix:"+n.dir+"/penstock.sock")
	x.await("> shop", "CONNv")
	x.press("\x03") // Ctrl-C
	out := x.wantExit(0)
	for _, r := range out {
		if r > '~' {
			t.Errorf("%q is not ASCII", r)
		}
	}
	if colour := colours.FindString(out); colour != "" {
		t.Errorf("a colour: %q", colour)
	}
	y := startTerminal(t, []string{"TERM=dumb"}, "top", "--addr", "unix:"+n.dir+"/penstock.sock", "--interval", "100ms")
	y.await("LISTENER", "SERVICE", "node n1")
	y.press("\x03")
	if out := y.wantExit(0); strings.Contains(out, "\x1b") {
		t.Errorf("control sequences on a dumb terminal: %q", out)
	}
}

// colours are the control sequences that set a colour.
var colours = regexp.MustCompile(`\x1b\[(?:[\d;:]*;)?(?:3[0-8]|4[0-8]|9[0-7])(?:[;:][\d;:]*)?m`)
