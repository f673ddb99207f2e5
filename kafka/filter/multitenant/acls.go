package multitenant

import (
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A tenant's "all topics" is all under its prefix: the literal "*" becomes the
// pattern of the prefix itself, which nothing else is, since an empty pattern
// is refused by every broker.

const wildcard = "*"

// bound reports whether ACLs of a type are about names of tenants.
func bound(t kmsg.ACLResourceType) bool {
	return t == kmsg.ACLResourceTypeTopic || t == kmsg.ACLResourceTypeGroup || t == kmsg.ACLResourceTypeTransactionalId
}

// pattern puts the prefix before a pattern.
func (t *tenant) pattern(name string, p kmsg.ACLResourcePatternType) (string, kmsg.ACLResourcePatternType) {
	if name == wildcard && p != kmsg.ACLResourcePatternTypePrefixed {
		return t.prefix, kmsg.ACLResourcePatternTypePrefixed
	}
	if name == "" {
		return name, p // refused by the broker, as it should be
	}
	return t.prefixed(name), p
}

// patternOut removes the prefix; false: the pattern is another tenant's.
func (t *tenant) patternOut(name string, p kmsg.ACLResourcePatternType) (string, kmsg.ACLResourcePatternType, bool) {
	if name == t.prefix && p == kmsg.ACLResourcePatternTypePrefixed {
		return wildcard, kmsg.ACLResourcePatternTypeLiteral, true
	}
	ok := t.unprefixOwn(&name)
	return name, p, ok && name != ""
}

// aclFilter is the common part of DescribeACLs and DeleteACLs.
type aclFilter struct {
	kind      kmsg.ACLResourceType
	name      *string
	pattern   kmsg.ACLResourcePatternType
	principal *string
}

// narrow makes a filter match as few foreign bindings as possible. patternOut
// finds those that it matches nevertheless.
func (t *tenant) narrow(f *aclFilter) {
	switch {
	case f.kind != kmsg.ACLResourceTypeAny && !bound(f.kind):
		nobody := t.prefix // a literal of this name cannot be made
		f.name, f.pattern = &nobody, kmsg.ACLResourcePatternTypeLiteral
	case f.name != nil && *f.name == wildcard && f.pattern == kmsg.ACLResourcePatternTypeMatch:
		name := t.prefix // found by "*" itself and by the tenant's own wildcard
		f.name = &name
	case f.name != nil:
		name, p := t.pattern(*f.name, f.pattern)
		f.name, f.pattern = &name, p
	}
	if f.principal != nil {
		p := *f.principal
		t.principal(&p)
		f.principal = &p
	}
}

func (c *call) describeACLsRequest(r *kmsg.DescribeACLsRequest) error {
	f := aclFilter{r.ResourceType, r.ResourceName, r.ResourcePatternType, r.Principal}
	c.narrow(&f)
	r.ResourceName, r.ResourcePatternType, r.Principal = f.name, f.pattern, f.principal
	return nil
}

func (c *call) describeACLsResponse(r *kmsg.DescribeACLsResponse) error {
	c.message(r.ErrorMessage)
	r.Resources = keep(r.Resources, func(x *kmsg.DescribeACLsResponseResource) (ok bool) {
		if !bound(x.ResourceType) {
			return false
		}
		x.ResourceName, x.ResourcePatternType, ok = c.patternOut(x.ResourceName, x.ResourcePatternType)
		for i := range x.ACLs {
			c.principalOut(&x.ACLs[i].Principal)
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
	r.Creations = keep(r.Creations, func(a *kmsg.CreateACLsRequestCreation) bool {
		i++
		if !bound(a.ResourceType) {
			refused[i], some = true, true
			return false
		}
		a.ResourceName, a.ResourcePatternType = c.pattern(a.ResourceName, a.ResourcePatternType)
		c.principal(&a.Principal)
		return true
	})
	if some {
		c.x.State = refused
	}
	return nil
}

func (c *call) createACLsResponse(r *kmsg.CreateACLsResponse) error {
	for i := range r.Results {
		c.message(r.Results[i].ErrorMessage)
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
			results = append(results, kmsg.CreateACLsResponseResult{ErrorCode: clusterAuthorizationFailed, ErrorMessage: notForTenants()})
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

// deletion counts how many exact filters each filter of a DeleteACLs was turned
// into.
type deletion []int

// deleteACLsRequest turns each filter that could match others' bindings into
// exact ones for those of the tenant that it matches.
func (c *call) deleteACLsRequest(r *kmsg.DeleteACLsRequest) error {
	return c.expand(r, r.Filters, nil, nil)
}

// expand works through the filters that are left.
func (c *call) expand(r *kmsg.DeleteACLsRequest, left, done []kmsg.DeleteACLsRequestFilter, counts deletion) error {
	for i := range left {
		f := left[i]
		narrowed := aclFilter{f.ResourceType, f.ResourceName, f.ResourcePatternType, f.Principal}
		c.narrow(&narrowed)
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
			found := c.exactly(resp)
			return c.expand(r, left[i+1:], append(done, found...), append(counts, len(found)))
		})
		return nil
	}
	r.Filters = done
	c.x.State = counts
	return nil
}

// exactly returns a filter for each of the tenant's bindings in an answer. Where
// there is none, or the broker refuses, it is one that matches nothing and is
// answered in the same way.
func (c *call) exactly(resp kmsg.Response) []kmsg.DeleteACLsRequestFilter {
	var list []kmsg.DeleteACLsRequestFilter
	if d, ok := resp.(*kmsg.DescribeACLsResponse); ok {
		for i := range d.Resources {
			x := &d.Resources[i]
			if _, _, mine := c.patternOut(x.ResourceName, x.ResourcePatternType); !mine || !bound(x.ResourceType) {
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
		c.message(x.ErrorMessage)
		x.MatchingACLs = keep(x.MatchingACLs, func(a *kmsg.DeleteACLsResponseResultMatchingACL) (ok bool) {
			c.message(a.ErrorMessage)
			c.principalOut(&a.Principal)
			a.ResourceName, a.ResourcePatternType, ok = c.patternOut(a.ResourceName, a.ResourcePatternType)
			return ok && bound(a.ResourceType)
		})
	}
	counts, _ := c.x.State.(deletion)
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
