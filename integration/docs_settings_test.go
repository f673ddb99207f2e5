package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"penstock/cmd/cli"
	"penstock/netio"
)

// The tables in docs/settings.md and docs/commands.md match the flags of the
// commands.
func TestDocsSettings(t *testing.T) {
	start := find(t, "start")
	var b strings.Builder
	b.WriteString("| flag | `--config` key | variable | type | default | meaning |\n|---|---|---|---|---|---|\n")
	start.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		if f.Name == "help" {
			return
		}
		key, variable := "`"+f.Name+"`", "`PENSTOCK_"+strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))+"`"
		if f.Name == "config" {
			key = ""
		}
		fmt.Fprintf(&b, "| `--%s` | %s | %s | %s | %s | %s |\n", f.Name, key, variable, flagType(f), flagDefault(f), cell(f.Usage))
	})
	checkGenerated(t, "docs/settings.md", "start", b.String())
}

func TestDocsCommands(t *testing.T) {
	root := cli.New(cli.Streams{})
	var b strings.Builder
	for _, cmd := range withSubcommands(root) {
		if cmd.Name() == "help" || cmd.Hidden {
			continue
		}
		path := strings.TrimPrefix(cmd.CommandPath(), "penstock ")
		use := strings.TrimSuffix(path, cmd.Name()) + cmd.Use
		fmt.Fprintf(&b, "## penstock %s\n\n    penstock %s\n\n%s.\n\n", path, use, cmd.Short)
		if cmd.Long != "" {
			fmt.Fprintf(&b, "%s\n\n", cmd.Long)
		}
		if cmd.Example != "" {
			var lines []string
			for line := range strings.Lines(cmd.Example) {
				lines = append(lines, "    "+strings.TrimSpace(line))
			}
			fmt.Fprintf(&b, "For example:\n\n%s\n\n", strings.Join(lines, "\n"))
		}
		if cmd.Name() == "start" {
			b.WriteString("Its flags are in [settings](settings.md).\n\n")
			continue
		}
		flagTable(&b, cmd.LocalNonPersistentFlags())
	}
	checkGenerated(t, "docs/commands.md", "commands", b.String())
	b.Reset()
	flagTable(&b, root.PersistentFlags())
	checkGenerated(t, "docs/commands.md", "all", b.String())
}

// withSubcommands lists the subcommands of a command, each followed by its own.
// Completion scripts are described by their parent command.
func withSubcommands(cmd *cobra.Command) []*cobra.Command {
	var all []*cobra.Command
	for _, c := range cmd.Commands() {
		all = append(all, c)
		if c.Name() != "completion" {
			all = append(all, withSubcommands(c)...)
		}
	}
	return all
}

// commandLine matches a call of penstock in a document, in a block or as inline
// code.
var commandLine = regexp.MustCompile("(?m)(?:^    (?:sudo |bin/|go run \\./cmd/)?|`)penstock ([a-z][^`\\n]*)")

// Each command line in the documents uses an existing command and existing
// flags.
func TestDocsCommandLines(t *testing.T) {
	checked := 0
	for _, name := range documents(t) {
		for _, m := range commandLine.FindAllStringSubmatch(readDocument(t, name), -1) {
			line, _, _ := strings.Cut(m[1], " #")
			line, _, _ = strings.Cut(line, "|")
			cmd, args, err := cli.New(cli.Streams{}).Find(strings.Fields(line))
			switch {
			case err != nil || !cmd.HasParent():
				t.Errorf("%s: penstock %s: there is no such command", name, line)
			case cmd.ParseFlags(args) != nil:
				t.Errorf("%s: penstock %s: %v", name, line, cmd.ParseFlags(args))
			}
			checked++
		}
	}
	if checked == 0 {
		t.Fatal("no command line was checked")
	}
}

func find(t *testing.T, name string) *cobra.Command {
	t.Helper()
	cmd, _, err := cli.New(cli.Streams{}).Find([]string{name})
	if err != nil {
		t.Fatal(err)
	}
	return cmd
}

func flagTable(b *strings.Builder, flags *pflag.FlagSet) {
	head := "| flag | type | default | meaning |\n|---|---|---|---|\n"
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Name == "help" || f.Hidden {
			return
		}
		name := "`--" + f.Name + "`"
		if f.Shorthand != "" {
			name = "`-" + f.Shorthand + "`, " + name
		}
		fmt.Fprintf(b, "%s| %s | %s | %s | %s |\n", head, name, flagType(f), flagDefault(f), cell(f.Usage))
		head = ""
	})
	if head == "" {
		b.WriteString("\n")
	}
}

func flagType(f *pflag.Flag) string {
	switch kind := f.Value.Type(); kind {
	case "string":
		return "text"
	case "bool":
		return "true or false"
	case "int":
		return "number"
	case "stringSlice":
		return "list, `a,b`"
	case "stringToString":
		return "map, `k=v,...`"
	default:
		return kind
	}
}

func flagDefault(f *pflag.Flag) string {
	if f.DefValue == "" || f.DefValue == "[]" {
		return ""
	}
	return "`" + f.DefValue + "`"
}

func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }

// checkSettings sets the flag of each setting in block.
func checkSettings(t *testing.T, where, block string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "settings.yaml")
	if err := os.WriteFile(file, []byte(block), 0o600); err != nil {
		t.Fatal(err)
	}
	// The invalid address keeps the node from starting.
	var out, err strings.Builder
	code := cli.Run([]string{"start", "--config", file, "--cluster", "nowhere"}, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &err})
	if code != 2 || !strings.Contains(err.String(), "--cluster nowhere") || strings.Count(err.String(), ";") > 0 {
		t.Errorf("%s: exit %d: %s", where, code, err.String())
	}
}

// The systemd unit allows the time that a drain takes by default.
func TestDocsUnit(t *testing.T) {
	m := regexp.MustCompile(`(?m)^TimeoutStopSec=(\w+)$`).FindStringSubmatch(readDocument(t, "deploy/penstock.service"))
	if m == nil {
		t.Fatal("the unit has no TimeoutStopSec")
	}
	limit, err := time.ParseDuration(m[1])
	if err != nil {
		t.Fatal(err)
	}
	drain := time.Duration(0)
	for _, name := range []string{"drain-wait", "drain-timeout"} {
		d, err := find(t, "start").Flags().GetDuration(name)
		if err != nil {
			t.Fatal(err)
		}
		drain += d
	}
	if limit <= drain {
		t.Errorf("TimeoutStopSec is %v, a drain takes %v", limit, drain)
	}
}

// docs/architecture.md states the size of a connection.
func TestDocsSizeOfAConnection(t *testing.T) {
	m := regexp.MustCompile("\\| `Conn`[^|]*\\| always \\| (\\d+) bytes").FindStringSubmatch(readDocument(t, "docs/architecture.md"))
	if m == nil {
		t.Fatal("docs/architecture.md does not tell the size of a Conn")
	}
	most, _ := strconv.Atoi(m[1])
	if size := unsafe.Sizeof(netio.Conn{}); size > uintptr(most) {
		t.Errorf("a Conn has %d bytes, the document says %d at most", size, most)
	}
}
