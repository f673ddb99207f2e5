package resource

// KindMesh is the kind of Mesh.
const KindMesh = "Mesh"

// Mesh holds the defaults of the whole mesh. The only Mesh is named default.
type Mesh struct {
	// Permission is for destinations that no TrafficPermission names: allow or
	// deny. Default allow.
	Permission string `yaml:"permission" default:"allow" oneof:"allow deny"`
}

// Refs returns nothing: a mesh refers to no other resource.
func (m *Mesh) Refs() []Ref { return nil }
