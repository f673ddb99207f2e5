package validate

import (
	"fmt"
	"slices"
)

// NameClaims lists the claims to a listener's names and their owners.
func (s *Set) NameClaims(listener string) (all []string) {
	group := s.names.Group(listener)
	for name, x := range group.All() {
		for ; x != nil; x = x.next {
			all = append(all, fmt.Sprint(name, x.alpn, x.owner(listener)))
		}
	}
	slices.Sort(all)
	return all
}

// IndexSizes returns the number of entries of each index.
func (s *Set) IndexSizes() map[string]int {
	return map[string]int{
		"users": s.users.Len(), "ports": tree(s.ports).Len(), "names": s.names.Len(), "certificates": s.certificateNames.Len(),
		"claims": tree(s.claims).Len(), "setCheckers": s.setCheckers.Len(),
		"identities": s.identities.Len(),
	}
}
