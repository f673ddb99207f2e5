package dns

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/miekg/dns"

	"penstock/routing/provider"
)

// maxResolvConf is the size of the largest resolv.conf that is read, in bytes.
const maxResolvConf = 64 << 10

// isSRV reports whether a query asks for SRV records.
func isSRV(q provider.Query) bool { return strings.HasPrefix(q.Service, "_") }

// check reports why a query cannot be looked up.
func check(q provider.Query) error {
	if err := checkName(q.Service); err != nil {
		return err
	}
	if isSRV(q) {
		if q.Port != "" {
			return fmt.Errorf("port %.40q: SRV records have ports of their own: leave port out", q.Port)
		}
		return nil
	}
	if n, err := strconv.ParseUint(q.Port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("port %.40q of %s: A and AAAA records have no port: write a number from 1 to 65535", q.Port, q.Service)
	}
	return nil
}

// checkName accepts letters, digits, hyphens and underscores in labels of 1 to
// 63 bytes, 253 in all, with or without the dot at the end.
func checkName(name string) error {
	host := strings.TrimSuffix(name, ".")
	if _, err := netip.ParseAddr(host); err == nil {
		return fmt.Errorf("%s is an IP address, not a name of DNS: list it among the service's endpoints", host)
	}
	for label := range strings.SplitSeq(host, ".") {
		if label == "" || len(label) > 63 || len(host) > 253 || strings.ContainsFunc(label, isOdd) {
			return fmt.Errorf("%.80q is not a name of DNS: write letters, digits, - and _ in labels of 1 to 63 bytes, "+
				"international names as xn--", name)
		}
	}
	return nil
}

func isOdd(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_'
}

// settings say whom to ask, and for which names.
type settings struct {
	servers []netip.AddrPort
	search  []string
	ndots   int
}

// settings returns those of the configuration, with those of resolv.conf for what
// it leaves out.
func (s *Source) settings() (settings, error) {
	own := settings{s.fixed, s.cfg.Search, cmp.Or(s.cfg.NDots, 1)}
	if len(s.fixed) > 0 {
		return own, nil
	}
	found, err := s.system.read()
	if len(own.search) > 0 {
		found.search = own.search
	}
	if s.cfg.NDots > 0 {
		found.ndots = own.ndots
	}
	return found, err
}

// names returns the names to look up for a name, in order.
func (s *settings) names(name string) []string {
	config := dns.ClientConfig{Search: s.search, Ndots: s.ndots}
	names := config.NameList(name)
	return slices.DeleteFunc(names, func(n string) bool { return len(n) > 254 }) // completed beyond what DNS has
}

// resolvConf is a file like /etc/resolv.conf.
type resolvConf struct {
	path string

	mu   sync.Mutex
	info os.FileInfo // of the file that known was read from; nil: none yet
	last settings
}

// read returns what the file says. It reads the file if that has changed.
func (r *resolvConf) read() (settings, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	info, err := os.Stat(r.path)
	switch {
	case err != nil && r.info == nil:
		return settings{}, fmt.Errorf("%w: list servers in the provider", err)
	case err != nil:
		return r.last, nil // it is being replaced, perhaps
	case r.info != nil && os.SameFile(info, r.info) && info.ModTime().Equal(r.info.ModTime()) && info.Size() == r.info.Size():
		return r.last, nil
	case !info.Mode().IsRegular():
		return settings{}, fmt.Errorf("%s is not a file: list servers in the provider", r.path)
	}
	last, err := readResolvConf(r.path)
	if err != nil {
		return settings{}, fmt.Errorf("%w: correct it, or list servers in the provider", err)
	}
	r.info, r.last = info, last
	return last, nil
}

func readResolvConf(path string) (settings, error) {
	f, err := os.Open(path)
	if err != nil {
		return settings{}, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxResolvConf+1))
	if err != nil {
		return settings{}, err
	}
	s, err := parseResolvConf(string(text))
	if err != nil {
		return settings{}, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

// parseResolvConf parses resolv.conf(5). Without a server the server is on this
// machine.
func parseResolvConf(text string) (settings, error) {
	if len(text) > maxResolvConf {
		return settings{}, fmt.Errorf("is larger than %d bytes", maxResolvConf)
	}
	config, err := dns.ClientConfigFromReader(strings.NewReader(text))
	if err != nil {
		return settings{}, err
	}
	if len(config.Servers) == 0 {
		config.Servers = []string{"127.0.0.1", "::1"}
	}
	if len(config.Servers) > maxServers || len(config.Search) > maxSearch {
		return settings{}, fmt.Errorf("has %d servers and %d search domains; the maximum is %d and %d",
			len(config.Servers), len(config.Search), maxServers, maxSearch)
	}
	servers, err := parseServers(config.Servers)
	if err != nil {
		return settings{}, err
	}
	// "search ." means the name itself, which is looked up in any case.
	search := slices.DeleteFunc(config.Search, func(domain string) bool { return domain == "." })
	for _, domain := range search {
		if err := checkName(domain); err != nil {
			return settings{}, fmt.Errorf("search: %w", err)
		}
	}
	return settings{servers, search, config.Ndots}, nil
}

// parseServers parses servers as IP:port or IP.
func parseServers(list []string) ([]netip.AddrPort, error) {
	var servers []netip.AddrPort
	var faults []error
	for _, text := range list {
		server, err := netip.ParseAddrPort(text)
		if addr, e := netip.ParseAddr(strings.Trim(text, "[]")); e == nil {
			server, err = netip.AddrPortFrom(addr, 53), nil
		}
		if err != nil || server.Port() == 0 {
			faults = append(faults, fmt.Errorf("server %.80q: write IP:port, or IP for port 53", text))
			continue
		}
		servers = append(servers, server)
	}
	return servers, errors.Join(faults...)
}
