package cli

import (
	"fmt"
	"strings"

	"penstock/kafka/model"
	"penstock/routing/resource"
)

// kafkaColumns returns the columns of the Kafka kinds.
func kafkaColumns(kind string) columns {
	switch kind {
	case model.KindPhysical:
		return columns{[]string{"BROKERS", "TLS", "FILTERS"}, physicalRow}
	case model.KindVirtual:
		return columns{[]string{"PHYSICAL", "BROKERS", "ENDPOINTS", "CERTIFICATE", "FILTERS"}, virtualRow}
	}
	return gatewayColumns(kind)
}

func physicalRow(o resource.Object) []string {
	p := o.Spec.(*model.PhysicalCluster)
	brokers := strings.Join(p.Bootstrap, ",") + " and others"
	if len(p.Brokers) > 0 {
		brokers = fmt.Sprint(len(p.Brokers))
	}
	tls := ""
	if p.TLS != nil {
		tls = "yes"
	}
	return []string{brokers, tls, filterNames(p.Filters)}
}

func virtualRow(o resource.Object) []string {
	v := o.Spec.(*model.VirtualCluster)
	brokers, endpoints := fmt.Sprint(len(v.Brokers.List)), []string{}
	seen := map[string]bool{}
	for i := range v.Brokers.List {
		if name := v.Brokers.List[i].EndpointRef; !seen[name] {
			seen[name] = true
			endpoints = append(endpoints, name)
		}
	}
	if d := v.Brokers.Discover; d != nil {
		brokers, endpoints = "discovered", []string{orElse(d.EndpointRef, fmt.Sprintf("ports %d,%s", d.BootstrapPort, d.BrokerPorts))}
	}
	certificate := ""
	if v.TLS != nil {
		certificate = v.TLS.CertificateRef
	}
	return []string{v.PhysicalClusterRef, brokers, strings.Join(endpoints, ","), certificate, filterNames(v.Filters)}
}

func filterNames(filters []model.Filter) string {
	names := make([]string, len(filters))
	for i := range filters {
		names[i] = filters[i].Type
	}
	return strings.Join(names, ",")
}
