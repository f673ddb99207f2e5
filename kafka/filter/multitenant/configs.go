package multitenant

import (
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// clusterAuthorizationFailed is the protocol's error for requests about the
// whole cluster.
const clusterAuthorizationFailed = 31

// refusalMessage is the message with that error.
func refusalMessage() *string { s := "This is not available to tenants of the cluster."; return &s }

// isTenantConfig reports whether resources of a type have names of tenants.
func isTenantConfig(t kmsg.ConfigResourceType) bool {
	return t == kmsg.ConfigResourceTypeTopic || t == kmsg.ConfigResourceTypeGroupConfig
}

// prefixResource puts the prefix before the name of such a resource.
func (t *tenant) prefixResource(kind kmsg.ConfigResourceType, name *string) {
	if kind == kmsg.ConfigResourceTypeTopic {
		t.prefixTopic(name)
	} else {
		t.prefixID(name)
	}
}

// foreignSettings are settings of a broker that name principals, or addresses of
// clients and of services beside the cluster. A listener may have its own,
// whose name ends in the same way. Brokers do not tell passwords.
var foreignSettings = []string{
	"super.users",
	"ssl.principal.mapping.rules",
	"sasl.kerberos.principal.to.local.rules",
	"max.connections.per.ip.overrides",
	"sasl.oauthbearer.jwks.endpoint.url",
	"sasl.oauthbearer.token.endpoint.url",
	"sasl.oauthbearer.expected.issuer",
	"sasl.oauthbearer.expected.audience",
}

// isForeignSetting reports whether a setting is one of them.
func isForeignSetting(setting string) bool {
	return slices.ContainsFunc(foreignSettings, func(s string) bool {
		before, ok := strings.CutSuffix(setting, s)
		return ok && (before == "" || strings.HasSuffix(before, "."))
	})
}

// hideForeignSettings makes such settings of a broker sensitive, and removes
// their values.
func hideForeignSettings(list []kmsg.DescribeConfigsResponseResourceConfig) {
	for i := range list {
		s := &list[i]
		hidden := isForeignSetting(s.Name)
		if hidden {
			s.Value, s.IsSensitive = nil, true
		}
		for j := range s.ConfigSynonyms {
			if synonym := &s.ConfigSynonyms[j]; hidden || isForeignSetting(synonym.Name) {
				synonym.Value = nil
			}
		}
	}
}

// describeConfigsRequest lets tenants describe brokers, as clients do to learn
// limits, without foreignSettings (BrokerAddress hides addresses of brokers).
// Client metrics and loggers of brokers are refused.
func (c *call) describeConfigsRequest(r *kmsg.DescribeConfigsRequest) error {
	var refused []kmsg.DescribeConfigsResponseResource
	r.Resources = retain(r.Resources, func(x *kmsg.DescribeConfigsRequestResource) bool {
		switch {
		case isTenantConfig(x.ResourceType):
			c.prefixResource(x.ResourceType, &x.ResourceName)
		case x.ResourceType != kmsg.ConfigResourceTypeBroker:
			refused = append(refused, kmsg.DescribeConfigsResponseResource{
				ErrorCode: clusterAuthorizationFailed, ErrorMessage: refusalMessage(),
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
	err := forEach(r.Resources, func(x *kmsg.DescribeConfigsResponseResource) error {
		c.unprefixMessage(x.ErrorMessage)
		if isTenantConfig(x.ResourceType) {
			return c.unprefix(&x.ResourceName)
		}
		hideForeignSettings(x.Configs)
		return nil
	})
	refused, _ := c.x.State.([]kmsg.DescribeConfigsResponseResource)
	r.Resources = append(r.Resources, refused...)
	return err
}

func (c *call) alterConfigsRequest(r *kmsg.AlterConfigsRequest) error {
	var refused []kmsg.AlterConfigsResponseResource
	r.Resources = retain(r.Resources, func(x *kmsg.AlterConfigsRequestResource) bool {
		if isTenantConfig(x.ResourceType) {
			c.prefixResource(x.ResourceType, &x.ResourceName)
			return true
		}
		refused = append(refused, kmsg.AlterConfigsResponseResource{
			ErrorCode: clusterAuthorizationFailed, ErrorMessage: refusalMessage(),
			ResourceType: x.ResourceType, ResourceName: x.ResourceName,
		})
		return false
	})
	c.x.State = refused
	return nil
}

func (c *call) alterConfigsResponse(r *kmsg.AlterConfigsResponse) error {
	err := forEach(r.Resources, func(x *kmsg.AlterConfigsResponseResource) error {
		c.unprefixMessage(x.ErrorMessage)
		return c.unprefix(&x.ResourceName)
	})
	refused, _ := c.x.State.([]kmsg.AlterConfigsResponseResource)
	r.Resources = append(r.Resources, refused...)
	return err
}

// throttleSettings are the settings of a broker that slow a reassignment down.
var throttleSettings = []string{
	"leader.replication.throttled.rate", "follower.replication.throttled.rate", "replica.alter.log.dirs.io.max.bytes.per.second",
}

// onlyRemovesThrottles reports whether a request only removes such
// settings, as kafka-reassign-partitions --verify does at its end. A tenant has
// none, so that is done without the broker.
func onlyRemovesThrottles(x *kmsg.IncrementalAlterConfigsRequestResource) bool {
	return x.ResourceType == kmsg.ConfigResourceTypeBroker &&
		!slices.ContainsFunc(x.Configs, func(o kmsg.IncrementalAlterConfigsRequestResourceConfig) bool {
			return o.Op != kmsg.IncrementalAlterConfigOpDelete || !slices.Contains(throttleSettings, o.Name)
		})
}

func (c *call) incrementalConfigsRequest(r *kmsg.IncrementalAlterConfigsRequest) error {
	var refused []kmsg.IncrementalAlterConfigsResponseResource
	r.Resources = retain(r.Resources, func(x *kmsg.IncrementalAlterConfigsRequestResource) bool {
		if isTenantConfig(x.ResourceType) {
			c.prefixResource(x.ResourceType, &x.ResourceName)
			return true
		}
		one := kmsg.IncrementalAlterConfigsResponseResource{ResourceType: x.ResourceType, ResourceName: x.ResourceName}
		if !onlyRemovesThrottles(x) {
			one.ErrorCode, one.ErrorMessage = clusterAuthorizationFailed, refusalMessage()
		}
		refused = append(refused, one)
		return false
	})
	c.x.State = refused
	return nil
}

func (c *call) incrementalConfigsResponse(r *kmsg.IncrementalAlterConfigsResponse) error {
	err := forEach(r.Resources, func(x *kmsg.IncrementalAlterConfigsResponseResource) error {
		c.unprefixMessage(x.ErrorMessage)
		return c.unprefix(&x.ResourceName)
	})
	refused, _ := c.x.State.([]kmsg.IncrementalAlterConfigsResponseResource)
	r.Resources = append(r.Resources, refused...)
	return err
}

// listConfigsResponse keeps the tenant's topics and groups, and the brokers,
// which every client sees in Metadata.
func (c *call) listConfigsResponse(r *kmsg.ListConfigResourcesResponse) error {
	r.ConfigResources = retain(r.ConfigResources, func(x *kmsg.ListConfigResourcesResponseConfigResource) bool {
		switch t := kmsg.ConfigResourceType(x.Type); {
		case r.Version == 0:
			return false // of metrics clients send: v0 lists nothing else
		case isTenantConfig(t):
			return c.tryUnprefix(&x.Name)
		default:
			return t == kmsg.ConfigResourceTypeBroker
		}
	})
	return nil
}
