package http

import (
	"errors"
	"fmt"
	"io"
	"reflect"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"penstock/routing/provider"
)

// A decoder reads one document.
type decoder struct {
	max     int  // of endpoints
	objects bool // the document may be an object of lists by service
	// wanted are the services to keep. Others are only checked and counted.
	wanted map[string]bool
}

// A document is a complete answer.
type document struct {
	list      []provider.Endpoint // for all queries, unless byService is set
	byService map[string][]provider.Endpoint
}

// item is an endpoint in JSON.
type item struct {
	Address string            `json:"address"`
	Tags    map[string]string `json:"tags"`
	Weight  *int              `json:"weight"`
	// Priority is checked with the rest of the endpoint.
	Priority int   `json:"priority"`
	State    state `json:"state"`
}

type state provider.State

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *state) UnmarshalText(text []byte) error {
	for _, known := range []provider.State{provider.Ready, provider.NotReady, provider.Terminating} {
		if string(text) == known.String() {
			*s = state(known)
			return nil
		}
	}
	return errors.New("must be ready, notReady or terminating")
}

// decode reads a document to its end. It refuses duplicate and unknown names,
// wrong types and bytes after the document.
func (d decoder) decode(r io.Reader) (document, error) {
	in := jsontext.NewDecoder(r, json.RejectUnknownMembers(true))
	doc, err := d.document(in)
	if err != nil {
		return document{}, describe(err)
	}
	if _, err := in.ReadToken(); err == nil {
		return document{}, fmt.Errorf("byte %d: there is something after the document", in.InputOffset())
	} else if !errors.Is(err, io.EOF) {
		return document{}, describe(err)
	}
	return doc, nil
}

func (d *decoder) document(in *jsontext.Decoder) (document, error) {
	switch kind := in.PeekKind(); {
	case kind == '[':
		list, err := d.list(in, true)
		return document{list: list}, err
	case kind == '{' && d.objects:
		return d.object(in)
	case kind == 0: // ReadToken has the error
		_, err := in.ReadToken()
		return document{}, err
	case d.objects:
		return document{}, errors.New("the document must be a list of endpoints, or an object of lists by service")
	default:
		return document{}, errors.New("the document must be a list of endpoints, as the url contains {service}")
	}
}

func (d *decoder) object(in *jsontext.Decoder) (document, error) {
	if _, err := in.ReadToken(); err != nil {
		return document{}, err
	}
	doc := document{byService: map[string][]provider.Endpoint{}}
	for in.PeekKind() != '}' {
		name, err := in.ReadToken()
		if err != nil {
			return document{}, err
		}
		service := name.String()
		if kind := in.PeekKind(); kind != '[' && kind != 0 {
			return document{}, fmt.Errorf("%s: must be a list of endpoints", place(in.StackPointer(), in.InputOffset()))
		}
		list, err := d.list(in, d.wanted[service])
		if err != nil {
			return document{}, err
		}
		if d.wanted[service] {
			doc.byService[service] = list
		}
	}
	_, err := in.ReadToken()
	return doc, err
}

// list reads a list of endpoints; it returns them if keep is true.
func (d *decoder) list(in *jsontext.Decoder, keep bool) (list []provider.Endpoint, err error) {
	if _, err := in.ReadToken(); err != nil {
		return nil, err
	}
	for in.PeekKind() != ']' {
		if d.max--; d.max < 0 {
			return nil, errors.New("has more endpoints than maxEndpoints allows")
		}
		var e item
		if err := json.UnmarshalDecode(in, &e); err != nil {
			return nil, err
		}
		if e.Address == "" {
			return nil, fmt.Errorf("%s: address is missing", place(in.StackPointer(), in.InputOffset()))
		}
		if !keep {
			continue
		}
		weight := 1
		if e.Weight != nil {
			weight = *e.Weight
		}
		list = append(list, provider.Endpoint{
			Address: e.Address, Weight: weight, Priority: e.Priority, Tags: e.Tags, State: provider.State(e.State),
		})
	}
	_, err = in.ReadToken()
	return list, err
}

// place says where in a document something is. A peer chose the names in
// pointer.
func place(pointer jsontext.Pointer, offset int64) string {
	if pointer == "" {
		return fmt.Sprintf("byte %d", offset)
	}
	return fmt.Sprintf("%.100q (byte %d)", string(pointer), offset)
}

var kinds = map[jsontext.Kind]string{
	'{': "an object", '[': "a list", '"': "a string", '0': "a number", 't': "true", 'f': "false", 'n': "null",
}

// describe words the errors of the JSON library for people who write lists of
// endpoints.
func describe(err error) error {
	var syntax *jsontext.SyntacticError
	var semantic *json.SemanticError
	switch {
	case errors.As(err, &syntax):
		return fmt.Errorf("%s: %w", place(syntax.JSONPointer, syntax.ByteOffset), syntax.Err)
	case errors.As(err, &semantic) && semantic.Err != nil:
		return fmt.Errorf("%s: %w", place(semantic.JSONPointer, semantic.ByteOffset), semantic.Err)
	case errors.As(err, &semantic):
		want := "a string"
		if t := semantic.GoType; t != nil && t.Kind() == reflect.Int {
			want = "an integer"
		} else if t != nil && (t.Kind() == reflect.Map || t.Kind() == reflect.Struct) {
			want = "an object"
		}
		return fmt.Errorf("%s: must be %s, not %s", place(semantic.JSONPointer, semantic.ByteOffset), want, kinds[semantic.JSONKind])
	case errors.Is(err, io.EOF):
		return errors.New("the answer is empty")
	}
	return err
}
