package kafka

import (
	"slices"
	"testing"
)

// TestEquivalence holds what clients in this process see through proxies
// against what they see without.
func TestEquivalence(t *testing.T) {
	long(t)
	c := cluster(t)
	targets := []target{direct(c), directTLS(c), viaTCP(t, c)}
	compare(t, programs(), targets...)
}

// programs are all that run in this process.
func programs() []program { return slices.Concat(producePrograms(), groupPrograms(), adminPrograms()) }
