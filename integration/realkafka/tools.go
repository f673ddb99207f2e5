package realkafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// The versions installed by setup.sh.
const (
	kafkaVersion   = "4.3.1"
	kafkajsVersion = "2.2.4"
)

// ErrMissing is returned if something that setup.sh installs is missing.
var ErrMissing = errors.New("missing: run make setup")

// Peers returns the folder into which setup.sh installs.
func Peers() string {
	if dir := os.Getenv("PENSTOCK_PEERS"); dir != "" {
		return dir
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = filepath.Join(os.TempDir(), fmt.Sprint(os.Getuid()))
	}
	return filepath.Join(cache, "penstock-peers")
}

// Classpath returns the class path of the broker and the tools.
func Classpath() (string, error) {
	if _, err := exec.LookPath("java"); err != nil {
		return "", fmt.Errorf("java: %w", ErrMissing)
	}
	dir := filepath.Join(Peers(), "kafka-"+kafkaVersion)
	if _, err := os.Stat(dir); err != nil {
		return "", fmt.Errorf("%s: %w", dir, ErrMissing)
	}
	return filepath.Join(dir, "*"), nil
}

// StreamsClasspath is Classpath with Kafka Streams and its examples. They keep
// state in memory: RocksDB is not installed.
func StreamsClasspath() (string, error) {
	classpath, err := Classpath()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(Peers(), "kafka-streams-"+kafkaVersion)
	if _, err := os.Stat(dir); err != nil {
		return "", fmt.Errorf("%s: %w", dir, ErrMissing)
	}
	return classpath + string(filepath.ListSeparator) + filepath.Join(dir, "*"), nil
}

// NodeModules returns the folder that contains kafkajs, for NODE_PATH.
func NodeModules() (string, error) {
	dir := filepath.Join(Peers(), "kafkajs-"+kafkajsVersion, "node_modules")
	if _, err := os.Stat(dir); err != nil {
		return "", fmt.Errorf("%s: %w", dir, ErrMissing)
	}
	return dir, nil
}

// Tool runs a Kafka class to completion and returns its standard output. If it
// fails, the error includes both outputs.
func Tool(ctx context.Context, in, class string, args ...string) (string, error) {
	return ToolWith(ctx, nil, in, class, args...)
}

// ToolWith is Tool with JVM flags.
func ToolWith(ctx context.Context, machine []string, in, class string, args ...string) (string, error) {
	classpath, err := Classpath()
	if err != nil {
		return "", err
	}
	argv := append([]string{"-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"}, machine...)
	argv = append(append(argv, "-cp", classpath, class), args...)
	cmd := exec.CommandContext(ctx, "java", argv...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(in), &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s %s: %w\n%s%s", class, strings.Join(args, " "), err, &out, &errs)
	}
	return out.String(), nil
}
