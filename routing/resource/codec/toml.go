package codec

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
	yaml "go.yaml.in/yaml/v3"
)

// TOMLTag is the tag of the root of a document that was written in TOML, which is always
// one of another format.
const TOMLTag = "!!toml"

// Bounds of TOML files, which hold the settings of one program.
const (
	maxTOMLSize   = 1 << 20
	maxTOMLNested = 2000 // brackets that begin a table or list
)

// tomlStart matches the first line of TOML that is neither empty nor a comment: a table
// or a key with its value. Neither begins a YAML document with resources.
var tomlStart = regexp.MustCompile(`^(?:[ \t]*(?:#[^\n]*)?\r?\n)*[ \t]*(?:\[\[?[ \t]*["'\w.-]+[ \t]*\]|["'\w.-]+[ \t]*=)`)

// looksTOML reports whether a file is TOML by its content.
func looksTOML(data []byte) bool { return tomlStart.Match(data) }

// decodeTOML decodes a file in TOML.
func (d *decoder) decodeTOML(data []byte) {
	d.docs++
	root, err := parseTOML(data)
	if err != nil {
		d.fail(err.line, "", err.message, nil)
		return
	}
	if len(root.Content) == 0 {
		return // comments alone
	}
	d.decodeDocument(root)
}

// parseTOML returns the tree of a file: tables as mappings, with the line of each key and
// value. The library checks the whole of TOML's grammar first, repeated keys included.
func parseTOML(data []byte) (*yaml.Node, *syntaxError) {
	if len(data) > maxTOMLSize {
		return nil, &syntaxError{1, fmt.Sprintf("is larger than %d KiB, the bound of a file in TOML", maxTOMLSize>>10)}
	}
	if n := bytes.Count(data, []byte("[")) + bytes.Count(data, []byte("{")); n > maxTOMLNested {
		return nil, &syntaxError{1, fmt.Sprintf("has more than %d tables and lists", maxTOMLNested)}
	}
	var whole map[string]any
	if err := toml.Unmarshal(data, &whole); err != nil {
		return nil, tomlError(err)
	}
	t := tomlTree{lines: newlines(data)}
	t.root = &yaml.Node{Kind: yaml.MappingNode, Tag: TOMLTag, Line: 1}
	t.parser.Reset(data)
	table := t.root
	for t.parser.NextExpression() {
		switch e := t.parser.Expression(); e.Kind {
		case unstable.Table:
			table = t.descend(t.root, e.Key(), false)
		case unstable.ArrayTable:
			table = t.descend(t.root, e.Key(), true)
		case unstable.KeyValue:
			t.put(table, e)
		}
	}
	if err := t.parser.Error(); err != nil {
		return nil, tomlError(err)
	}
	return t.root, nil
}

func tomlError(err error) *syntaxError {
	line := 1
	if at := (*toml.DecodeError)(nil); errors.As(err, &at) {
		line, _ = at.Position()
	}
	return &syntaxError{line, "invalid TOML: " + err.Error()}
}

// newlines returns the offsets of the line ends.
func newlines(data []byte) (at []int) {
	for i, c := range data {
		if c == '\n' {
			at = append(at, i)
		}
	}
	return at
}

// tomlTree builds the tree of a file.
type tomlTree struct {
	parser unstable.Parser
	lines  []int // offsets of the line ends
	root   *yaml.Node
}

func (t *tomlTree) line(n *unstable.Node) int {
	i, _ := slices.BinarySearchFunc(t.lines, int(n.Raw.Offset), cmp.Compare[int])
	return i + 1
}

// descend returns the table of a key, and makes those that are missing. The last element
// of an array of tables stands for it; item appends another one.
func (t *tomlTree) descend(from *yaml.Node, key unstable.Iterator, item bool) *yaml.Node {
	for key.Next() {
		k := key.Node()
		next := childOf(from, string(k.Data))
		if next == nil {
			next = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: t.line(k)}
			if item && key.IsLast() {
				next.Kind, next.Tag = yaml.SequenceNode, "!!seq"
			}
			from.Content = append(from.Content, t.key(k), next)
		}
		if next.Kind == yaml.SequenceNode {
			if item && key.IsLast() {
				next.Content = append(next.Content, &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: t.line(k)})
			}
			next = next.Content[len(next.Content)-1]
		}
		from = next
	}
	return from
}

func (t *tomlTree) key(k *unstable.Node) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: string(k.Data), Line: t.line(k)}
}

// put adds a pair to a table; a dotted key makes the tables between.
func (t *tomlTree) put(table *yaml.Node, pair *unstable.Node) {
	key := pair.Key()
	for key.Next() {
		k := key.Node()
		if key.IsLast() {
			table.Content = append(table.Content, t.key(k), t.value(pair.Value(), t.line(k)))
			return
		}
		next := childOf(table, string(k.Data))
		if next == nil {
			next = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: t.line(k)}
			table.Content = append(table.Content, t.key(k), next)
		}
		table = next
	}
}

// value returns a value; line is that of its key, for values without a place of their own.
func (t *tomlTree) value(v *unstable.Node, line int) *yaml.Node {
	if v.Raw.Length > 0 {
		line = t.line(v)
	}
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: string(v.Data), Line: line}
	switch v.Kind {
	case unstable.Bool:
		n.Tag = "!!bool"
	case unstable.Integer:
		n.Tag = "!!int"
	case unstable.Float:
		n.Tag = "!!float"
	case unstable.Array:
		n.Kind, n.Tag, n.Value = yaml.SequenceNode, "!!seq", ""
		for it := v.Children(); it.Next(); {
			if item := it.Node(); item.Kind != unstable.Comment {
				n.Content = append(n.Content, t.value(item, line))
			}
		}
	case unstable.InlineTable:
		n.Kind, n.Tag, n.Value = yaml.MappingNode, "!!map", ""
		for it := v.Children(); it.Next(); {
			if pair := it.Node(); pair.Kind == unstable.KeyValue {
				t.put(n, pair)
			}
		}
	}
	return n
}
