package multitenant

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/kafka/filter"
)

// Settings in which a broker names others are hidden from tenants; those that
// apply to clients are not.
func TestBrokerSettingsHideOtherTenants(t *testing.T) {
	value := "User:admin;User:other"
	for version := range int16(5) {
		c := newTenant(t, "z4de").Open(filter.Info{})
		q := kmsg.NewPtrDescribeConfigsRequest()
		q.Version = version
		q.Resources = []kmsg.DescribeConfigsRequestResource{{ResourceType: kmsg.ConfigResourceTypeBroker, ResourceName: "1"}}
		_, x := sent(t, c, q)
		hidden := map[string]bool{
			"super.users": true, "listener.name.sasl.ssl.principal.mapping.rules": true, "max.connections.per.ip.overrides": true,
			"message.max.bytes": false, "not.super.users.but": false, "xsuper.users": false,
		}
		r := kmsg.NewPtrDescribeConfigsResponse()
		r.Resources = []kmsg.DescribeConfigsResponseResource{{ResourceType: kmsg.ConfigResourceTypeBroker, ResourceName: "1"}}
		for name := range hidden {
			s := kmsg.NewDescribeConfigsResponseResourceConfig()
			s.Name, s.Value = name, &value
			s.ConfigSynonyms = []kmsg.DescribeConfigsResponseResourceConfigConfigSynonym{{Name: name, Value: &value}}
			r.Resources[0].Configs = append(r.Resources[0].Configs, s)
		}
		topic := r.Resources[0]
		topic.ResourceType, topic.ResourceName = kmsg.ConfigResourceTypeTopic, "z4de-orders"
		r.Resources = append(r.Resources, topic)
		got := received(t, c, x, r).(*kmsg.DescribeConfigsResponse).Resources
		for _, s := range got[0].Configs {
			if s.IsSensitive != hidden[s.Name] || (s.Value == nil) != hidden[s.Name] {
				t.Errorf("v%d: %s is %v, sensitive %v", version, s.Name, s.Value, s.IsSensitive)
			}
			for _, synonym := range s.ConfigSynonyms {
				if (synonym.Value == nil) != hidden[s.Name] {
					t.Errorf("v%d: a synonym of %s is %v", version, s.Name, synonym.Value)
				}
			}
		}
		for _, s := range got[1].Configs {
			if s.Value == nil {
				t.Errorf("v%d: %s of a topic is hidden", version, s.Name)
			}
		}
	}
}
