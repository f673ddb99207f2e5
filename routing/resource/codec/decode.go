// Package codec decodes resources from YAML and JSON, reports every fault at once
// with file, line, path and value, and encodes them again. It reads documents of
// other formats through Foreign.
//
//	objects, faults := codec.Decode("edge.yaml", data, resource.RoutingKinds())
//	text := codec.EncodeYAML(objects[0])
//
// Documents use the JSON data model, so that every tool reads a file in the same
// way: no anchors, aliases or tags, no octal numbers, no "yes". A field without
// a value is a fault, and so is an explicit 0 or "" that would mean a default,
// because either is ambiguous. A string field accepts a number or boolean and
// keeps its spelling.
package codec

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	yaml "go.yaml.in/yaml/v3"

	"penstock/routing/resource"
	"penstock/routing/resource/validate"
)

// Bounds of decoding, enforced before the work that they bound.
const (
	MaxFileSize  = 16 << 20  // bytes of one file
	MaxDocuments = 100_000   // in one file
	MaxNodes     = 1_000_000 // values and keys in one document, estimated from above
	MaxDepth     = 64        // levels of nesting
)

// Decode decodes every document of a YAML or JSON file and reports all faults of
// each, in the order of the file. It returns the objects without a fault of
// their own; validate.Objects checks them together. The file's name is for the
// faults, and ".json" selects JSON; otherwise, content that begins with an
// object whose first key is quoted, or with a list of such, is tried as JSON
// before YAML.
func Decode(file string, data []byte, kinds []resource.Kind) ([]resource.Object, resource.Faults) {
	return decodeAll(&decoder{file: file, kinds: kinds, seen: map[resource.Key]seenAt{}}, data)
}

func decodeAll(d *decoder, data []byte) ([]resource.Object, resource.Faults) {
	switch {
	case len(data) > MaxFileSize:
		d.fail(1, "", fmt.Sprintf("is larger than %d MiB: split it", MaxFileSize>>20), fmt.Sprintf("%d bytes", len(data)))
	case !utf8.Valid(data):
		d.fail(badUTF8(data), "", "is not UTF-8 text", nil)
	default:
		d.decodeFile(bytes.TrimPrefix(data, []byte("\ufeff")))
	}
	slices.SortStableFunc(d.faults, func(a, b resource.Fault) int { return cmp.Compare(a.Line, b.Line) })
	return d.objects, d.faults
}

// Restore decodes one object that EncodeWithSecrets wrote. It does not validate,
// so that later versions accept every object that was once admitted.
func Restore(data []byte, kinds []resource.Kind) (resource.Object, error) {
	d := &decoder{kinds: kinds, seen: map[resource.Key]seenAt{}, trusted: true}
	err := d.decodeJSON(string(data))
	switch {
	case err != nil:
		return resource.Object{}, err
	case len(d.faults) > 0:
		return resource.Object{}, d.faults
	case len(d.objects) != 1:
		return resource.Object{}, fmt.Errorf("%d objects where one is expected", len(d.objects))
	}
	return d.objects[0], nil
}

// decoder decodes one file.
type decoder struct {
	file    string
	kinds   []resource.Kind
	trusted bool // no validation
	foreign []Foreign

	objects  []resource.Object
	faults   resource.Faults
	warnings resource.Faults         // of documents of other formats
	seen     map[resource.Key]seenAt // the first object of that key
	broken   []resource.Object       // objects with faults of their own; collected if not nil

	// State of the current document.
	docs    int
	offset  int    // lines of the file before it
	subject string // prefix of its faults: "Service/apps"
	path    []byte // of the current value: "spec.endpoints[2]"
	lines   map[string]int
	failed  map[string]bool // paths with a fault
	spec    resource.Spec   // being decoded
	from    resource.Origin // of a document of another format
	// unconverted has "KIND/NAME PATH" of the parts of that document that could
	// not be converted.
	unconverted map[string]bool
}

// seenAt is the line and format of an object.
type seenAt struct {
	line   int
	format string
}

// full reports whether no further fault will be listed.
func (d *decoder) full() bool { return len(d.faults) > resource.MaxFaults }

func (d *decoder) fail(line int, path, message string, value any) {
	switch n := len(d.faults); {
	case n > resource.MaxFaults:
		return
	case n == resource.MaxFaults:
		line, path, value = d.faults[n-1].Line, "", nil
		message = fmt.Sprintf("more than %d faults; the others are not listed", resource.MaxFaults)
	case path != "" && d.failed != nil:
		d.failed[path] = true
	}
	where := d.from.SubjectOf(strings.TrimSpace(d.subject + " " + d.from.PathOf(path)))
	if where == "" {
		where = "file"
	}
	d.faults = append(d.faults, resource.Fault{
		File: d.file, Line: line, Document: d.docs, Path: where, Message: message, Value: resource.Show(value),
	})
}

