package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"penstock/node/kubernetes"
)

var (
	mKubeSynced  = desc("kubernetes_synced", "1 if this node leads and knows all objects of Kubernetes. Only with --kubernetes-resources.")
	mKubeObjects = desc("kubernetes_objects", "Objects of Kubernetes that the leader knows, by state.", "state")
	mKubeMax     = desc("kubernetes_objects_max", "How many it may know.")
	mKubeApplies = desc("kubernetes_applies_total", "Changes of resources from Kubernetes, by result.", "result")
	mKubeStatus  = desc("kubernetes_status_writes_total", "Writes of a status to Kubernetes, by result.", "result")
)

// Kubernetes collects what reading resources from Kubernetes does.
func Kubernetes(m *kubernetes.Manager) prometheus.Collector {
	return collector(func(to sink) {
		s := m.State()
		to.gauge(mKubeSynced, boolValue(s.Leading && s.Synced))
		to.gauge(mKubeObjects, float64(s.Objects-s.Refused), "accepted")
		to.gauge(mKubeObjects, float64(s.Refused), "refused")
		to.gauge(mKubeMax, kubernetes.MaxObjects)
		to.counter(mKubeApplies, s.Applied, "done")
		to.counter(mKubeApplies, s.Failed, "failed")
		to.counter(mKubeStatus, s.StatusWritten, "written")
		to.counter(mKubeStatus, s.StatusConflicts, "conflict")
		to.counter(mKubeStatus, s.StatusFailed, "failed")
	})
}
