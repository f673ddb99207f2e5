package multitenant

import (
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Users are the tenant's where they have its prefix at the brokers (principals:
// prefix). Elsewhere they are the cluster's, so that a tenant has none, nor
// quotas. Whether a user is there is not even asked of the broker.

// Errors of DescribeUserScramCredentials.
const (
	resourceNotFound  = 91
	duplicateResource = 92
)

func (c *call) describeUsersRequest(r *kmsg.DescribeUserSCRAMCredentialsRequest) error {
	if c.principals {
		for i := range r.Users {
			c.prefixID(&r.Users[i].Name)
		}
		return nil
	}
	resp := kmsg.NewPtrDescribeUserSCRAMCredentialsResponse()
	resp.Version, resp.Results = r.Version, []kmsg.DescribeUserSCRAMCredentialsResponseResult{}
	resp.ErrorMessage = new(string)
	times := make(map[string]int, len(r.Users))
	for i := range r.Users {
		times[r.Users[i].Name]++
	}
	for i := range r.Users {
		name := r.Users[i].Name
		n := times[name]
		if n == 0 {
			continue // told already
		}
		times[name] = 0
		one := kmsg.NewDescribeUserSCRAMCredentialsResponseResult()
		one.User, one.ErrorCode = name, resourceNotFound
		text := "Attempt to describe a user credential that does not exist: " + name
		if n > 1 {
			one.ErrorCode, text = duplicateResource, "Cannot describe SCRAM credentials for the same user twice in a single request: "+name
		}
		one.ErrorMessage = &text
		resp.Results = append(resp.Results, one)
	}
	c.x.Answer(resp)
	return nil
}

func (c *call) describeUsersResponse(r *kmsg.DescribeUserSCRAMCredentialsResponse) error {
	c.unprefixMessage(r.ErrorMessage)
	r.Results = retain(r.Results, func(x *kmsg.DescribeUserSCRAMCredentialsResponseResult) bool {
		c.unprefixMessage(x.ErrorMessage)
		return x.User == "" || c.tryUnprefix(&x.User)
	})
	return nil
}

// quotaUser is the type of entity of quotas that names a user.
const quotaUser = "user"

func (c *call) describeQuotasRequest(r *kmsg.DescribeClientQuotasRequest) error {
	if !c.principals {
		return nil // nothing of the answer passes
	}
	for i := range r.Components {
		if x := &r.Components[i]; x.EntityType == quotaUser {
			x.Match = mapOptional(x.Match, c.prefixID)
		}
	}
	return nil
}

// describeQuotasResponse keeps the quotas of the tenant's users; those of all
// users, and of clients by their ids, are the cluster's.
func (c *call) describeQuotasResponse(r *kmsg.DescribeClientQuotasResponse) error {
	c.unprefixMessage(r.ErrorMessage)
	r.Entries = retain(r.Entries, func(x *kmsg.DescribeClientQuotasResponseEntry) bool {
		for i := range x.Entity {
			if e := &x.Entity[i]; e.Type == quotaUser {
				if !c.principals || e.Name == nil || !strings.HasPrefix(*e.Name, c.prefix) {
					return false
				}
				name := strings.TrimPrefix(*e.Name, c.prefix)
				e.Name = &name
				return true
			}
		}
		return false
	})
	return nil
}
