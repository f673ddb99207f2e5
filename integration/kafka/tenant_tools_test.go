package kafka

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"penstock/integration/realkafka"
)

// TestJavaToolsOfATenant runs tools that also query the whole cluster: the
// answers contain only the tenant's objects.
func TestJavaToolsOfATenant(t *testing.T) {
	c := cluster(t)
	r := newRun(t, startVirtual(t, c).red)
	file, machine := r.javaConfig()
	topic := r.newTopic("tools", 1)
	moves := filepath.Join(t.TempDir(), "moves.json")
	must(t, os.WriteFile(moves, fmt.Appendf(nil, `{"version":1,"partitions":[{"topic":%q,"partition":0,"replicas":[0,1,2]}]}`, topic), 0o600))
	for _, tool := range []struct {
		args []string
		want string
		not  string
	}{
		{
			args: []string{"org.apache.kafka.tools.reassign.ReassignPartitionsCommand", "--reassignment-json-file", moves, "--execute"},
			want: "Successfully started partition reassignment",
		},
		{
			args: []string{"org.apache.kafka.tools.reassign.ReassignPartitionsCommand", "--reassignment-json-file", moves, "--verify"},
			want: "Clearing topic-level throttles on topic " + topic, not: "red-",
		},
		{args: []string{"kafka.admin.ConfigCommand", "--describe", "--entity-type", "users"}, not: "admin"},
		{args: []string{"kafka.admin.ConfigCommand", "--describe", "--entity-type", "users", "--entity-name", "admin"}, not: "iterations"},
		{args: []string{"kafka.admin.ConfigCommand", "--describe", "--entity-type", "clients"}},
	} {
		t.Run(strings.Join(tool.args, " "), func(t *testing.T) {
			config := "--command-config"
			args := append(tool.args[1:], "--bootstrap-server", strings.Join(r.bootstrap, ","), config, file)
			out, err := realkafka.ToolWith(r.ctx, machine, "", tool.args[0], args...)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(out, tool.want) || tool.not != "" && strings.Contains(out, tool.not) {
				t.Errorf("the output is %q; want %q and not %q", out, tool.want, tool.not)
			}
		})
	}
}