// failAt reports a fault of the current value.
func (d *decoder) failAt(n *yaml.Node, message string, value any) {
	d.fail(d.offset+n.Line, string(d.path), message, value)
}

func (d *decoder) decodeFile(data []byte) {
	isJSON := strings.HasSuffix(strings.ToLower(d.file), ".json")
	if isJSON || looksJSON(data) {
		err := d.decodeJSON(string(data))
		if err == nil {
			return
		}
		if isJSON {
			d.fail(err.line, "", err.message, nil)
			return
		}
	}
	if strings.HasSuffix(strings.ToLower(d.file), ".toml") || looksTOML(data) {
		d.decodeTOML(data)
		return
	}
	for line := 0; len(data) > 0; {
		chunk, rest := cutDocument(data)
		d.offset = line
		if !d.decodeYAML(chunk) {
			return
		}
		line += bytes.Count(chunk, []byte("\n"))
		data = rest
	}
}

// looksJSON reports whether data begins with an object whose first key is
// quoted, or with a list of such objects.
func looksJSON(data []byte) bool {
	data = bytes.TrimLeft(data, "[ \t\r\n")
	if len(data) == 0 || data[0] != '{' {
		return false
	}
	data = bytes.TrimLeft(data[1:], " \t\r\n")
	return len(data) > 0 && data[0] == '"'
}

func (d *decoder) decodeJSON(data string) *syntaxError {
	roots, err := parseJSON(data)
	if err != nil {
		return err
	}
	for _, root := range roots {
		d.decodeDocument(root)
	}
	return nil
}

// cutDocument splits data before its second document. Splitting before parsing
// bounds the memory in use, and a syntax error in one document does not hide the
// faults of the others. A line that begins with "---" and a blank begins a
// document anywhere, even within a block scalar.
func cutDocument(data []byte) (first, rest []byte) {
	for at := 0; ; {
		end := bytes.Index(data[at:], []byte("\n---"))
		if end < 0 {
			return data, nil
		}
		at += end + 4
		if at == len(data) || strings.IndexByte(" \t\r\n", data[at]) >= 0 {
			return data[:at-3], data[at-3:]
		}
	}
}

// decodeYAML decodes one document, or several if unusual markers divide it. It
// reports whether to continue with the file.
func (d *decoder) decodeYAML(chunk []byte) bool {
	d.subject, d.path = "", d.path[:0]
	if tooManyNodes(chunk) {
		d.fail(d.offset+1, "", fmt.Sprintf("the document has more than %d values: split it", MaxNodes), nil)
		return true
	}
	parser := yaml.NewDecoder(bytes.NewReader(chunk))
	for {
		var root yaml.Node
		err := parser.Decode(&root)
		if errors.Is(err, io.EOF) {
			return true
		}
		if d.docs++; d.docs > MaxDocuments {
			d.subject = ""
			d.fail(d.offset+1, "", fmt.Sprintf("has more than %d documents: split it", MaxDocuments), nil)
			return false
		}
		if err != nil {
			d.subject = fmt.Sprintf("document %d", d.docs)
			d.failSyntax(chunk, err)
			return true
		}
		if len(root.Content) == 1 && d.checkPlain(root.Content[0], 0) {
			d.decodeDocument(root.Content[0])
		}
	}
}

// tooManyNodes bounds the nodes that a parser would build, without parsing: it
// counts the characters that begin or end a value in YAML.
func tooManyNodes(chunk []byte) bool {
	if len(chunk) <= MaxNodes {
		return false
	}
	count := 0
	for i, c := range chunk {
		switch c {
		case ',', '[', '{', '\n', '\r':
			count++
		case ':', '-', '?':
			if i+1 < len(chunk) && strings.IndexByte(" \t\r\n,]}", chunk[i+1]) >= 0 {
				count++
			}
		}
	}
	return count > MaxNodes
}

var yamlError = regexp.MustCompile(`^yaml: (?:line (\d+): )?(?s:(.*))$`)

// failSyntax reports the error of the YAML parser.
func (d *decoder) failSyntax(chunk []byte, err error) {
	line, message := 1, err.Error()
	if m := yamlError.FindStringSubmatch(message); m != nil {
		line, _ = strconv.Atoi(cmp.Or(m[1], "1"))
		message = m[2]
	}
	switch {
	case strings.HasPrefix(message, "unknown anchor"):
		message = messageAlias
	case bytes.HasPrefix(bytes.TrimSpace(chunk), []byte("%")):
		message = "directives (%YAML, %TAG) are not supported: remove the line"
	case tabLine(chunk) > 0:
		line, message = tabLine(chunk), "a tab in the indentation: YAML requires spaces"
	default:
		message = "is not YAML: " + message
	}
	d.fail(d.offset+line, "", message, nil)
}

