package crd

import (
	"penstock/routing/gateway"
	"penstock/routing/resource"
)

// Rights returns the ClusterRole that reading the kinds and writing their status
// needs, and its binding to a service account, each as JSON.
func Rights(kinds []resource.Kind, namespace, account string) []Object {
	const name, rbac = "penstock-resources", "rbac.authorization.k8s.io"
	var own, status []any
	for _, k := range Kinds(kinds) {
		own, status = append(own, k.Plural), append(status, k.Plural+"/status")
	}
	rule := func(group string, resources []any, verbs ...any) Object {
		return Object{"apiGroups": []any{group}, "resources": resources, "verbs": verbs}
	}
	return []Object{
		{
			"apiVersion": rbac + "/v1", "kind": "ClusterRole", "metadata": Object{"name": name},
			"rules": []any{
				rule(Group, own, "get", "list", "watch"), rule(Group, status, "patch"),
				rule("kuma.io", []any{"meshtcproutes"}, "list", "watch"),
				rule(gateway.Group, []any{"gatewayclasses", "gateways", "tcproutes", "tlsroutes", "httproutes", "referencegrants"}, "get", "list", "watch"),
				rule(gateway.Group, []any{"gatewayclasses/status", "gateways/status", "tcproutes/status", "tlsroutes/status", "httproutes/status"}, "patch"),
			},
		},
		{
			"apiVersion": rbac + "/v1", "kind": "ClusterRoleBinding", "metadata": Object{"name": name},
			"roleRef":  Object{"apiGroup": rbac, "kind": "ClusterRole", "name": name},
			"subjects": []any{Object{"kind": "ServiceAccount", "name": account, "namespace": namespace}},
		},
	}
}
