package multitenant

import (
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// clusterAuthorizationFailed is the protocol's error for what concerns the
// whole cluster.
const clusterAuthorizationFailed = 31

// notForTenants is what is said with it.
func notForTenants() *string { s := "This is not for tenants of the cluster."; return &s }

// named tells whether resources of a type have names of tenants.
func named(t kmsg.ConfigResourceType) bool {
	return t == kmsg.ConfigResourceTypeTopic || t == kmsg.ConfigResourceTypeGroupConfig
}

// inResource gives the name of such a resource its prefix.
func (t *tenant) inResource(kind kmsg.ConfigResourceType, name *string) {
	if kind == kmsg.ConfigResourceTypeTopic {
		t.in(name)
	} else {
		t.inID(name)
	}
}

// othersSettings are those of a broker that name principals, or addresses of
// clients and of what stands beside the cluster. A listener may have its own of
// each, whose name ends in the same way. Passwords are not told by the broker.
var othersSettings = []string{
	"super.users",
	"ssl.principal.mapping.rules",
	"sasl.kerberos.principal.to.local.rules",
	"max.connections.per.ip.overrides",
	"sasl.oauthbearer.jwks.endpoint.url",
	"sasl.oauthbearer.token.endpoint.url",
	"sasl.oauthbearer.expected.issuer",
	"sasl.oauthbearer.expected.audience",
}

// ofOthers tells whether a setting is one of them.
func ofOthers(setting string) bool {
	return slices.ContainsFunc(othersSettings, func(s string) bool {
		before, ok := strings.CutSuffix(setting, s)
		return ok && (before == "" || strings.HasSuffix(before, "."))
	})
}

// hide makes such settings of a broker sensitive ones, which have no value.
func hide(list []kmsg.DescribeConfigsResponseResourceConfig) {
	for i := range list {
		s := &list[i]
		hidden := ofOthers(s.Name)
		if hidden {
			s.Value, s.IsSensitive = nil, true
		}
		for j := range s.ConfigSynonyms {
			if synonym := &s.ConfigSynonyms[j]; hidden || ofOthers(synonym.Name) {
				synonym.Value = nil
			}
		}
	}
}

// describeConfigsRequest: brokers may be described, as clients do to learn
// what the cluster takes, but for what is others' (othersSettings; addresses of
// brokers are BrokerAddress's to hide); what clients send as metrics, and what brokers log, may not.
func (c *call) describeConfigsRequest(r *kmsg.DescribeConfigsRequest) error {
	var refused []kmsg.DescribeConfigsResponseResource
	r.Resources = keep(r.Resources, func(x *kmsg.DescribeConfigsRequestResource) bool {
		switch {
		case named(x.ResourceType):
			c.inResource(x.ResourceType, &x.ResourceName)
		case x.ResourceType != kmsg.ConfigResourceTypeBroker:
			refused = append(refused, kmsg.DescribeConfigsResponseResource{
				ErrorCode: clusterAuthorizationFailed, ErrorMessage: notForTenants(),
				ResourceType: x.ResourceType, ResourceName: x.ResourceName,
			})
			return false
		}
		return true
	})
	c.x.State = refused
	return nil
}

func (c *call) describeConfigsResponse(r *kmsg.DescribeConfigsResponse) error {
	err := each(r.Resources, func(x *kmsg.DescribeConfigsResponseResource) error {
		c.message(x.ErrorMessage)
		if named(x.ResourceType) {
			return c.out(&x.ResourceName)
		}
		hide(x.Configs)
		return nil
	})
	refused, _ := c.x.State.([]kmsg.DescribeConfigsResponseResource)
	r.Resources = append(r.Resources, refused...)
	return err
}

func (c *call) alterConfigsRequest(r *kmsg.AlterConfigsRequest) error {
	var refused []kmsg.AlterConfigsResponseResource
	r.Resources = keep(r.Resources, func(x *kmsg.AlterConfigsRequestResource) bool {
		if named(x.ResourceType) {
			c.inResource(x.ResourceType, &x.ResourceName)
			return true
		}
		refused = append(refused, kmsg.AlterConfigsResponseResource{
			ErrorCode: clusterAuthorizationFailed, ErrorMessage: notForTenants(),
			ResourceType: x.ResourceType, ResourceName: x.ResourceName,
		})
		return false
	})
	c.x.State = refused
	return nil
}

func (c *call) alterConfigsResponse(r *kmsg.AlterConfigsResponse) error {
	err := each(r.Resources, func(x *kmsg.AlterConfigsResponseResource) error {
		c.message(x.ErrorMessage)
		return c.out(&x.ResourceName)
	})
	refused, _ := c.x.State.([]kmsg.AlterConfigsResponseResource)
	r.Resources = append(r.Resources, refused...)
	return err
}

// throttles are the settings of a broker that slow a reassignment down.
var throttles = []string{
	"leader.replication.throttled.rate", "follower.replication.throttled.rate", "replica.alter.log.dirs.io.max.bytes.per.second",
}

// unthrottles tells whether all that is asked of a broker is to let go of such
// settings, as kafka-reassign-partitions --verify does at its end. A tenant has
// none, so that is done without the broker.
func unthrottles(x *kmsg.IncrementalAlterConfigsRequestResource) bool {
	return x.ResourceType == kmsg.ConfigResourceTypeBroker && !slices.ContainsFunc(x.Configs, func(o kmsg.IncrementalAlterConfigsRequestResourceConfig) bool {
		return o.Op != kmsg.IncrementalAlterConfigOpDelete || !slices.Contains(throttles, o.Name)
	})
}

func (c *call) incrementalConfigsRequest(r *kmsg.IncrementalAlterConfigsRequest) error {
	var refused []kmsg.IncrementalAlterConfigsResponseResource
	r.Resources = keep(r.Resources, func(x *kmsg.IncrementalAlterConfigsRequestResource) bool {
		if named(x.ResourceType) {
			c.inResource(x.ResourceType, &x.ResourceName)
			return true
		}
		one := kmsg.IncrementalAlterConfigsResponseResource{ResourceType: x.ResourceType, ResourceName: x.ResourceName}
		if !unthrottles(x) {
			one.ErrorCode, one.ErrorMessage = clusterAuthorizationFailed, notForTenants()
		}
		refused = append(refused, one)
		return false
	})
	c.x.State = refused
	return nil
}

func (c *call) incrementalConfigsResponse(r *kmsg.IncrementalAlterConfigsResponse) error {
	err := each(r.Resources, func(x *kmsg.IncrementalAlterConfigsResponseResource) error {
		c.message(x.ErrorMessage)
		return c.out(&x.ResourceName)
	})
	refused, _ := c.x.State.([]kmsg.IncrementalAlterConfigsResponseResource)
	r.Resources = append(r.Resources, refused...)
	return err
}

// listConfigsResponse keeps the tenant's topics and groups, and the brokers,
// which every client sees in Metadata.
func (c *call) listConfigsResponse(r *kmsg.ListConfigResourcesResponse) error {
	r.ConfigResources = keep(r.ConfigResources, func(x *kmsg.ListConfigResourcesResponseConfigResource) bool {
		switch t := kmsg.ConfigResourceType(x.Type); {
		case r.Version == 0:
			return false // of metrics clients send: v0 lists nothing else
		case named(t):
			return c.mine(&x.Name)
		default:
			return t == kmsg.ConfigResourceTypeBroker
		}
	})
	return nil
}
