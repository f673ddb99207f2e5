package balance

import "testing"

func TestSetsDistinguishMembers(t *testing.T) {
	s := setOf(0, 63, 64, setSize-1)
	for i := range setSize {
		if want := i == 0 || i == 63 || i == 64 || i == setSize-1; s.Has(i) != want {
			t.Errorf("%d: %v", i, !want)
		}
	}
	if (*Set)(nil).Has(0) || (*Set)(nil).nonEmpty() || new(Set).nonEmpty() || !s.nonEmpty() {
		t.Error("an empty set is not empty, or a set with members is")
	}
}
