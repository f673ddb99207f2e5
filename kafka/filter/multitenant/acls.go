package multitenant

import (
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A tenant's "all topics" is all under its prefix: the literal "*" becomes the
// pattern of the prefix itself, which nothing else is, since an empty pattern
// is refused by every broker.

const wildcard = "*"

// hasTenantNames reports whether ACLs of a type are about names of tenants.
func hasTenantNames(t kmsg.ACLResourceType) bool {
	return t == kmsg.ACLResourceTypeTopic || t == kmsg.ACLResourceTypeGroup || t == kmsg.ACLResourceTypeTransactionalId
}

// prefixPattern puts the prefix before a pattern.
func (t *tenant) prefixPattern(name string, p kmsg.ACLResourcePatternType) (string, kmsg.ACLResourcePatternType) {
	if name == wildcard && p != kmsg.ACLResourcePatternTypePrefixed {
		return t.prefix, kmsg.ACLResourcePatternTypePrefixed
	}
	if name == "" {
		return name, p // refused by the broker, as it should be
	}
	return t.prefixed(name), p
}

// unprefixPattern removes the prefix; false: the pattern is another tenant's.
func (t *tenant) unprefixPattern(name string, p kmsg.ACLResourcePatternType) (string, kmsg.ACLResourcePatternType, bool) {
	if name == t.prefix && p == kmsg.ACLResourcePatternTypePrefixed {
		return wildcard, kmsg.ACLResourcePatternTypeLiteral, true
	}
	ok := t.tryUnprefix(&name)
	return name, p, ok && name != ""
}

// aclFilter is the common part of DescribeACLs and DeleteACLs.
type aclFilter struct {
	kind      kmsg.ACLResourceType
	name      *string
	pattern   kmsg.ACLResourcePatternType
	principal *string
}

// narrowFilter makes a filter match as few foreign bindings as possible.
// unprefixPattern finds those that it matches nevertheless.
func (t *tenant) narrowFilter(f *aclFilter) {
	switch {
	case f.kind != kmsg.ACLResourceTypeAny && !hasTenantNames(f.kind):
		nobody := t.prefix // a literal of this name cannot be made
		f.name, f.pattern = &nobody, kmsg.ACLResourcePatternTypeLiteral
	case f.name != nil && *f.name == wildcard && f.pattern == kmsg.ACLResourcePatternTypeMatch:
		name := t.prefix // found by "*" itself and by the tenant's own wildcard
		f.name = &name
	case f.name != nil:
		name, p := t.prefixPattern(*f.name, f.pattern)
		f.name, f.pattern = &name, p
	}
	if f.principal != nil {
		p := *f.principal
		t.prefixPrincipal(&p)
		f.principal = &p
	}
}

func (c *call) describeACLsRequest(r *kmsg.DescribeACLsRequest) error {
	f := aclFilter{r.ResourceType, r.ResourceName, r.ResourcePatternType, r.Principal}
	c.narrowFilter(&f)
	r.ResourceName, r.ResourcePatternType, r.Principal = f.name, f.pattern, f.principal
	return nil
}

func (c *call) describeACLsResponse(r *kmsg.DescribeACLsResponse) error {
	c.unprefixMessage(r.ErrorMessage)
	r.Resources = retain(r.Resources, func(x *kmsg.DescribeACLsResponseResource) (ok bool) {
		if !hasTenantNames(x.ResourceType) {
			return false
		}
		x.ResourceName, x.ResourcePatternType, ok = c.unprefixPattern(x.ResourceName, x.ResourcePatternType)
		for i := range x.ACLs {
			c.unprefixPrincipal(&x.ACLs[i].Principal)
		}
		return ok
	})
	return nil
}

// createACLsRequest refuses bindings that are not about names of tenants, and
// only those.
func (c *call) createACLsRequest(r *kmsg.CreateACLsRequest) error {
	refused := make([]bool, len(r.Creations))
	some := false
	i := -1
	r.Creations = retain(r.Creations, func(a *kmsg.CreateACLsRequestCreation) bool {
		i++
		if !hasTenantNames(a.ResourceType) {
			refused[i], some = true, true
			return false
		}
		a.ResourceName, a.ResourcePatternType = c.prefixPattern(a.ResourceName, a.ResourcePatternType)
		c.prefixPrincipal(&a.Principal)
		return true
	})
	if some {
		c.x.State = refused
	}
	return nil
}

func (c *call) createACLsResponse(r *kmsg.CreateACLsResponse) error {
	for i := range r.Results {
		c.unprefixMessage(r.Results[i].ErrorMessage)
	}
	refused, _ := c.x.State.([]bool)
	if refused == nil {
		return nil
	}
	results := make([]kmsg.CreateACLsResponseResult, 0, len(refused))
	rest := r.Results
	for _, is := range refused {
		switch {
		case is:
			results = append(results, kmsg.CreateACLsResponseResult{ErrorCode: clusterAuthorizationFailed, ErrorMessage: refusalMessage()})
		case len(rest) > 0:
			results = append(results, rest[0])
			rest = rest[1:]
		}
	}
	r.Results = results
	return nil
}

// exact reports whether a filter can only match bindings of one pattern, which is
// the tenant's. Of all types it could match what is not about tenants: with the
// prefix "kafka-" the name "cluster" is that of the cluster itself.
func (f *aclFilter) exact() bool {
	return f.kind != kmsg.ACLResourceTypeAny && f.name != nil &&
		(f.pattern == kmsg.ACLResourcePatternTypeLiteral || f.pattern == kmsg.ACLResourcePatternTypePrefixed)
}

// expandedCounts counts how many exact filters each filter of a DeleteACLs was
// turned into.
type expandedCounts []int

// deleteACLsRequest turns each filter that could match others' bindings into
// exact ones for those of the tenant that it matches.
func (c *call) deleteACLsRequest(r *kmsg.DeleteACLsRequest) error {
	return c.expandFilters(r, r.Filters, nil, nil)
}

// expandFilters works through the filters that are left.
func (c *call) expandFilters(r *kmsg.DeleteACLsRequest, left, done []kmsg.DeleteACLsRequestFilter, counts expandedCounts) error {
	for i := range left {
		f := left[i]
		narrowed := aclFilter{f.ResourceType, f.ResourceName, f.ResourcePatternType, f.Principal}
		c.narrowFilter(&narrowed)
		f.ResourceName, f.ResourcePatternType, f.Principal = narrowed.name, narrowed.pattern, narrowed.principal
		if narrowed.exact() {
			done, counts = append(done, f), append(counts, 1)
			continue
		}
		describe := kmsg.NewPtrDescribeACLsRequest()
		describe.Version = r.Version
		describe.ResourceType, describe.ResourceName, describe.ResourcePatternType = f.ResourceType, f.ResourceName, f.ResourcePatternType
		describe.Principal, describe.Host, describe.Operation, describe.PermissionType = f.Principal, f.Host, f.Operation, f.PermissionType
		c.x.Ask(describe, func(resp kmsg.Response, err error) error {
			if err != nil {
				return err
			}
			found := c.exactFilters(resp)
			return c.expandFilters(r, left[i+1:], append(done, found...), append(counts, len(found)))
		})
		return nil
	}
	r.Filters = done
	c.x.State = counts
	return nil
}

// exactFilters returns a filter for each of the tenant's bindings in an answer.
// Where there is none, or the broker refuses, it is one that matches nothing
// and is answered in the same way.
func (c *call) exactFilters(resp kmsg.Response) []kmsg.DeleteACLsRequestFilter {
	var list []kmsg.DeleteACLsRequestFilter
	if d, ok := resp.(*kmsg.DescribeACLsResponse); ok {
		for i := range d.Resources {
			x := &d.Resources[i]
			if _, _, mine := c.unprefixPattern(x.ResourceName, x.ResourcePatternType); !mine || !hasTenantNames(x.ResourceType) {
				continue
			}
			for j := range x.ACLs {
				a := &x.ACLs[j]
				f := kmsg.NewDeleteACLsRequestFilter()
				f.ResourceType, f.ResourceName, f.ResourcePatternType = x.ResourceType, &x.ResourceName, x.ResourcePatternType
				f.Principal, f.Host, f.Operation, f.PermissionType = &a.Principal, &a.Host, a.Operation, a.PermissionType
				list = append(list, f)
			}
		}
	}
	if len(list) == 0 {
		f := kmsg.NewDeleteACLsRequestFilter()
		nobody := c.prefix
		f.ResourceType, f.ResourceName, f.ResourcePatternType = kmsg.ACLResourceTypeTopic, &nobody, kmsg.ACLResourcePatternTypeLiteral
		f.Operation, f.PermissionType = kmsg.ACLOperationAny, kmsg.ACLPermissionTypeAny
		list = append(list, f)
	}
	return list
}

func (c *call) deleteACLsResponse(r *kmsg.DeleteACLsResponse) error {
	for i := range r.Results {
		x := &r.Results[i]
		c.unprefixMessage(x.ErrorMessage)
		x.MatchingACLs = retain(x.MatchingACLs, func(a *kmsg.DeleteACLsResponseResultMatchingACL) (ok bool) {
			c.unprefixMessage(a.ErrorMessage)
			c.unprefixPrincipal(&a.Principal)
			a.ResourceName, a.ResourcePatternType, ok = c.unprefixPattern(a.ResourceName, a.ResourcePatternType)
			return ok && hasTenantNames(a.ResourceType)
		})
	}
	counts, _ := c.x.State.(expandedCounts)
	rest, merged := r.Results, make([]kmsg.DeleteACLsResponseResult, 0, len(counts))
	for _, n := range counts {
		if n == 0 || n > len(rest) {
			break // the broker refused as a whole
		}
		one := rest[0]
		for _, more := range rest[1:n] {
			one.MatchingACLs = append(one.MatchingACLs, more.MatchingACLs...)
			if one.ErrorCode == 0 {
				one.ErrorCode, one.ErrorMessage = more.ErrorCode, more.ErrorMessage
			}
		}
		merged, rest = append(merged, one), rest[n:]
	}
	r.Results = merged
	return nil
}
