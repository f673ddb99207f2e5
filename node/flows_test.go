package node

import (
	"strings"
	"testing"
	"time"
)

// TestConnectTimesOfAServiceThatCameBack: where a connection outlived its
// service, the flow that it kept must count what comes after the service came
// back.
func TestConnectTimesOfAServiceThatCameBack(t *testing.T) {
	b := newBackend(t, "b")
	n := startNode(t, oneService(b)+`
---
kind: Listener
name: other
spec: {address: "127.0.0.1:0", service: apps}
`)
	dial(t, n.at(t, "edge")) // stays, and so does the flow from edge
	gone, _ := dial(t, n.at(t, "other"))
	gone.Close()
	series := `penstock_connect_duration_seconds_count{service="apps"}`
	waitFor(t, "both to be counted", func() bool { return n.metric(t, series) == "2" })
	for _, c := range [][2]string{{"listener", "edge"}, {"listener", "other"}, {"service", "apps"}} {
		n.mustDelete(t, c[0], c[1])
	}
	waitFor(t, "the flow from other to be forgotten", func() bool {
		n.reconciler.tidy(time.Now().Add(time.Minute))
		_, body := n.get(t, "/metrics")
		return !strings.Contains(body, `penstock_connections{listener="other"`)
	})
	n.mustApply(t, oneService(b))
	before := n.metric(t, series)
	dial(t, n.at(t, "edge"))
	waitFor(t, "a connection to be counted", func() bool { v := n.metric(t, series); return v != "" && v != before })
}
