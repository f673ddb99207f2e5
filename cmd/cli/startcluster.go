package cli

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"penstock/node"
	"penstock/node/trust"
)

// clusterFlagNames are the settings that --dev excludes.
var clusterFlagNames = []string{
	"init", "expect", "join", "token", "token-ttl", "rejoin", "trust-domain", "gossip", "advertise", "zone", "voters", "dead-voter-after",
	"forget-after",
}

// clusterFlags adds the flags that say which cluster a node belongs to.
func (s *settings) clusterFlags(cmd *cobra.Command) {
	f, n := cmd.Flags(), &s.node
	f.BoolVar(&n.Init, "init", false, "start a new cluster of one node, and print the command to join it if stdout is a terminal")
	f.BoolVar(&s.printToken, "print-token", false, "with --init: print the join command with its token even if stdout is not a terminal")
	f.IntVar(&n.Expect, "expect", 0, "wait for this many nodes and form one cluster of them; all need the same --token")
	f.StringSliceVar(&n.Join, "join", nil, "cluster addresses of other nodes, host:port,...")
	// This flag shadows the global --token, so that a settings file can set it.
	f.StringVar(&n.Token, "token", "", "token to join with: from token create or the command that --init printed, or for --expect "+
		"from token new; set it in PENSTOCK_TOKEN or the file to hide it from process lists")
	f.DurationVar(&n.TokenTTL, "token-ttl", 24*time.Hour, "with --init or --expect: how long the first token of the cluster "+
		"lets nodes join")
	f.BoolVar(&n.Rejoin, "rejoin", false, "if the node of --data-dir has left its cluster or was removed: empty the folder and join again "+
		"as a new node, with --join and --token")
	f.StringVar(&n.TrustDomain, "trust-domain", "", "with --init or --expect: the SPIFFE trust domain of the cluster's workloads, such as "+
		"prod.example.com (default the cluster's ID); it cannot be changed later")
	f.StringVar(&n.Gossip, "gossip", "127.0.0.1:7946", "gossip address, TCP and UDP")
	f.StringVar(&n.Advertise, "advertise", "", "host at which other nodes reach this one (default that of --cluster; required if "+
		"that is a wildcard)")
	f.StringVar(&n.Zone, "zone", "", "zone of the node; voters are spread over zones (default its tag zone)")
	f.IntVar(&n.Voters, "voters", 5, "maximum number of voters; the other nodes serve traffic too")
	f.DurationVar(&n.DeadVoterAfter, "dead-voter-after", time.Minute, "replace a voter with another node once it is unreachable for "+
		"this long")
	f.DurationVar(&n.ForgetAfter, "forget-after", 72*time.Hour, "remove a non-voter from the cluster once it is unreachable for "+
		"this long")
	f.StringVar(&n.HTTPCert, "http-cert", "", "PEM file with the certificate of --http")
	f.StringVar(&n.HTTPKey, "http-key", "", "PEM file with the key of --http-cert")
	f.StringVar(&n.HTTPCA, "http-ca", "", "PEM file with the CAs of the certificates that all clients of --http must show, beside their tokens "+
		"(requires --http-cert)")
	f.BoolVar(&n.HTTPInsecure, "http-insecure", false, "allow --http without TLS on a non-loopback address; /v1 is not served there")
	_ = cmd.MarkFlagFilename("http-cert", "pem", "crt")
	_ = cmd.MarkFlagFilename("http-key", "pem", "key")
	_ = cmd.MarkFlagFilename("http-ca", "pem", "crt")
}

// newFolderHelp lists the options for a node whose data folder is new.
const newFolderHelp = "the folder is new: use --init (new cluster), --join ADDR --token T (join one), --expect N --join ADDR,... " +
	"--token T (form one of N nodes) or --dev"

// checkCluster rejects settings that exclude each other.
func (s *settings) checkCluster(cmd *cobra.Command) error {
	n := &s.node
	if env := os.Getenv("PENSTOCK_TOKEN"); env != "" && n.Token == env && (n.Dev || n.Init) {
		// The variable is meant for the other commands of this shell.
		n.Token = ""
		cmd.Flags().Lookup("token").Changed = false
	}
	if n.Dev {
		for _, name := range clusterFlagNames {
			if cmd.Flags().Changed(name) {
				return usagef("--%s: cannot be combined with --dev, which runs a single node", name)
			}
		}
		n.Gossip = ""
		return nil
	}
	switch {
	case n.DataDir == "":
		return usagef("--data-dir: is required, except with --dev")
	case n.Expect < 0:
		return usagef("--expect %d: want the number of nodes that form the cluster", n.Expect)
	case n.Init && n.Token != "":
		return usagef("--token: --init creates the first token itself; leave it out")
	}
	return nil
}

