package file

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"unicode/utf8"

	yaml "go.yaml.in/yaml/v3"

	"penstock/routing/provider"
)

// maxName is the length of the longest name of a service, in bytes.
const maxName = 253

// maxPath is the length of the longest path in an error, in bytes.
const maxPath = 2 * maxName

// suggestions say what to write for fields that others have.
var suggestions = map[string]string{
	"host": `write address: "host:port"`, "ip": `write address: "IP:port"`, "port": `write address: "host:port"`,
	"addr": "write address", "target": "write address", "endpoint": "write address",
	"labels": "write tags: {k: v}", "meta": "write tags: {k: v}", "metadata": "write tags: {k: v}",
	"zone": "write tags: {zone: NAME}", "service": "write the file as a map: SERVICE: [ENDPOINTS]",
}

// decoder decodes one file.
type decoder struct {
	file     string
	limits   *limits
	services []service
	first    error // the first fault
	faults   int
}

// decode decodes a file. It returns a service without a name if the file is a
// list.
func decode(file string, data []byte, limits *limits) ([]service, error) {
	if line := badUTF8(data); line > 0 {
		return nil, fmt.Errorf("%s:%d: is not UTF-8 text", file, line)
	}
	parse := parseYAML
	if filepath.Ext(file) == ".json" {
		parse = parseJSON
	}
	root, err := parse(bytes.TrimPrefix(data, []byte("\ufeff")))
	if err != nil {
		return nil, fmt.Errorf("%s:%w", file, err)
	}
	d := &decoder{file: file, limits: limits}
	d.document(root)
	switch {
	case limits.exceeded != nil:
		return nil, limits.exceeded
	case d.faults > 1:
		return nil, fmt.Errorf("%w (and %d more faults)", d.first, d.faults-1)
	}
	return d.services, d.first
}

// badUTF8 returns the first line that is not UTF-8, or 0.
func badUTF8(data []byte) int {
	if utf8.Valid(data) {
		return 0
	}
	line := 0
	for text := range bytes.Lines(data) {
		line++
		if !utf8.Valid(text) {
			break
		}
	}
	return line
}

// fail records a fault of a value. It says the line and the key, never the value: the
// path may lead to a file that is no list of endpoints and holds secrets.
func (d *decoder) fail(n *yaml.Node, path, format string, args ...any) {
	d.faults++
	if d.first != nil {
		return
	}
	where := fmt.Sprintf("%s:%d: ", d.file, n.Line)
	if path != "" {
		where += shorten(path) + ": "
	}
	d.first = errors.New(where + fmt.Sprintf(format, args...))
}

func (d *decoder) document(root *yaml.Node) {
	if root.Kind == yaml.MappingNode {
		for _, e := range d.fields(root, "") {
			if e.name == "" || len(e.name) > maxName {
				d.fail(e.key, "", "the name of a service has 1 to %d bytes", maxName)
				continue
			}
			d.service(e.value, e.name)
		}
		return
	}
	d.service(root, "")
}

// service decodes a list of endpoints.
func (d *decoder) service(n *yaml.Node, name string) {
	if !d.plain(n, name) {
		return
	}
	if n.Kind != yaml.SequenceNode {
		d.fail(n, name, `must be a list of endpoints, as in [{address: "host:port"}], or [] if there are none`)
		return
	}
	s := service{name: name, where: fmt.Sprintf("%s:%d", d.file, n.Line)}
	for i, item := range n.Content {
		if d.limits.endpoints--; d.limits.endpoints < 0 {
			d.limits.exceeded = fmt.Errorf("%s:%d: has more endpoints than maxEndpoints allows: raise it", d.file, item.Line)
			return
		}
		s.endpoints = append(s.endpoints, d.endpoint(item, fmt.Sprintf("%s[%d]", name, i)))
	}
	d.services = append(d.services, s)
}