// tabLine returns the first line with a tab in its indentation, or 0.
func tabLine(chunk []byte) int {
	line := 0
	for text := range bytes.Lines(chunk) {
		line++
		indent := text[:len(text)-len(bytes.TrimLeft(text, " \t"))]
		if bytes.IndexByte(indent, '\t') >= 0 && len(bytes.TrimSpace(text)) > 0 {
			return line
		}
	}
	return 0
}

const messageAlias = "anchors and aliases (&x, *x) are not supported: write the value out"

// checkPlain refuses what YAML adds to JSON's data model: anchors, aliases and
// tags. Aliases are never followed, so an alias bomb costs nothing.
func (d *decoder) checkPlain(n *yaml.Node, depth int) bool {
	message := ""
	switch {
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		message = messageAlias
	case n.Style&yaml.TaggedStyle != 0:
		message = "tags (!x) are not supported"
	case depth > MaxDepth:
		message = fmt.Sprintf("is nested deeper than %d levels", MaxDepth)
	}
	if message != "" {
		d.subject = fmt.Sprintf("document %d", d.docs)
		d.fail(d.offset+n.Line, "", message, nil)
		return false
	}
	for _, c := range n.Content {
		if !d.checkPlain(c, depth+1) {
			return false
		}
	}
	return true
}

// decodeDocument decodes a resource or a list of resources.
func (d *decoder) decodeDocument(n *yaml.Node) {
	if n.Kind == yaml.SequenceNode {
		for _, item := range n.Content {
			d.decodeItem(item, false)
		}
		return
	}
	if n.Kind != yaml.ScalarNode || n.Tag != "!!null" {
		d.decodeItem(n, false)
	}
}

// decodeItem decodes a resource, or converts a document of another format.
func (d *decoder) decodeItem(n *yaml.Node, listed bool) {
	if !d.convert(n, listed) {
		d.decodeObject(n)
	}
}

// decodeObject decodes one resource.
func (d *decoder) decodeObject(n *yaml.Node) {
	before := len(d.faults)
	d.subject, d.path, d.failed = "document", d.path[:0], map[string]bool{}
	if d.docs > 0 {
		d.subject = fmt.Sprintf("document %d", d.docs)
	}
	if n.Kind != yaml.MappingNode {
		d.failAt(n, "must be a resource with kind, name and spec, not "+nodeType(n), nil)
		return
	}
	o := resource.Object{File: d.file, Line: d.offset + n.Line, Origin: d.from}
	if d.lines = nil; d.file != "" {
		o.Lines = map[string]int{}
		d.lines = o.Lines
	}
	var name, spec, version, labels *yaml.Node
	var kind resource.Kind
	var unknown []*yaml.Node
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if seen[key.Value] {
			d.failAt(key, "duplicate key", key.Value)
			continue
		}
		switch seen[key.Value] = true; key.Value {
		case "kind":
			kind = d.decodeKind(value)
		case "name":
			name = value
		case "spec":
			spec = value
		case "version":
			version = value
		case "labels":
			labels = value
		default:
			unknown = append(unknown, key)
		}
	}
	if !seen["kind"] {
		d.failAt(n, "kind is missing", nil)
	}
	o.Kind = kind.Name
	o.Name = d.decodeName(n, name, kind.Name)
	for _, key := range unknown {
		if !kind.Status || key.Value != "status" {
			d.failAt(key, "unknown field"+topLevelHint(key.Value, kind), key.Value)
		}
	}
	if version != nil {
		d.inField("version", func() { d.decodeScalar(version, reflect.ValueOf(&o.Version).Elem()) })
	}
	d.decodeLabels(labels, &o)
	d.decodeSpec(n, spec, kind, &o)
	if len(d.faults) > before || len(d.unconvertedPaths()) > 0 {
		if d.broken != nil && o.Spec != nil && o.Name != "" {
			d.broken = append(d.broken, o)
		}
		return
	}
	d.add(o)
}

// add keeps a resource unless its key occurred before.
func (d *decoder) add(o resource.Object) {
	if first, ok := d.seen[o.Key]; ok {
		message := fmt.Sprintf("duplicate, first at line %d", first.line)
		if first.format != d.from.Format {
			message += ": there as " + cmp.Or(first.format, resource.OwnFormat) + ", here as " + o.Format()
		}
		d.fail(o.Line, "", message, nil)
		return
	}
	d.seen[o.Key] = seenAt{o.Line, d.from.Format}
	d.objects = append(d.objects, o)
}

