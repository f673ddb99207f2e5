package api

import (
	"fmt"
	"slices"
)

// roleOrder is the order of the roles: each includes all before it.
var roleOrder = []Role{RoleNone, RoleReader, RoleOperator, RoleAdmin, RoleNode}

// May reports whether a caller of role r may call a method that requires role
// least. RoleJoin and RoleIssuer are outside roleOrder: they permit only methods
// without a required role, and joining or issuing.
func (r Role) May(least Role) bool {
	if least == RoleNone || r == least {
		return true
	}
	if least == RoleIssuer { // its methods look at the token's path themselves
		return r == RoleAdmin || r == RoleNode
	}
	if r == RoleJoin || least == RoleJoin || r == RoleIssuer {
		return false
	}
	have, need := slices.Index(roleOrder, r), slices.Index(roleOrder, least)
	return have >= 0 && need >= 0 && have >= need
}

// String describes the principal for messages and logs.
func (p Principal) String() string {
	switch {
	case p.Role == RoleNone:
		return "an unauthenticated caller"
	case p.Role == RoleNode:
		return fmt.Sprintf("the node %q", p.Name)
	case p.TokenID != "":
		return fmt.Sprintf("the token %q", p.Name)
	}
	return fmt.Sprintf("%q", p.Name)
}
