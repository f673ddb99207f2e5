package kafka

import "testing"

func TestRealClusterStarts(t *testing.T) {
	c := cluster(t)
	if len(c.Brokers) != 3 {
		t.Fatalf("%d brokers", len(c.Brokers))
	}
	for _, b := range c.Brokers {
		t.Logf("broker %d: %d MB", b.ID, b.Process().RSS()>>20)
	}
}
