package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"penstock/node/api"
	"penstock/node/kinds"
	"penstock/routing/resource"
	"penstock/routing/resource/codec"
)

// watchEvent is one change in -o json, one per line.
type watchEvent struct {
	Index   uint64          `json:"index"`
	Put     json.RawMessage `json:"put,omitempty"`
	Deleted *deletedKey     `json:"deleted,omitempty"`
}

type deletedKey struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
}

// watchResources prints the requested resources and then each change of them,
// until Ctrl-C.
func watchResources(cmd *cobra.Command, t *target, req api.GetRequest, output string) error {
	kind, err := resource.FindKind(kinds.All(), req.Kind)
	if err != nil {
		return err
	}
	w := &watcher{out: cmd.OutOrStdout(), output: output, labels: req.Labels, shown: map[string]bool{}}
	w.columns = columnsOf(kind.Name, output == "wide")
	return follow(cmd.Context(), t, api.MethodWatch, api.WatchRequest{Kind: kind.Name, Name: req.Name}, w.show)
}

// watcher prints changes as they arrive.
type watcher struct {
	out     io.Writer
	output  string
	labels  map[string]string
	columns columns

	shown   map[string]bool // names printed and not yet reported as deleted
	printed bool
	widths  []int // of the columns, in bytes; never shrink
}

func (w *watcher) show(item *api.WatchItem) error {
	var rows [][]string
	for _, d := range item.Put {
		o, err := decodeDocument(d)
		if err != nil {
			return err
		}
		if !o.HasLabels(w.labels) { // or no longer has them
			if w.shown[d.Name] {
				rows = w.reportDeleted(rows, item.Index, d)
			}
			continue
		}
		w.shown[d.Name] = true
		switch w.output {
		case "json":
			w.writeJSON(watchEvent{Index: item.Index, Put: d.Data})
		case "yaml":
			w.writeYAML(string(codec.EncodeYAML(o)))
		default:
			rows = append(rows, w.columns.row(o))
		}
	}
	for _, d := range item.Deleted {
		if w.shown[d.Name] {
			rows = w.reportDeleted(rows, item.Index, d)
		}
	}
	if w.output == "table" || w.output == "wide" {
		w.writeRows(rows)
	}
	return nil
}

// reportDeleted reports a resource as deleted.
func (w *watcher) reportDeleted(rows [][]string, index uint64, d api.Document) [][]string {
	delete(w.shown, d.Name)
	switch w.output {
	case "json":
		w.writeJSON(watchEvent{Index: index, Deleted: &deletedKey{Kind: d.Kind, Name: d.Name}})
	case "yaml":
		w.writeYAML(fmt.Sprintf("# %s/%s deleted\n", d.Kind, d.Name))
	default:
		rows = append(rows, []string{d.Name, "deleted"})
	}
	return rows
}

func (w *watcher) writeJSON(v watchEvent) {
	enc := json.NewEncoder(w.out)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // a terminal that went away is not an error of the command
}

func (w *watcher) writeYAML(text string) {
	if w.printed {
		fmt.Fprintln(w.out, "---")
	}
	w.printed = true
	fmt.Fprint(w.out, text)
}

// writeRows writes rows in columns at least as wide as before.
func (w *watcher) writeRows(rows [][]string) {
	if !w.printed {
		w.printed = true
		rows = slices.Insert(rows, 0, w.columns.heading)
		w.widths = make([]int, len(w.columns.heading))
	}
	for _, row := range rows {
		for i := range row {
			row[i] = orElse(row[i], "-")
			if i < len(w.widths) {
				w.widths[i] = max(w.widths[i], len(row[i]))
			}
		}
	}
	for _, row := range rows {
		var b strings.Builder
		for i, cell := range row {
			b.WriteString(cell)
			if i < len(row)-1 {
				b.WriteString(strings.Repeat(" ", w.widths[i]-len(cell)+3))
			}
		}
		fmt.Fprintln(w.out, b.String())
	}
}
