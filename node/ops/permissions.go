package ops

import (
	"context"

	"penstock/node/api"
)

// permissions tells what permissions have denied on the requested node.
func (d *decisions) permissions(ctx context.Context, r *api.PermissionsRequest) (*api.Permissions, error) {
	if passed, err := d.peers.Forward(ctx, r.Node); passed {
		return nil, err
	}
	result := &api.Permissions{Node: d.peers.self.Name, Permissions: []api.PermissionUse{}}
	for name, n := range d.data.Router.Table().Permissions().Denials() {
		result.Permissions = append(result.Permissions, api.PermissionUse{Permission: name, Action: n.Action, Denied: n.Count})
	}
	for _, c := range d.data.Kafka.Counts() {
		for _, n := range c.Denials {
			result.Kafka = append(result.Kafka, api.KafkaPermissionUse{
				VirtualCluster: c.Cluster, API: n.API, Permission: n.Permission, Shadow: n.Shadow, Denied: n.Count,
			})
		}
	}
	return result, nil
}
