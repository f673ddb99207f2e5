package cluster

import (
	"testing"
	"time"
)

func TestRequestsAreGivenUpAWhileAfterAnotherLeads(t *testing.T) {
	c := &Cluster{}
	c.succeed("a")
	given := make(chan string, 4)
	defer c.whenReplaced("a", func() { given <- "of a" })()
	c.whenReplaced("a", func() { given <- "stopped" })()
	c.succeed("")  // nobody leads for a while
	c.succeed("a") // the same again
	began := time.Now()
	c.succeed("b")
	defer c.whenReplaced("b", func() { given <- "of b" })()
	defer c.whenReplaced("a", func() { given <- "late" })()
	got := map[string]bool{<-given: true, <-given: true}
	if !got["of a"] || !got["late"] {
		t.Errorf("given up: %v", got)
	}
	if took := time.Since(began); took < lateAnswer {
		t.Errorf("given up after %v, want %v at least", took, lateAnswer)
	}
	select {
	case who := <-given:
		t.Errorf("given up: %s", who)
	default:
	}
}
