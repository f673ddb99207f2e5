package cli

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	yaml "go.yaml.in/yaml/v3"
)

// maxSettings bounds a settings file, in bytes.
const maxSettings = 1 << 20

// resolveSettings gives each flag that is not set on the command line its value
// from the environment, else from the file. One name serves all three:
// --drain-wait, PENSTOCK_DRAIN_WAIT, drain-wait. An empty variable counts as
// unset. Flags of the root command (--addr, ...) are not settings.
func resolveSettings(cmd *cobra.Command, file string) error {
	var values map[string]yaml.Node
	if file != "" {
		var err error
		if values, err = readSettings(file); err != nil {
			return err
		}
	}
	var faults []error
	cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		value, inFile := values[f.Name]
		delete(values, f.Name)
		env := "PENSTOCK_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		text := os.Getenv(env)
		switch {
		case f.Name == "help" || f.Name == "config":
			if inFile {
				faults = append(faults, usagef("%s:%d: %s cannot be set in a file", file, value.Line, f.Name))
			}
		case f.Changed:
		case text != "":
			if err := f.Value.Set(text); err != nil {
				faults = append(faults, usagef("%s=%s: %v", env, text, err))
			}
			f.Changed = true
		case inFile:
			text, err := settingText(&value)
			if err == nil {
				err = f.Value.Set(text)
			}
			if err != nil {
				faults = append(faults, usagef("%s:%d: %s: %v", file, value.Line, f.Name, err))
			}
			f.Changed = true
		}
	})
	for _, key := range slices.Sorted(maps.Keys(values)) {
		faults = append(faults, usagef("%s:%d: unknown setting %q; see penstock start --help", file, values[key].Line, key))
	}
	return errors.Join(faults...)
}

func readSettings(file string) (map[string]yaml.Node, error) {
	data, err := readFile(file, maxSettings)
	if err != nil {
		return nil, usagef("--config: %v", err)
	}
	if len(data) > maxSettings {
		return nil, usagef("--config %s: larger than %d bytes", file, maxSettings)
	}
	values := map[string]yaml.Node{}
	if err := yaml.Unmarshal(data, &values); err != nil && !errors.Is(err, io.EOF) {
		return nil, usagef("--config %s: %s", file, strings.ReplaceAll(strings.TrimPrefix(err.Error(), "yaml: "), "\n", ";"))
	}
	return values, nil
}

// settingText converts a value of the file to flag syntax: lists and maps
// become "a,b" and "k=v,k=v".
func settingText(n *yaml.Node) (string, error) {
	var parts []string
	switch n.Kind {
	case yaml.ScalarNode:
		return n.Value, nil
	case yaml.SequenceNode:
		for _, item := range n.Content {
			if item.Kind != yaml.ScalarNode {
				return "", errors.New("want a list of scalars")
			}
			parts = append(parts, item.Value)
		}
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i+1].Kind != yaml.ScalarNode {
				return "", errors.New("want scalar values")
			}
			parts = append(parts, n.Content[i].Value+"="+n.Content[i+1].Value)
		}
	default:
		return "", fmt.Errorf("want a scalar, a list or a map")
	}
	return strings.Join(parts, ","), nil
}
