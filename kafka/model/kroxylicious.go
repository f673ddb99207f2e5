package model

import (
	"slices"
	"strings"

	yaml "go.yaml.in/yaml/v3"

	"penstock/routing/resource"
	"penstock/routing/resource/codec"
)

// Foreign are the formats of others that are taken as they are: Kroxylicious'
// document of endpoints, virtualClusters and physicalClusters, as the proposal
// for them describes it, and the configuration file of its releases (see
// release). The document becomes
//
//	endpoints[]          Listener, with protocol kafka
//	virtualClusters[]    VirtualCluster
//	physicalClusters[]   PhysicalCluster
//	tls {key, cert}      Certificate, named for the cluster, CLUSTER.BROKER for
//	                     a broker, and with .client behind for physical ones
//
// Keys and certificates are PEM or the files that hold it. What it does not
// know it leaves where it is, so that decoding tells of it.
func Foreign() []codec.Foreign {
	return []codec.Foreign{{Is: isRelease, Report: convertRelease},
		{Is: isKroxylicious, Convert: func(root *yaml.Node, fault func(n *yaml.Node, path, message string, value any)) []*yaml.Node {
			k := &kroxylicious{fault: fault}
			k.document(root)
			return slices.Concat(k.listeners, k.certificates, k.physical, k.virtual)
		}}}
}

func isKroxylicious(root *yaml.Node) bool {
	for i := 0; i+1 < len(root.Content); i += 2 {
		switch root.Content[i].Value {
		case "endpoints", "virtualClusters", "physicalClusters":
			return true
		}
	}
	return false
}

// kroxylicious converts one document.
type kroxylicious struct {
	fault func(n *yaml.Node, path, message string, value any)

	listeners, certificates, physical, virtual []*yaml.Node
}

func (k *kroxylicious) document(root *yaml.Node) {
	seen := map[string]bool{}
	for i := 0; i+1 < len(root.Content); i += 2 {
		key, value := root.Content[i], root.Content[i+1]
		var each func(n *yaml.Node, path string)
		switch key.Value {
		case "endpoints":
			each = k.endpoint
		case "virtualClusters":
			each = k.virtualCluster
		case "physicalClusters":
			each = k.physicalCluster
		default:
			k.fault(key, key.Value, "unknown field; known fields are endpoints, virtualClusters, physicalClusters", nil)
			continue
		}
		if seen[key.Value] {
			k.fault(key, key.Value, "duplicate key", nil)
			continue
		}
		seen[key.Value] = true
		k.list(value, key.Value, each)
	}
}

// list calls each with the mappings of a list.
func (k *kroxylicious) list(n *yaml.Node, path string, each func(n *yaml.Node, path string)) {
	if n.Kind != yaml.SequenceNode {
		k.fault(n, path, "must be a list", nil)
		return
	}
	for i, item := range n.Content {
		at := resource.Item(path, i)
		if item.Kind != yaml.MappingNode {
			k.fault(item, at, "must be a mapping", nil)
			continue
		}
		each(item, at)
	}
}

// yamlMapping is a mapping in the making.
type yamlMapping struct{ n *yaml.Node }

func newYAMLMapping(from *yaml.Node) yamlMapping {
	return yamlMapping{&yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: from.Line}}
}

func (o yamlMapping) put(key *yaml.Node, name string, value *yaml.Node) {
	o.n.Content = append(o.n.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: name, Line: key.Line}, value)
}

func stringNode(from *yaml.Node, s string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s, Line: from.Line}
}

// resourceNode is a resource in the making; the name is the document's own, if
// it has one.
func resourceNode(from *yaml.Node, kind string, name *yaml.Node, spec yamlMapping) *yaml.Node {
	o := newYAMLMapping(from)
	o.put(from, "kind", stringNode(from, kind))
	if name != nil {
		o.put(name, "name", name)
	}
	o.put(from, "spec", spec.n)
	return o.n
}

// child finds the value of a key.
func child(n *yaml.Node, key string) *yaml.Node {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

// eachPair calls each with the pairs of a mapping but for the name.
func eachPair(n *yaml.Node, each func(key, value *yaml.Node)) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value != "name" {
			each(n.Content[i], n.Content[i+1])
		}
	}
}

// nameOf is the name of a mapping as a text.
func nameOf(n *yaml.Node) string {
	if name := child(n, "name"); name != nil {
		return name.Value
	}
	return ""
}

func (k *kroxylicious) endpoint(n *yaml.Node, path string) {
	spec := newYAMLMapping(n)
	spec.put(n, "protocol", stringNode(n, "kafka"))
	typed := false
	eachPair(n, func(key, value *yaml.Node) {
		switch key.Value {
		case "bindAddress":
			spec.put(key, "address", value)
		case "type":
			typed = true
			switch value.Value {
			case "TLS":
				spec.put(key, "tls", newYAMLMapping(value).n)
			case "PLAIN":
			default:
				k.fault(value, path+".type", "must be PLAIN or TLS", value.Value)
			}
		default:
			spec.put(key, key.Value, value)
		}
	})
	if !typed {
		k.fault(n, path+".type", "is required: PLAIN or TLS", nil)
	}
	k.listeners = append(k.listeners, resourceNode(n, kindListener, child(n, "name"), spec))
}