func (d *decoder) endpoint(n *yaml.Node, path string) provider.Endpoint {
	e := provider.Endpoint{Weight: 1}
	if !d.plain(n, path) {
		return e
	}
	if n.Kind != yaml.MappingNode {
		d.fail(n, path, `must be an endpoint, as in {address: "host:port"}`)
		return e
	}
	known := false
	for _, f := range d.fields(n, path) {
		at := path + "." + f.name
		switch f.name {
		case "address":
			e.Address, known = d.text(f.value, at), true
			if err := checkAddress(e.Address); err != nil {
				d.fail(f.value, at, "%v", err)
			}
		case "weight":
			e.Weight = d.number(f.value, at, provider.MaxWeight)
		case "priority":
			e.Priority = d.number(f.value, at, provider.MaxPriority)
		case "tags":
			e.Tags = d.tags(f.value, at)
		case "state":
			state, ok := provider.ParseState(d.text(f.value, at))
			if !ok {
				d.fail(f.value, at, "must be ready, notReady or terminating")
			}
			e.State = state
		default:
			suggestion := suggestions[strings.ToLower(f.name)]
			if suggestion == "" {
				suggestion = "the fields are address, weight, priority, tags and state"
			}
			d.fail(f.key, path, "unknown field %.40q: %s", f.name, suggestion)
		}
	}
	if !known {
		d.fail(n, path, `address is required: write address: "host:port"`)
	}
	return e
}

// number returns the value of a whole number from 0 to most.
func (d *decoder) number(n *yaml.Node, path string, most int) int {
	number, err := strconv.Atoi(n.Value)
	if n.ShortTag() != "!!int" || err != nil || number < 0 || number > most {
		d.fail(n, path, "must be a whole number from 0 to %d", most)
	}
	return number
}

func checkAddress(address string) error {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return errors.New("must be host:port")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return errors.New("the port must be 1 to 65535")
	}
	return nil
}

func (d *decoder) tags(n *yaml.Node, path string) map[string]string {
	if n.Kind != yaml.MappingNode {
		d.fail(n, path, "must be a map, as in {version: v1}")
		return nil
	}
	tags := make(map[string]string, len(n.Content)/2)
	for _, f := range d.fields(n, path) {
		tags[f.name] = d.text(f.value, path+"."+f.name)
	}
	return tags
}

// text returns the value of a string.
func (d *decoder) text(n *yaml.Node, path string) string {
	if !d.plain(n, path) {
		return ""
	}
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" {
		d.fail(n, path, "must be text: put it in quotes")
	}
	return n.Value
}

// field is an entry of a map.
type field struct {
	name       string
	key, value *yaml.Node
}

// fields returns the entries of a map, each name once.
func (d *decoder) fields(n *yaml.Node, path string) []field {
	list := make([]field, 0, len(n.Content)/2)
	seen := make(map[string]int, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if !d.plain(key, path) {
			continue
		}
		if key.Kind != yaml.ScalarNode {
			d.fail(key, path, "has a name that is not text")
			continue
		}
		if line, twice := seen[key.Value]; twice {
			d.fail(key, path, "%.40q is there twice, first in line %d: remove one", key.Value, line)
			continue
		}
		seen[key.Value] = key.Line
		list = append(list, field{key.Value, key, value})
	}
	return list
}

// plain refuses what YAML adds to JSON's data model. Aliases are never followed,
// so that a small file cannot become a large one.
func (d *decoder) plain(n *yaml.Node, path string) bool {
	switch {
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		d.fail(n, path, "anchors and aliases (&x, *x) are not supported: write the value out")
	case n.Style&yaml.TaggedStyle != 0:
		d.fail(n, path, "tags of YAML (!x) are not supported: write the value alone")
	default:
		return true
	}
	return false
}

// shorten cuts a path that is longer than an error should be.
func shorten(path string) string {
	if len(path) <= maxPath {
		return path
	}
	return strings.ToValidUTF8(path[:maxPath], "") + "..."
}
