package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"penstock/node/api"
)

// What clients put into lines is shown as text, on one line.
func TestLogLinesShowControlCharactersAsText(t *testing.T) {
	var out, errors bytes.Buffer
	p := logsPrinter{w: &out, errors: &errors}
	evil := "a\x1b[31m\nb\u202e\x9b"
	item := &api.LogsItem{
		Entries: []api.LogEntry{{
			At: time.Unix(1700000000, 0), Node: evil, Level: evil, Message: evil,
			Attrs: []api.LogAttr{{Key: evil, Value: evil}, {Key: "plain", Value: "1.5s"}, {Key: "empty"}, {Key: "eq", Value: "a=b"}},
		}},
		Missing: []string{evil}, Lost: 3,
	}
	if err := p.item(item); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{out.String(), errors.String()} {
		if strings.ContainsFunc(text, func(r rune) bool { return r != '\n' && (r < ' ' || r > '~') }) {
			t.Errorf("control characters: %q", text)
		}
	}
	if strings.Count(out.String(), "\n") != 2 || !strings.HasSuffix(out.String(), ` plain=1.5s empty="" eq="a=b"`+"\n") {
		t.Errorf("printed:\n%s", out.String())
	}
	if !strings.Contains(errors.String(), "about 3 lines came too fast") || strings.Count(errors.String(), "\n") != 2 {
		t.Errorf("warnings:\n%s", errors.String())
	}
}
