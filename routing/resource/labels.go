package resource

// Labels of policies that were converted from another format.
const (
	LabelFormat = "penstock/format" // the format that a resource was converted from
	LabelMesh   = "kuma.io/mesh"    // the mesh that it belonged to
)

// Values of LabelFormat.
const (
	FormatKuma           = "kuma"            // Kuma's universal form
	FormatKumaKubernetes = "kuma-kubernetes" // Kuma's form in Kubernetes
	FormatSMI            = "smi"
)

// LabelAppliedBy is the label of resources that a node applies from a source of
// its own: its files, or Kubernetes. Its value names the source.
const LabelAppliedBy = "penstock.io/applied-by"

// AppliedByKubernetes is the value of LabelAppliedBy for resources from Kubernetes.
const AppliedByKubernetes = "kubernetes"

// HasLabels reports whether an object has all of the labels.
func (o *Object) HasLabels(labels map[string]string) bool {
	for k, want := range labels {
		if got, ok := o.Labels[k]; !ok || got != want {
			return false
		}
	}
	return true
}
