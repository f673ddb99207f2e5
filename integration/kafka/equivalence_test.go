package kafka

import (
	"slices"
	"testing"
)

// TestEquivalence compares what Go clients see through proxies with what they
// see without.
func TestEquivalence(t *testing.T) {
	long(t)
	c := cluster(t)
	targets := []target{direct(c), directTLS(c), viaTCP(t, c)}
	comparePrograms(t, nil, targets...)
}

// comparePrograms compares the Go programs named in some; nil: all.
func comparePrograms(t *testing.T, some []string, targets ...target) {
	pick := func(all []program) []program {
		return slices.DeleteFunc(all, func(p program) bool { return some != nil && !slices.Contains(some, p.name) })
	}
	compareTogether(t, pick(slices.Concat(producePrograms(), groupPrograms())), targets...)
	compare(t, pick(adminPrograms()), targets...) // these list everything in the cluster
}
