package cli

import (
	"os"
	"slices"
	"strings"
	"testing"

	"penstock/node"
)

// The lines of --init can be pasted unchanged.
func TestJoinLinesNeedNoEditing(t *testing.T) {
	host, _ := os.Hostname()
	if host = strings.TrimRight(host, "0123456789.-"); host == "" {
		host = "node"
	}
	const line = "penstock start --data-dir DIR --join J --token T"
	for _, c := range []struct {
		name  string
		first node.Config
		want  []string
	}{
		{"on this machine", node.Config{Name: "n1", DataDir: "/x/n1",
			Cluster: "127.0.0.1:7947", Gossip: "127.0.0.1:7946", HTTP: "127.0.0.1:7948",
		}, []string{
			"penstock start --name n2 --data-dir /x/n2 --cluster 127.0.0.2:7947 --gossip 127.0.0.2:7946 --http 127.0.0.2:7948 " +
				"--bind 127.0.0.2 --join J --token T",
			"penstock start --name n3 --data-dir /x/n3 --cluster 127.0.0.3:7947 --gossip 127.0.0.3:7946 --http 127.0.0.3:7948 " +
				"--bind 127.0.0.3 --join J --token T",
		}},
		{"a name without a number", node.Config{Name: "edge", DataDir: "d",
			Cluster: "127.1.0.9:1", Gossip: "127.1.0.9:2", HTTP: "127.1.0.9:3",
		}, []string{
			"penstock start --name edge-2 --data-dir edge-2 --cluster 127.1.0.10:1 --gossip 127.1.0.10:2 --http 127.1.0.10:3 " +
				"--bind 127.1.0.10 --join J --token T",
			"penstock start --name edge-3 --data-dir edge-3 --cluster 127.1.0.11:1 --gossip 127.1.0.11:2 --http 127.1.0.11:3 " +
				"--bind 127.1.0.11 --join J --token T",
		}},
		{"no name: that of the host", node.Config{DataDir: "/x/n1", Cluster: "127.0.0.1:1", Gossip: "127.0.0.1:2", HTTP: "127.0.0.1:3"}, []string{
			"penstock start --name " + host + "-2 --data-dir /x/" + host + "-2 --cluster 127.0.0.2:1 --gossip 127.0.0.2:2 --http " +
				"127.0.0.2:3 --bind 127.0.0.2 --join J --token T",
			"penstock start --name " + host + "-3 --data-dir /x/" + host + "-3 --cluster 127.0.0.3:1 --gossip 127.0.0.3:2 --http " +
				"127.0.0.3:3 --bind 127.0.0.3 --join J --token T",
		}},
		{"between machines", node.Config{Name: "n1", DataDir: "d",
			Cluster: "10.0.0.1:7947", Gossip: "10.0.0.1:7946", HTTP: "127.0.0.1:7948",
		}, []string{
			"penstock start --data-dir DIR --cluster HOST:7947 --gossip HOST:7946 --join J --token T",
		}},
	} {
		if got := joinLines(line, c.first); !slices.Equal(got, c.want) {
			t.Errorf("%s:\n%q, want\n%q", c.name, got, c.want)
		}
	}
}
