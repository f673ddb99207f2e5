package top

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"penstock/internal/testkit"
	"penstock/node/api"
)

var update = flag.Bool("update", false, "rewrite the screens in testdata")

func TestMain(m *testing.M) { testkit.VerifyTestMain(m) }

// TestScreens plays the stories in testdata: answers of nodes and keys go in, screens
// come out. The commands:
//
//	new [ascii] [node=NAME]   a model without any answer
//	load FILE                 the answers in testdata/FILE: topic -> JSON
//	answer TOPIC [late]       the answer in the input, as JSON; late: to what was asked at "asked"
//	asked                     remembers what is asked now
//	fault TOPIC [code=CODE]   the error in the input instead
//	link ...                  the state of the connection, as JSON
//	keys                      the keys in the input, apart by spaces; Space is one
//	size W H                  the terminal gets another size
//	screen                    the picture
//	styles                    the picture in letters of styles: styleLetters
//	want                      what the model asks for
func TestScreens(t *testing.T) {
	if *update {
		if err := flag.Set("rewrite", "true"); err != nil {
			t.Fatal(err)
		}
	}
	datadriven.Walk(t, "testdata/screens", func(t *testing.T, path string) {
		var m *Model
		var asked want
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch {
			case d.Cmd == "new":
				m = modelOf(d)
				return ""
			case d.Cmd == "asked":
				asked = m.want()
				return ""
			case d.HasArg("late"):
				a := answerOf(t, m, topic(d.CmdArgs[0].Key), []byte(d.Input))
				a.to = asked
				m.Update(a)
				return ""
			}
			return command(t, m, d)
		})
	})
}

func modelOf(d *datadriven.TestData) *Model {
	g, node := unicodeGlyphs, ""
	for _, a := range d.CmdArgs {
		switch a.Key {
		case "ascii":
			g = asciiGlyphs
		case "node":
			node = a.Vals[0]
		}
	}
	return newModel(g, time.UTC, time.Second, node)
}

func command(t *testing.T, m *Model, d *datadriven.TestData) string {
	switch d.Cmd {
	case "load":
		data, err := os.ReadFile(filepath.Join("testdata", d.CmdArgs[0].Key))
		if err != nil {
			t.Fatal(err)
		}
		var answers []struct {
			Topic topic
			Value json.RawMessage
		}
		if err := json.Unmarshal(data, &answers); err != nil {
			t.Fatal(err)
		}
		for _, a := range answers {
			m.Update(answerOf(t, m, a.Topic, a.Value))
		}
	case "answer":
		m.Update(answerOf(t, m, topic(d.CmdArgs[0].Key), []byte(d.Input)))
	case "fault":
		err := errors.New(d.Input)
		if len(d.CmdArgs) > 1 {
			err = api.Errorf(api.Code(d.CmdArgs[1].Vals[0]), "%s", d.Input)
		}
		m.Update(answer{topic: topic(d.CmdArgs[0].Key), to: m.want(), err: err})
	case "link":
		var l struct {
			Node, Addr, Why string
			Up              bool
			Wait            time.Duration
		}
		if err := json.Unmarshal([]byte(d.Input), &l); err != nil {
			t.Fatal(err)
		}
		m.Update(link{l.Node, l.Addr, l.Up, l.Why, l.Wait})
	case "keys":
		for _, k := range strings.Fields(d.Input) {
			if k == "Space" {
				k = " "
			}
			m.Update(key(k))
		}
		if m.done {
			return "done\n"
		}
	case "size":
		var s size
		if _, err := fmt.Sscan(d.CmdArgs[0].Key+" "+d.CmdArgs[1].Key, &s.w, &s.h); err != nil {
			t.Fatal(err)
		}
		m.Update(s)
	case "screen":
		return frame(m.draw(), func(c cell) rune { return c.r })
	case "styles":
		return frame(m.draw(), func(c cell) rune { return rune(styleLetters[c.style]) })
	case "want":
		return fmt.Sprintf("%+v\n", m.want())
	default:
		t.Fatalf("unknown command %s", d.Cmd)
	}
	return ""
}

// frame shows a screen between bars, so that its width is seen and no line is blank.
func frame(s *screen, of func(cell) rune) string {
	var b strings.Builder
	for y := range s.h {
		b.WriteByte('|')
		for _, c := range s.cells[y*s.w : (y+1)*s.w] {
			b.WriteRune(of(c))
		}
		b.WriteString("|\n")
	}
	return b.String()
}

// answerOf makes an answer to what the model asks now.
func answerOf(t *testing.T, m *Model, about topic, data []byte) answer {
	t.Helper()
	values := map[topic]any{
		topicSample: new(api.TopSample), topicMembers: new(api.Members), topicStatus: new(api.Status), topicProblems: new(api.Problems),
		topicEndpoints: new(api.Endpoints), topicFlow: new(api.FlowResult), topicConnections: new(api.Connections), topicTrace: new(api.Trace),
		topicHistory: new([]api.TelemetryFrame),
	}
	v := values[about]
	if v == nil {
		t.Fatalf("unknown topic %q", about)
	}
	if err := json.Unmarshal(data, v); err != nil {
		t.Fatalf("%s: %v", about, err)
	}
	if frames, ok := v.(*[]api.TelemetryFrame); ok {
		v = *frames
	}
	return answer{topic: about, to: m.want(), value: v}
}