// checkNew reports settings that a certainly new node lacks.
func (s *settings) checkNew() error {
	n := &s.node
	if n.Dev || !emptyFolder(n.DataDir) { // otherwise the data folder decides what is needed
		return nil
	}
	switch {
	case !n.Init && n.Expect == 0 && len(n.Join) == 0:
		return usagef("%s: %s", n.DataDir, newFolderHelp)
	case n.Init:
		return nil
	case n.Token == "" && n.Expect != 0:
		return usagef("--expect needs the same --token on all nodes: `penstock token new` creates one")
	case n.Token == "":
		return usagef("--token: --join needs one; `penstock token create` at a node of the cluster creates it")
	}
	token, err := trust.ParseToken(n.Token)
	switch {
	case err != nil:
		return usagef("--token or PENSTOCK_TOKEN: %v", err)
	case token.Kind == trust.Admin:
		return usagef("--token or PENSTOCK_TOKEN: this token is for commands, not for nodes; `penstock token create --role join` " +
			"creates one for nodes")
	}
	return nil
}

// emptyFolder reports whether a folder is empty or missing.
func emptyFolder(path string) bool {
	entries, err := os.ReadDir(path)
	return errors.Is(err, os.ErrNotExist) || err == nil && len(entries) == 0
}

// announce prints the line that other nodes join with. It contains a token, so
// without --print-token it goes to a terminal only: service managers store the
// output of a process.
func (s *settings) announce(cmd *cobra.Command, line string) {
	log, out := s.node.Log, cmd.OutOrStdout()
	at := " --addr unix:" + filepath.Join(s.node.DataDir, node.SocketName)
	if !s.printToken && !isTerminal(out) {
		log.Info("new cluster; the command to join it contains a token, and is printed only to a terminal or with --print-token",
			"token", "penstock token create --role join"+at, "commands", "penstock status"+at)
		return
	}
	for _, l := range joinLines(line, s.node) {
		fmt.Fprintln(out, l)
	}
	log.Info("new cluster; the commands on stdout start more nodes, with a token that is valid for 24 hours", "commands", "penstock status"+at)
}

// joinLines returns the command lines that start further nodes: the cluster's
// join line, completed with each node's addresses. If the first node listens on
// a loopback address, the others must be on this machine, so two complete lines
// can be pasted; otherwise HOST stands for the address of the other machine.
func joinLines(line string, first node.Config) []string {
	const folder = "--data-dir DIR"
	cluster, err1 := netip.ParseAddrPort(first.Cluster)
	gossip, err2 := netip.ParseAddrPort(first.Gossip)
	http, err3 := netip.ParseAddrPort(first.HTTP)
	if errors.Join(err1, err2, err3) != nil {
		return []string{line}
	}
	if !cluster.Addr().IsLoopback() || !cluster.Addr().Is4() {
		return []string{strings.Replace(line, folder,
			fmt.Sprintf("--data-dir DIR --cluster HOST:%d --gossip HOST:%d", cluster.Port(), gossip.Port()),
			1)}
	}
	name := first.Name
	if name == "" { // it uses the host's name, as the other nodes would
		name, _ = os.Hostname()
		name = strings.TrimRight(name, "0123456789.-")
	}
	name = cmp.Or(name, "node")
	base, number := strings.TrimRight(name, "0123456789"), 1
	if n, err := strconv.Atoi(name[len(base):]); err == nil {
		number = n
	} else {
		base += "-"
	}
	var lines []string
	at := cluster.Addr()
	for i := 1; i <= 2; i++ {
		at = at.Next()
		name := fmt.Sprint(base, number+i)
		own := fmt.Sprintf("--name %s --data-dir %s --cluster %s:%d --gossip %s:%d --http %s:%d --bind %s",
			name, filepath.Join(filepath.Dir(first.DataDir), name), at, cluster.Port(), at, gossip.Port(), at, http.Port(), at)
		lines = append(lines, strings.Replace(line, folder, own, 1))
	}
	return lines
}
