package file

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	yaml "go.yaml.in/yaml/v3"
)

const (
	// maxNodes bounds the values and keys of a file, and so the memory that a
	// parser takes: about 200 bytes each.
	maxNodes = 1_000_000
	// maxDepth bounds the nesting: services, endpoints, their tags, and to spare.
	maxDepth = 8
)

var (
	errEmpty   = errors.New("1: is empty: write [] if there are no endpoints")
	errTooMany = fmt.Errorf("1: has more than %d values: split it", maxNodes)
	yamlError  = regexp.MustCompile(`^yaml: (?:line (\d+): )?((?s).*)$`)
	// quoted is what errors of the parsers quote of a file, which may hold secrets.
	quoted = regexp.MustCompile(`(?s) *('.*'|".*") *`)
)

// parseYAML parses the one document of a file. Errors begin with a line.
func parseYAML(data []byte) (*yaml.Node, error) {
	if tooManyNodes(data) {
		return nil, errTooMany
	}
	parser := yaml.NewDecoder(bytes.NewReader(data))
	var root, more yaml.Node
	err := parser.Decode(&root)
	if errors.Is(err, io.EOF) || err == nil && len(root.Content) == 0 {
		return nil, errEmpty
	}
	if err == nil {
		if err = parser.Decode(&more); errors.Is(err, io.EOF) {
			return root.Content[0], nil
		}
	}
	if err != nil {
		parts := yamlError.FindStringSubmatch(err.Error())
		if parts == nil || parts[1] == "" {
			return nil, fmt.Errorf("1: is not YAML: %s", withoutQuotes(err.Error()))
		}
		return nil, fmt.Errorf("%s: is not YAML: %s", parts[1], withoutQuotes(parts[2]))
	}
	return nil, fmt.Errorf("%d: begins a second document: put one list or one map into a file", more.Line)
}

// withoutQuotes removes what the text of a parser's error quotes.
func withoutQuotes(text string) string {
	return strings.TrimSpace(quoted.ReplaceAllString(text, " "))
}

// tooManyNodes estimates the nodes of a YAML document from above, without
// parsing: it counts what begins or ends a value.
func tooManyNodes(data []byte) bool {
	if len(data) <= maxNodes {
		return false
	}
	count := 0
	for i, c := range data {
		switch c {
		case ',', '[', '{', '\n', '\r':
			count++
		case ':', '-', '?':
			if i+1 < len(data) && strings.IndexByte(" \t\r\n,]}", data[i+1]) >= 0 {
				count++
			}
		}
	}
	return count > maxNodes
}

// jsonParser parses JSON into the nodes of the YAML parser, with their lines.
type jsonParser struct {
	data    []byte
	decoder *json.Decoder
	nodes   int
	line    int // of the byte at offset
	offset  int64
}

// parseJSON parses the one value of a file. Errors begin with a line. JSON is not
// parsed as YAML, which has other escapes and refuses tabs.
func parseJSON(data []byte) (*yaml.Node, error) {
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, errEmpty
	}
	p := &jsonParser{data: data, decoder: json.NewDecoder(bytes.NewReader(data)), line: 1}
	p.decoder.UseNumber()
	root, err := p.value(0)
	if err != nil {
		return nil, err
	}
	if _, err := p.decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%d: has text after the end of the list or map: remove it", p.lineAt(p.decoder.InputOffset()))
	}
	return root, nil
}

// lineAt returns the line of an offset that is not before the last one.
func (p *jsonParser) lineAt(offset int64) int {
	offset = max(p.offset, min(offset, int64(len(p.data))))
	p.line += bytes.Count(p.data[p.offset:offset], []byte("\n"))
	p.offset = offset
	return p.line
}

// token returns the next token and its line.
func (p *jsonParser) token() (json.Token, int, error) {
	token, err := p.decoder.Token()
	line := p.lineAt(p.decoder.InputOffset())
	var syntax *json.SyntaxError
	switch {
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return nil, line, fmt.Errorf("%d: is not JSON: it ends too early", p.lineAt(int64(len(p.data))))
	case errors.As(err, &syntax):
		return nil, line, fmt.Errorf("%d: is not JSON: %s", p.lineAt(syntax.Offset), withoutQuotes(syntax.Error()))
	case err != nil:
		return nil, line, fmt.Errorf("%d: is not JSON: %s", line, withoutQuotes(err.Error()))
	}
	return token, line, nil
}

func (p *jsonParser) value(depth int) (*yaml.Node, error) {
	token, line, err := p.token()
	if err != nil {
		return nil, err
	}
	if p.nodes++; p.nodes > maxNodes {
		return nil, errTooMany
	}
	if depth > maxDepth {
		return nil, fmt.Errorf("%d: is nested deeper than %d levels", line, maxDepth)
	}
	n := &yaml.Node{Kind: yaml.ScalarNode, Line: line}
	switch token := token.(type) {
	case json.Delim:
		n.Kind = yaml.SequenceNode
		if token == '{' {
			n.Kind = yaml.MappingNode
		}
		for p.decoder.More() {
			item, err := p.value(depth + 1)
			if err != nil {
				return nil, err
			}
			n.Content = append(n.Content, item)
		}
		_, _, err = p.token() // the end
	case string:
		n.Tag, n.Value = "!!str", token
	case json.Number:
		n.Tag, n.Value = "!!int", token.String()
	case bool:
		n.Tag, n.Value = "!!bool", fmt.Sprint(token)
	case nil:
		n.Tag, n.Value = "!!null", "null"
	}
	return n, err
}
