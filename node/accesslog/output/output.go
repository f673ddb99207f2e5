// Package output has the outputs of the access log that users name: stderr, files and
// syslog servers. It refuses what cannot be meant; a server that is away is tried again
// for as long as the log is open.
//
//	t, err := output.Parse("syslog+tls://logs.example.com:6514?ca=/etc/penstock/logs-ca.pem&format=json")
//	out, err := t.Open("node-1", os.Stderr)
//	log.Add(accesslog.NewLines(accesslog.LinesConfig{Name: t.Name, Output: out, ...}))
package output

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"penstock/node/accesslog"
	"penstock/routing/resource"
)

// Usage says what Parse takes.
const Usage = "stderr, file:PATH, syslog+udp://HOST:PORT, syslog+tcp://HOST:PORT, syslog+tls://HOST:PORT or unix:PATH"

const (
	// minSize, defaultSize and maxSize are sizes at which files are rotated.
	minSize, defaultSize, maxSize resource.Size = 1 << 20, 100 << 20, 1 << 40
	// defaultKeep and maxKeep are numbers of files that are kept beside the current one.
	defaultKeep, maxKeep = 5, 1000
)

// Target is an output that a user named.
type Target struct {
	// Name is the text without what follows its ?, for metrics.
	Name string
	// Format is that of its lines; "": that of the others.
	Format string

	scheme   string // stderr, file, udp, tcp, tls or unix
	at       string // path or address
	size     resource.Size
	keep     int
	facility int
	// ca, cert and key are files for TLS; "": the system's CAs, and no certificate.
	ca, cert, key string
}

// facilities by name (RFC 5424, section 6.2.1), those that programs use.
var facilities = map[string]int{
	"user": 1, "daemon": 3, "auth": 4, "syslog": 5, "authpriv": 10, "local0": 16, "local1": 17, "local2": 18, "local3": 19, "local4": 20,
	"local5": 21, "local6": 22, "local7": 23,
}

// schemes has the options of each kind of output.
var schemes = map[string][]string{
	"stderr": {"format"}, "file": {"format", "size", "keep"},
	"udp": {"format", "facility"}, "tcp": {"format", "facility"}, "unix": {"format", "facility"},
	"tls": {"format", "facility", "ca", "cert", "key"},
}

// Parse reads the name of an output.
func Parse(text string) (Target, error) {
	t := Target{size: defaultSize, keep: defaultKeep, facility: facilities["local0"]}
	var query string
	t.Name, query, _ = strings.Cut(text, "?")
	head, rest, _ := strings.Cut(t.Name, ":")
	switch {
	case t.Name == "stderr":
		t.scheme = "stderr"
	case head == "file" || head == "unix":
		t.scheme, t.at = head, rest
		if path, err := url.PathUnescape(rest); err == nil {
			t.at = path
		}
		if !filepath.IsAbs(t.at) {
			return t, fmt.Errorf("%.200q: want an absolute path, such as %s:/var/log/penstock/access.log", text, head)
		}
	case slices.Contains([]string{"syslog+udp", "syslog+tcp", "syslog+tls"}, head) && strings.HasPrefix(rest, "//"):
		t.scheme, t.at = strings.TrimPrefix(head, "syslog+"), strings.TrimPrefix(rest, "//")
		host, port, err := net.SplitHostPort(t.at)
		if n, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil || n == 0 || host == "" {
			return t, fmt.Errorf("%.200q: want a host and a port, such as %s://logs.example.com:6514", text, head)
		}
	default:
		return t, fmt.Errorf("%.200q: want %s", text, Usage)
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return t, fmt.Errorf("%.200q: %w", text, err)
	}
	if err := t.options(values); err != nil {
		return t, fmt.Errorf("%.200q: %w", text, err)
	}
	return t, nil
}

// options sets the options of an output.
func (t *Target) options(values url.Values) error {
	for _, key := range slices.Sorted(maps.Keys(values)) {
		value := values.Get(key)
		if !slices.Contains(schemes[t.scheme], key) || len(values[key]) > 1 {
			return fmt.Errorf("option %.40q: want each of %s at most once", key, strings.Join(schemes[t.scheme], ", "))
		}
		ok := true
		switch key {
		case "format":
			t.Format, ok = value, slices.Contains(accesslog.FormatNames, value)
		case "size":
			err := t.size.UnmarshalText([]byte(value))
			ok = err == nil && t.size >= minSize && t.size <= maxSize
			t.size = t.size >> 20 << 20
		case "keep":
			n, err := strconv.Atoi(value)
			t.keep, ok = n, err == nil && n >= 1 && n <= maxKeep
		case "facility":
			t.facility, ok = facilities[value], facilities[value] != 0
		case "ca":
			t.ca = value
		case "cert":
			t.cert = value
		case "key":
			t.key = value
		}
		if !ok {
			return fmt.Errorf("%s %.40q: want %s", key, value, map[string]string{
				"format":   "one of " + strings.Join(accesslog.FormatNames, ", "),
				"size":     fmt.Sprintf("%v to %v, such as 100MiB", minSize, maxSize),
				"keep":     fmt.Sprintf("1 to %d files", maxKeep),
				"facility": "one of " + strings.Join(slices.Sorted(maps.Keys(facilities)), ", "),
			}[key])
		}
	}
	if (t.cert == "") != (t.key == "") {
		return errors.New("cert and key belong together")
	}
	return nil
}

// Open opens the output of the node with this name. Servers are not reached yet.
func (t *Target) Open(node string, stderr io.Writer) (accesslog.Output, error) {
	switch t.scheme {
	case "stderr":
		return accesslog.To(stderr), nil
	case "file":
		return newFile(t.at, int(t.size>>20), t.keep)
	}
	s := &syslog{network: t.scheme, address: t.at, facility: t.facility, name: headerName(node), pid: processID()}
	if t.scheme == "tls" {
		var err error
		s.network = "tcp"
		if s.tls, err = t.clientTLS(); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (t *Target) clientTLS() (*tls.Config, error) {
	host, _, err := net.SplitHostPort(t.at)
	if err != nil {
		return nil, err
	}
	c := &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12}
	if t.ca != "" {
		text, err := os.ReadFile(t.ca)
		if err != nil {
			return nil, fmt.Errorf("ca: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("ca: %s has no certificate in PEM", t.ca)
		}
	}
	if t.cert != "" {
		pair, err := tls.LoadX509KeyPair(t.cert, t.key)
		if err != nil {
			return nil, fmt.Errorf("cert, key: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}
