package integration

import (
	"io"
	"net"
	"strings"
	"testing"

	"penstock/internal/testkit"
)

// A drain that takes its time shows on a terminal how many connections are left. The
// line is gone when the command prints its result, and when it is interrupted.
func TestDrainShowsItsProgressOnATerminal(t *testing.T) {
	t.Parallel()
	n := startNode(t, "kind: Listener\nname: l\nspec: {address: \"127.0.0.1:0\", service: s}\n---\n"+
		"kind: Service\nname: s\nspec: {endpoints: [{address: \""+named(t, "b")+"\"}]}\n")
	var held []net.Conn
	for range 2 {
		c, err := net.DialTimeout("tcp", n.addr("l"), testkit.Patience)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil { // it is relayed
			t.Fatal(err)
		}
		held = append(held, c)
	}
	drain := []string{"drain", "--over", "1h", "--wait", "--addr", "unix:" + n.dir + "/penstock.sock"}
	x := startTerminal(t, nil, drain...)
	x.await("draining n1  [                    ]  2 of 2 connections left")
	x.press("\x03")
	x.wantExit(-1) // ended by the signal
	if s := strings.TrimSpace(x.screen()); s != "n1 is draining: 2 connections to close over 1h0m0s" {
		t.Errorf("an interrupted command leaves:\n%s", s)
	}
	y := startTerminal(t, nil, drain...)
	y.await("2 of 2 connections left")
	held[0].Close()
	y.await("[==========          ]  1 of 2 connections left")
	held[1].Close()
	y.wantExit(0)
	if s := strings.TrimSpace(y.screen()); s != "n1 is draining: 2 connections to close over 1h0m0s\nn1 is drained" {
		t.Errorf("a command that is done leaves:\n%s", s)
	}
}
