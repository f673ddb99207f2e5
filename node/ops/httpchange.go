package ops

import (
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"

	"penstock/node/api"
	"penstock/node/catalog"
	"penstock/node/kinds"
	"penstock/routing/resource"
	"penstock/routing/resource/codec"
)

// maxBody bounds the bodies of PUT and POST, in bytes.
const maxBody = 8 << 20

// readBody decodes the resources in a request's body, in any supported format, and
// returns the warnings of the conversion. The Content-Type is required and must be
// one that an HTML form cannot send: so a browser makes a CORS preflight request
// before a page can send one.
func readBody(r *http.Request) ([]resource.Object, resource.Faults, error) {
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || media != "application/json" && media != "application/yaml" {
		return nil, nil, api.Errorf(api.Invalid, "want Content-Type: application/json or application/yaml")
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err != nil {
		return nil, nil, err
	}
	if len(body) > maxBody {
		return nil, nil, api.Errorf(api.TooLarge, "the body has more than %d bytes", maxBody)
	}
	objects, faults, warnings := codec.DecodeReport("", body, kinds.All(), kinds.Formats())
	if len(faults) > 0 {
		return nil, nil, catalog.Invalid(faults)
	}
	if len(objects) == 0 {
		return nil, nil, api.Errorf(api.Invalid, "the body contains no resource")
	}
	return objects, warnings, nil
}

// postRequest reads any number of resources, which are applied in one change.
func postRequest(r *http.Request) (any, error) {
	objects, warnings, err := readBody(r)
	if err != nil {
		return nil, err
	}
	return applyRequest(r, objects, warnings), nil
}

// applyRequest makes the admin request for the resources of a body.
func applyRequest(r *http.Request, objects []resource.Object, warnings resource.Faults) api.ApplyRequest {
	return api.ApplyRequest{
		Documents: Documents(objects), DryRun: r.URL.Query().Has("dryRun"), Warnings: catalog.Faults(warnings),
	}
}

// putRequest reads one resource, whose kind and name must match the path. A
// document in another format is converted first.
func putRequest(r *http.Request) (any, error) {
	objects, warnings, err := readBody(r)
	if err != nil {
		return nil, err
	}
	kind, err := resource.FindKind(kinds.All(), r.PathValue("kind"))
	if err != nil {
		return nil, api.Errorf(api.NotFound, "%v", err)
	}
	name, first := r.PathValue("name"), &objects[0]
	if len(objects) == 1 && first.Kind == kind.Name && first.Name == name {
		return applyRequest(r, objects, warnings), nil
	}
	e := api.Errorf(api.Invalid, "want one %s with the name %q, not %s; POST /v1/apply accepts any number of any kind",
		kind.Name, name, named(objects))
	e.Faults = []api.Fault{{Key: first.String(), Path: "name", Message: e.Message, Value: first.Name}}
	return nil, e
}

// named lists resources for an error text, with their format if it is not
// Penstock's.
func named(objects []resource.Object) string {
	names := make([]string, len(objects))
	for i := range objects {
		names[i] = objects[i].String()
	}
	text := List(names)
	if format := objects[0].Format(); format != "Penstock" {
		text += fmt.Sprintf(" (converted from %s)", format)
	}
	return strings.TrimSpace(text)
}

// Documents encodes objects for an admin request, secrets included.
func Documents(objects []resource.Object) [][]byte {
	docs := make([][]byte, len(objects))
	for i, o := range objects {
		docs[i] = codec.EncodeWithSecrets(o)
	}
	return docs
}

// maxListed bounds the names that List returns.
const maxListed = 50

// List joins names in one line. Of more than maxListed names it lists the first
// ones and the number of the rest.
func List(names []string) string {
	if len(names) > maxListed {
		names = append(slices.Clone(names[:maxListed]), fmt.Sprintf("and %d more", len(names)-maxListed))
	}
	return strings.Join(names, ", ")
}
