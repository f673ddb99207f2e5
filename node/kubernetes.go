package node

import (
	"context"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"penstock/consensus/store"
	"penstock/node/api"
	"penstock/node/catalog"
	"penstock/node/kubernetes"
	"penstock/node/rpc"
	"penstock/routing/gateway"
	"penstock/routing/resource"
	"penstock/routing/resource/validate"
)

// KubernetesResources are the settings of --kubernetes-resources.
type KubernetesResources struct {
	Enabled    bool
	Kubeconfig string   // "": the service account of the pod
	Namespaces []string // none: all
	Selector   string   // label selector of Penstock's kinds and Kuma's
	Controller string   // controllerName of the GatewayClasses; default gateway.Controller
}

// check lists the faults of the settings.
func (k *KubernetesResources) check() (faults []string) {
	if !k.Enabled {
		if k.Kubeconfig != "" || len(k.Namespaces) > 0 || k.Selector != "" || k.Controller != "" && k.Controller != gateway.Controller {
			faults = append(faults, "--kubernetes-kubeconfig, --kubernetes-namespaces, --kubernetes-selector and --kubernetes-controller "+
				"need --kubernetes-resources")
		}
		return faults
	}
	if _, err := labels.Parse(k.Selector); err != nil {
		faults = append(faults, "--kubernetes-selector "+k.Selector+": want a label selector, such as env=prod")
	}
	const most = 100
	if len(k.Namespaces) > most {
		faults = append(faults, "--kubernetes-namespaces: want at most 100, or none for all")
	}
	if k.Controller != "" && (!strings.Contains(k.Controller, "/") || len(k.Controller) > 253) {
		faults = append(faults, "--kubernetes-controller "+k.Controller+": want DOMAIN/PATH, such as "+gateway.Controller)
	}
	return faults
}

// openKubernetes makes what applies resources from Kubernetes, if the settings want it.
func (n *Node) openKubernetes() {
	k := n.cfg.Kubernetes
	if !k.Enabled {
		return
	}
	n.kubernetes = kubernetes.New(kubernetes.Config{
		Kubeconfig: k.Kubeconfig, Namespaces: k.Namespaces, Selector: k.Selector, Controller: k.Controller, Log: n.log,
		Leads: func() bool {
			return n.leads() && len(n.catalog.Unreadable()) == 0 // else it would take resources for missing
		},
		Set: func() (*validate.Set, uint64) {
			set, view := n.catalog.InForce()
			return set, view.Index()
		},
		Await:  func(ctx context.Context, index uint64) error { return n.catalog.Await(ctx, index) },
		Apply:  n.applyFromKubernetes,
		Status: func(set *validate.Set) func(*resource.Object, time.Time) []byte { return n.gateways().Status(set) },
		Failed: n.listenFailure,
	})
}

// applyTimeout bounds one change from Kubernetes.
const applyTimeout = 30 * time.Second

// applyFromKubernetes changes resources on this node, which must lead: a request that
// went to another leader could undo what that one has applied meanwhile.
func (n *Node) applyFromKubernetes(ctx context.Context, put []resource.Object, remove []resource.Key) error {
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	result, err := n.catalog.Apply(ctx, catalog.Change{
		Objects: put, Delete: remove, Owner: resource.AppliedByKubernetes, Note: store.Note{Who: resource.AppliedByKubernetes},
	})
	if err != nil {
		return err
	}
	n.changes.WithLabelValues("done").Inc()
	n.log.Info("applied resources from Kubernetes", changeAttrs(result.Changes)...)
	var names []string
	for _, c := range result.Changes {
		if c.Action != api.Unchanged {
			names = append(names, c.Kind+"/"+c.Name)
		}
	}
	n.recordAct(rpc.Event{
		Principal: api.Principal{Name: resource.AppliedByKubernetes, Role: api.RoleAdmin}, Method: api.MethodApply,
		Summary: strings.Join(names[:min(len(names), 8)], ", "), At: time.Now(),
	})
	return nil
}

// listenFailure returns why this node cannot listen for a Listener.
func (n *Node) listenFailure(k resource.Key) string {
	if k.Kind != "Listener" {
		return ""
	}
	for _, l := range n.data.Engine.Listeners() {
		if l.Name == k.Name && l.Err != nil {
			return n.cfg.Name + ": " + l.Err.Error()
		}
	}
	return ""
}
