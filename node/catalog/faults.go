package catalog

import (
	"strings"

	"penstock/node/api"
	"penstock/routing/resource"
	"penstock/routing/resource/codec"
)

// Decode parses the documents of a request.
func (c *Catalog) Decode(docs [][]byte) ([]resource.Object, error) {
	var objects []resource.Object
	var faults resource.Faults
	for _, d := range docs {
		some, wrong := codec.Decode("", d, c.cfg.Kinds)
		objects, faults = append(objects, some...), append(faults, wrong...)
	}
	if len(faults) > 0 {
		return nil, invalid(faults)
	}
	return objects, nil
}

func notFound(k resource.Key) error {
	return api.Errorf(api.NotFound, "there is no %s %q", k.Kind, k.Name)
}

// Invalid returns the error for documents that have faults.
func Invalid(faults resource.Faults) *api.Error { return invalid(faults) }

// Faults converts faults or warnings for a response.
func Faults(list resource.Faults) []api.Fault { return faultsOf(list) }

// invalid returns an error that lists faults.
func invalid(faults resource.Faults) *api.Error {
	e := api.Errorf(api.Invalid, "%d faults; nothing was changed", len(faults))
	if len(faults) == 1 {
		e.Message = "1 fault; nothing was changed"
	}
	e.Faults = faultsOf(faults)
	return e
}

func faultsOf[F ~[]resource.Fault](faults F) []api.Fault {
	var out []api.Fault
	for _, f := range faults {
		key, path, _ := strings.Cut(f.Path, " ")
		one := api.Fault{Key: key, Path: path, Message: f.Message, Value: f.Value, Document: f.Document}
		if one.Key == "document" { // "document 2", for a document without a kind
			one.Key, one.Path = "", strings.TrimLeft(path, "0123456789 ")
		}
		if f.File == "" { // else the line is in a file that the client did not send
			one.Line = f.Line
		}
		out = append(out, one)
	}
	return out
}