func (d *decoder) decodeKind(n *yaml.Node) resource.Kind {
	for _, k := range d.kinds {
		if n.Kind == yaml.ScalarNode && k.Name == n.Value {
			return k
		}
	}
	d.path = append(d.path[:0], "kind"...)
	names := resource.KindNames(slices.DeleteFunc(slices.Clone(d.kinds), func(k resource.Kind) bool { return k.ReadOnly != "" }))
	if n.Kind != yaml.ScalarNode || n.Tag == "!!null" {
		d.failAt(n, "must be one of "+strings.Join(names, ", "), nil)
	} else {
		d.failAt(n, fmt.Sprintf("unknown kind%s; known kinds are %s", resource.DidYouMean(n.Value, names), strings.Join(names, ", ")), n.Value)
	}
	d.path = d.path[:0]
	return resource.Kind{}
}

// decodeName checks the name of the object and puts it into the subject of
// faults.
func (d *decoder) decodeName(object, n *yaml.Node, kind string) string {
	if kind != "" {
		d.subject = kind
	}
	if n == nil {
		d.failAt(object, d.from.PathOf("name")+" is missing", nil)
		return ""
	}
	if n.Kind != yaml.ScalarNode || n.Tag == "!!null" {
		d.fail(d.offset+n.Line, "name", "must be a string, not "+nodeType(n), nil)
		return ""
	}
	if message := validate.Name(kind, n.Value); message != "" {
		d.fail(d.offset+n.Line, "name", message, n.Value)
		return ""
	}
	if kind != "" {
		d.subject = kind + "/" + n.Value
	}
	return n.Value
}

// topLevelHint returns a hint for an unknown key beside kind, name and spec.
func topLevelHint(key string, kind resource.Kind) string {
	if kind.New != nil {
		if _, ok := resource.SchemaOf(reflect.TypeOf(kind.New()).Elem()).ByName[key]; ok {
			return ", it belongs under spec"
		}
	}
	return resource.DidYouMean(key, []string{"kind", "name", "labels", "spec", "version"})
}

// decodeSpec decodes and validates the spec of a document.
func (d *decoder) decodeSpec(object, n *yaml.Node, kind resource.Kind, o *resource.Object) {
	switch {
	case n == nil:
		d.failAt(object, "spec is missing", nil)
		return
	case kind.New == nil:
		return
	case kind.ReadOnly != "" && !d.trusted:
		d.failAt(object, kind.ReadOnly, nil)
		return
	}
	expandShort(kind.Name, n)
	o.Spec = kind.New()
	d.spec = o.Spec
	d.inField("spec", func() { d.decodeValue(n, reflect.ValueOf(o.Spec).Elem(), nil) })
	if d.trusted || n.Kind != yaml.MappingNode {
		return
	}
	if d.lines != nil {
		for _, ref := range o.Spec.Refs() {
			d.lines[ref.Path] = d.offset + locate(n, ref.Path).Line
		}
	}
	decoded := append(make([]string, 0, len(d.failed)), d.unconvertedPaths()...)
	for path := range d.failed {
		decoded = append(decoded, path)
	}
	validate.Spec(o.Spec, func(path, message string, value any) {
		if d.full() {
			return
		}
		path = strings.TrimSuffix("spec."+path, ".")
		for _, p := range decoded {
			if within(p, path) || within(path, p) {
				return // follows from a reported fault
			}
		}
		d.fail(d.offset+locate(n, path).Line, path, message, value)
	})
}

// within reports whether the path inner is outer or lies below it.
func within(inner, outer string) bool {
	return strings.HasPrefix(inner, outer) && (len(inner) == len(outer) || inner[len(outer)] == '.' || inner[len(outer)] == '[')
}

// badUTF8 returns the line of the first bytes that are not UTF-8.
func badUTF8(data []byte) int {
	line := 1
	for len(data) > 0 {
		r, n := utf8.DecodeRune(data)
		if r == utf8.RuneError && n == 1 {
			break
		}
		if r == '\n' {
			line++
		}
		data = data[n:]
	}
	return line
}

// decodeLabels decodes and checks the labels of a document.
func (d *decoder) decodeLabels(n *yaml.Node, o *resource.Object) {
	if n == nil {
		return
	}
	d.inField("labels", func() {
		before := len(d.faults)
		d.decodeValue(n, reflect.ValueOf(&o.Labels).Elem(), nil)
		if len(o.Labels) == 0 {
			o.Labels = nil
		}
		if d.trusted || len(d.faults) > before {
			return
		}
		validate.EachLabelFault(o.Labels, func(key, message, value string) {
			if key == "" {
				d.failAt(n, message, nil)
				return
			}
			d.inField(key, func() {
				d.fail(d.offset+locate(n, string(resource.AppendStep([]byte("spec"), key))).Line, string(d.path), message, value)
			})
		})
	})
}
