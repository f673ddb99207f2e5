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

// HasLabels reports whether an object has all of the labels.
func (o *Object) HasLabels(labels map[string]string) bool {
	for k, want := range labels {
		if got, ok := o.Labels[k]; !ok || got != want {
			return false
		}
	}
	return true
}