func (k *kroxylicious) virtualCluster(n *yaml.Node, path string) {
	spec, name := newYAMLMapping(n), nameOf(n)
	eachPair(n, func(key, value *yaml.Node) {
		switch {
		case key.Value == "upstreamClusterRef":
			spec.put(key, "physicalClusterRef", value)
		case key.Value == "tls":
			spec.put(key, "tls", k.clientSideTLS(value, name))
		case key.Value == "brokers" && value.Kind == yaml.SequenceNode:
			list := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Line: value.Line}
			k.list(value, path+".brokers", func(n *yaml.Node, _ string) {
				list.Content = append(list.Content, k.virtualBroker(n, name))
			})
			spec.put(key, "brokers", list)
		default:
			spec.put(key, key.Value, value)
		}
	})
	k.virtual = append(k.virtual, resourceNode(n, KindVirtual, child(n, "name"), spec))
}

func (k *kroxylicious) virtualBroker(n *yaml.Node, cluster string) *yaml.Node {
	b := newYAMLMapping(n)
	if name := child(n, "name"); name != nil {
		b.put(name, "name", name)
	}
	eachPair(n, func(key, value *yaml.Node) {
		switch key.Value {
		case "upstreamBrokerRef":
			b.put(key, "physicalBrokerRef", value)
		case "tls":
			b.put(key, "tls", k.clientSideTLS(value, cluster+"."+nameOf(n)))
		default:
			b.put(key, key.Value, value)
		}
	})
	return b.n
}

// clientSideTLS converts the key and certificate that clients are shown.
func (k *kroxylicious) clientSideTLS(n *yaml.Node, name string) *yaml.Node {
	if n.Kind != yaml.MappingNode {
		return n // reported when it is decoded
	}
	tls := newYAMLMapping(n)
	k.certificate(n, tls, name)
	return tls.n
}

// certificate makes a Certificate of a key and certificate, and refers to it in
// tls, with all other fields.
func (k *kroxylicious) certificate(n *yaml.Node, tls yamlMapping, name string) {
	spec := newYAMLMapping(n)
	tls.put(n, "certificateRef", stringNode(n, name))
	eachPair(n, func(key, value *yaml.Node) {
		switch field := key.Value; {
		case field != "key" && field != "cert":
			tls.put(key, field, value)
		case value.Kind == yaml.ScalarNode && value.Tag != "!!null" && !resource.IsPEM(value.Value):
			spec.put(key, field+"File", value)
		default:
			spec.put(key, field, value)
		}
	})
	k.certificates = append(k.certificates, resourceNode(n, kindCertificate, stringNode(n, name), spec))
}

func (k *kroxylicious) physicalCluster(n *yaml.Node, path string) {
	spec, name := newYAMLMapping(n), nameOf(n)
	eachPair(n, func(key, value *yaml.Node) {
		switch {
		case key.Value == "tls" && isFalse(value):
		case key.Value == "tls":
			spec.put(key, "tls", k.brokerSideTLS(value, path+".tls", name+".client"))
		case key.Value == "brokers" && value.Kind == yaml.SequenceNode:
			list := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Line: value.Line}
			k.list(value, path+".brokers", func(n *yaml.Node, at string) {
				b := newYAMLMapping(n)
				for i := 0; i+1 < len(n.Content); i += 2 {
					key, value := n.Content[i], n.Content[i+1]
					if key.Value == "tls" && isFalse(value) {
						continue
					}
					if key.Value == "tls" {
						value = k.brokerSideTLS(value, at+".tls", name+"."+nameOf(n)+".client")
					}
					b.put(key, key.Value, value)
				}
				list.Content = append(list.Content, b.n)
			})
			spec.put(key, "brokers", list)
		default:
			spec.put(key, key.Value, value)
		}
	})
	k.physical = append(k.physical, resourceNode(n, KindPhysical, child(n, "name"), spec))
}

// isFalse tells "tls: false", which is what it is when it is left out.
func isFalse(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && n.Tag == "!!bool" && strings.EqualFold(n.Value, "false")
}

// brokerSideTLS converts TLS towards brokers: trust is PEM, the file that holds
// it, or a mapping {storeFile, storeType: PEM} or {insecure: true}.
func (k *kroxylicious) brokerSideTLS(n *yaml.Node, path, name string) *yaml.Node {
	if n.Kind == yaml.ScalarNode && n.Tag == "!!bool" && strings.EqualFold(n.Value, "true") {
		return newYAMLMapping(n).n
	}
	if n.Kind != yaml.MappingNode {
		return n // reported when it is decoded
	}
	tls := newYAMLMapping(n)
	var own []*yaml.Node
	eachPair(n, func(key, value *yaml.Node) {
		switch {
		case key.Value == "key" || key.Value == "cert":
			own = append(own, key, value)
		case key.Value != "trust":
			tls.put(key, key.Value, value)
		case value.Kind != yaml.MappingNode:
			tls.put(key, "ca", value)
		default:
			k.trustStore(value, path+".trust", tls)
		}
	})
	if len(own) > 0 {
		k.certificate(&yaml.Node{Kind: yaml.MappingNode, Line: n.Line, Content: own}, tls, name)
	}
	return tls.n
}

func (k *kroxylicious) trustStore(n *yaml.Node, path string, tls yamlMapping) {
	eachPair(n, func(key, value *yaml.Node) {
		switch key.Value {
		case "storeFile", "ca":
			tls.put(key, "ca", value)
		case "insecure":
			tls.put(key, "insecureSkipVerify", value)
		case "storeType":
			if value.Value != "PEM" {
				k.fault(value, path+".storeType", "must be PEM: convert the store (keytool, openssl)", value.Value)
			}
		default:
			k.fault(key, path+"."+key.Value, "unknown field; known fields are storeFile, storeType, insecure", nil)
		}
	})
}
