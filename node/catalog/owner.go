package catalog

import (
	"strings"

	"penstock/node/api"
	"penstock/routing/resource"
)

// Resources that are applied from Kubernetes are changed there and nowhere else:
// the next pass would undo any other change. Who may change a resource is in its
// label resource.LabelAppliedBy.

// checkOwner reports an object that another writer owns, or that takes the label
// of one.
func (a *applyCheck) checkOwner(o, stored *resource.Object, exists bool) {
	if exists {
		if fault := a.catalog.ownerFault(stored, a.change.Owner); fault != "" {
			a.faults = append(a.faults, o.Fault("", fault, nil))
			return
		}
	}
	reserved := a.catalog.cfg.Reserved
	if reserved != "" && a.change.Owner != reserved && o.Labels[resource.LabelAppliedBy] == reserved {
		a.faults = append(a.faults, o.Fault(`labels["`+resource.LabelAppliedBy+`"]`,
			"is the label of resources that are applied from Kubernetes: leave it out", reserved))
	}
}

// ownerFault returns why a writer may not change a stored object; "": it may.
func (c *Catalog) ownerFault(stored *resource.Object, writer string) string {
	owner := stored.Labels[resource.LabelAppliedBy]
	switch reserved := c.cfg.Reserved; {
	case reserved == "" || owner == writer:
		return ""
	case owner == reserved:
		return "is applied from Kubernetes: change or delete the object there"
	case writer != reserved:
		return ""
	case strings.HasPrefix(owner, "resources-"):
		return "exists already, applied from the files of --resources: remove it there, or rename one of the two"
	}
	return "exists already, and not from Kubernetes: delete it with penstock delete, or rename one of the two"
}

// refuseOwned returns an error if a writer without an owner may not delete a resource.
func (c *Catalog) refuseOwned(stored *resource.Object) error {
	if fault := c.ownerFault(stored, ""); fault != "" {
		return api.Errorf(api.Refused, "%v %s", stored.Key, fault)
	}
	return nil
}
