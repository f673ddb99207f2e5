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

// The versions that setup.sh installs.
const (
	kafkaVersion   = "4.3.1"
	kafkajsVersion = "2.2.4"
)

// ErrMissing is the error of whatever setup.sh should have installed.
var ErrMissing = errors.New("missing: run make setup")

// Peers is the folder into which setup.sh installs.
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

// Classpath is what Java needs for the broker and the tools.
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

// StreamsClasspath is Classpath with Kafka Streams and its examples, whose state
// is in memory: RocksDB is not there.
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

// NodeModules is the folder that holds kafkajs, for NODE_PATH.
func NodeModules() (string, error) {
	dir := filepath.Join(Peers(), "kafkajs-"+kafkajsVersion, "node_modules")
	if _, err := os.Stat(dir); err != nil {
		return "", fmt.Errorf("%s: %w", dir, ErrMissing)
	}
	return dir, nil
}

// Tool runs a Java class of Kafka's to its end, and gives what it printed on
// standard output. Where it fails, the error holds what it printed on either.
func Tool(ctx context.Context, in, class string, args ...string) (string, error) {
	return ToolWith(ctx, nil, in, class, args...)
}

// ToolWith is Tool with flags of the Java machine's own.
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
