package cli

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	yaml "go.yaml.in/yaml/v3"

	"penstock/cmd/manifests"
)

func kubernetesCommand(t *target) *cobra.Command {
	return commandGroup(&cobra.Command{
		Use:   "kubernetes",
		Short: "Run a cluster on Kubernetes",
		Long:  "The Helm chart in deploy/helm/penstock does the same with Helm.",
	}, manifestsCommand(), kubernetesCRDsCommand(), preStopCommand(t))
}

// manifestFlags are the flags of kubernetes manifests.
type manifestFlags struct {
	release          manifests.Release
	replicas, expect int
	image, storage   string
	storageClass     string
	service, values  string
	listeners        []string
	newToken         bool
}

func manifestsCommand() *cobra.Command {
	var m manifestFlags
	var output string
	cmd := &cobra.Command{
		Use:   "manifests",
		Short: "Print the objects of a cluster on Kubernetes, as the Helm chart has them",
		Long: "--values takes a file with the values of the chart; the other flags override it. Nodes know one another by a token, " +
			"which is made once: --new-token prints a Secret with a new one, and without it the Secret NAME-token must exist.",
		Example: "  penstock kubernetes manifests --new-token --listener https=443:8443 | kubectl apply -f -\n" +
			"  penstock kubernetes manifests --replicas 5 --values values.yaml | kubectl diff -f -",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			values, err := m.read(cmd)
			if err != nil {
				return err
			}
			objects, err := manifests.Render(m.release, values)
			if err != nil {
				return usagef("%v", err)
			}
			if output == "json" {
				return printJSON(cmd.OutOrStdout(), map[string]any{"apiVersion": "v1", "kind": "List", "items": objects})
			}
			e := yaml.NewEncoder(cmd.OutOrStdout())
			e.SetIndent(2)
			for _, o := range objects {
				if err := e.Encode(o); err != nil {
					return err
				}
			}
			return e.Close()
		},
	}
	f := cmd.Flags()
	f.StringVar(&m.release.Name, "name", "penstock", "name of all objects")
	f.StringVar(&m.release.Namespace, "namespace", "default", "namespace of all objects")
	f.IntVar(&m.replicas, "replicas", 3, "number of pods")
	f.IntVar(&m.expect, "expect", 3, "pods that a new cluster waits for")
	f.StringVar(&m.image, "image", "", "image, REPOSITORY:TAG (default that of the chart)")
	f.StringVar(&m.storage, "storage", "1Gi", "size of each pod's volume")
	f.StringVar(&m.storageClass, "storage-class", "", "its storage class (default the cluster's)")
	f.StringArrayVar(&m.listeners, "listener", nil, "port of a Listener, NAME=PORT or NAME=PORT:CONTAINER-PORT; may be repeated")
	f.StringVar(&m.service, "service-type", "ClusterIP", "type of the Service for these: ClusterIP, NodePort or LoadBalancer")
	f.StringVar(&m.values, "values", "", "file with values of the chart")
	f.BoolVar(&m.newToken, "new-token", false, "print a Secret with a new token")
	outputFlag(cmd, &output, "yaml", "json")
	_ = cmd.MarkFlagFilename("values", "yaml", "yml")
	return cmd
}

// read returns the values of the file, with those of the flags in their place.
func (m *manifestFlags) read(cmd *cobra.Command) (map[string]any, error) {
	values := map[string]any{}
	if m.values != "" {
		data, err := readFile(m.values, maxSettings)
		if err != nil {
			return nil, usagef("--values: %v", err)
		}
		if err := yaml.Unmarshal(data, &values); err != nil || len(data) > maxSettings {
			return nil, usagef("--values %s: want a map of values, up to %d bytes: %v", m.values, maxSettings, err)
		}
	}
	set := func(flag string, value any, path ...string) {
		if cmd.Flags().Changed(flag) {
			setValue(values, value, path...)
		}
	}
	set("replicas", m.replicas, "replicas")
	set("expect", m.expect, "expect")
	set("storage", m.storage, "storage", "size")
	set("storage-class", m.storageClass, "storage", "storageClass")
	set("service-type", m.service, "service", "type")
	repository, tag := m.image, ""
	if i := strings.LastIndex(m.image, ":"); i > strings.LastIndex(m.image, "/") {
		repository, tag = m.image[:i], m.image[i+1:]
	}
	set("image", repository, "image", "repository")
	set("image", tag, "image", "tag")
	var listeners []any
	for _, text := range m.listeners {
		l, err := parseListener(text)
		if err != nil {
			return nil, err
		}
		listeners = append(listeners, l)
	}
	set("listener", listeners, "listeners")
	if token, _ := values["token"].(map[string]any); !m.newToken && (token == nil || token["existingSecret"] == nil) {
		setValue(values, m.release.Name+"-token", "token", "existingSecret")
	}
	return values, nil
}

// setValue sets the value at a path of maps.
func setValue(values map[string]any, value any, path ...string) {
	for _, name := range path[:len(path)-1] {
		below, ok := values[name].(map[string]any)
		if !ok {
			below = map[string]any{}
			values[name] = below
		}
		values = below
	}
	values[path[len(path)-1]] = value
}

// parseListener parses NAME=PORT or NAME=PORT:CONTAINER-PORT.
func parseListener(text string) (map[string]any, error) {
	name, ports, _ := strings.Cut(text, "=")
	port, inside, both := strings.Cut(ports, ":")
	if !both {
		inside = port
	}
	a, err1 := strconv.Atoi(port)
	b, err2 := strconv.Atoi(inside)
	if name == "" || err1 != nil || err2 != nil {
		return nil, usagef("--listener %s: want NAME=PORT or NAME=PORT:CONTAINER-PORT, such as https=443:8443", text)
	}
	return map[string]any{"name": name, "port": a, "containerPort": b}, nil
}

// podName returns the name and namespace of the pod that this process runs in.
func podName() (namespace, name string, err error) {
	namespace, name = os.Getenv("POD_NAMESPACE"), os.Getenv("POD_NAME")
	if namespace == "" || name == "" {
		return "", "", fmt.Errorf("POD_NAMESPACE and POD_NAME are not set: this command runs in a pod of the chart")
	}
	return namespace, name, nil
}
