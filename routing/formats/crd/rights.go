package crd

import (
	"maps"
	"slices"

	"penstock/routing/gateway"
	"penstock/routing/resource"
)

const rbac = "rbac.authorization.k8s.io"

func rule(group string, resources []any, verbs ...any) Object {
	return Object{"apiGroups": []any{group}, "resources": resources, "verbs": verbs}
}

func bindingOf(kind, name, in string, account Object) Object {
	meta := Object{"name": name}
	if in != "" {
		meta["namespace"] = in
	}
	return Object{
		"apiVersion": rbac + "/v1", "kind": kind + "Binding", "metadata": meta,
		"roleRef": Object{"apiGroup": rbac, "kind": kind, "name": name}, "subjects": []any{account},
	}
}

func subject(namespace, account string) Object {
	return Object{"kind": "ServiceAccount", "name": account, "namespace": namespace}
}

// SecretRights returns the Roles that reading some Secrets needs, and their bindings to a
// service account. The Secrets are names by namespace; no names are all of a namespace.
func SecretRights(secrets map[string][]string, namespace, account string) (objects []Object) {
	const name = "penstock-secrets"
	for _, in := range slices.Sorted(maps.Keys(secrets)) {
		read := rule("", []any{"secrets"}, "list", "watch")
		if names := secrets[in]; len(names) > 0 {
			list := make([]any, len(names))
			for i := range names {
				list[i] = names[i]
			}
			read["resourceNames"] = list
		}
		objects = append(objects, Object{
			"apiVersion": rbac + "/v1", "kind": "Role", "metadata": Object{"name": name, "namespace": in}, "rules": []any{read},
		}, bindingOf("Role", name, in, subject(namespace, account)))
	}
	return objects
}

// Rights returns the ClusterRole that reading the kinds and writing their status
// needs, and its binding to a service account, each as JSON.
func Rights(kinds []resource.Kind, namespace, account string) []Object {
	const name = "penstock-resources"
	var own, status []any
	for _, k := range Kinds(kinds) {
		own, status = append(own, k.Plural), append(status, k.Plural+"/status")
	}
	return []Object{
		{
			"apiVersion": rbac + "/v1", "kind": "ClusterRole", "metadata": Object{"name": name},
			"rules": []any{
				rule(Group, own, "list", "watch"), rule(Group, status, "patch"),
				rule("kuma.io", []any{"meshtcproutes"}, "list", "watch"),
				rule(gateway.Group, []any{"gatewayclasses", "gateways", "tcproutes", "tlsroutes", "httproutes", "referencegrants"}, "list", "watch"),
				rule(gateway.Group, []any{"gatewayclasses/status", "gateways/status", "tcproutes/status", "tlsroutes/status", "httproutes/status"}, "patch"),
			},
		},
		bindingOf("ClusterRole", name, "", subject(namespace, account)),
	}
}
