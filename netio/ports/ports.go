// Package ports finds out how many local ports the system has for connections
// to endpoints, and counts those in use.
//
// A connection needs a local port that no other connection between the same
// two addresses uses. So all ports of the system are available once for each
// pair of a local address and an endpoint's address.
//
//	n, err := ports.Available()       // of the system, now
//	var c ports.Count
//	c.Add(endpoint, 1)                // one connection more
package ports

import (
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
)

// The settings of the system, of the process's network namespace (the kernel's
// Documentation/networking/ip-sysctl.rst).
const (
	rangeFile    = "/proc/sys/net/ipv4/ip_local_port_range"
	reservedFile = "/proc/sys/net/ipv4/ip_local_reserved_ports"
	sockstatFile = "/proc/self/net/sockstat"
)

// Available returns the number of local ports for connections from one local
// address to one endpoint address, IPv4 or IPv6. It asks the kernel.
func Available() (int, error) {
	span, err := os.ReadFile(rangeFile)
	if err != nil {
		return 0, err
	}
	reserved, err := os.ReadFile(reservedFile)
	if err != nil {
		return 0, err
	}
	return available(string(span), string(reserved))
}

// available counts the ports of a range, "32768 60999", without those that are
// reserved, "8080,40000-40009", which are in order and do not overlap.
func available(span, reserved string) (int, error) {
	f := strings.Fields(span)
	if len(f) != 2 {
		return 0, fmt.Errorf("%s: %q is no range", rangeFile, span)
	}
	first, last, err := between(f[0], f[1])
	if err != nil {
		return 0, fmt.Errorf("%s: %w", rangeFile, err)
	}
	n := last - first + 1
	for part := range strings.SplitSeq(strings.TrimSpace(reserved), ",") {
		if part == "" {
			continue
		}
		from, to, ok := strings.Cut(part, "-")
		if !ok {
			to = from
		}
		from2, to2, err := between(from, to)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", reservedFile, err)
		}
		n -= max(0, min(to2, last)-max(from2, first)+1)
	}
	return n, nil
}

// between reads two ports, of which the first is not above the last.
func between(first, last string) (a, b int, err error) {
	if a, err = strconv.Atoi(first); err == nil {
		b, err = strconv.Atoi(last)
	}
	if err == nil && (a < 0 || b > 65535 || a > b) {
		err = fmt.Errorf("%d to %d are no ports", a, b)
	}
	return a, b, err
}

// Explain adds to EADDRNOTAVAIL, the system's error for a connect without a
// free port, what it means.
func Explain(err error) error {
	return fmt.Errorf("no local port is left for it on this node (limit_ports): %w", err)
}

// TimeWait returns the number of connections in TIME_WAIT in the process's
// network namespace, of all processes and to all addresses. It asks the
// kernel.
func TimeWait() (int, error) {
	text, err := os.ReadFile(sockstatFile)
	if err != nil {
		return 0, err
	}
	return timeWait(string(text))
}

func timeWait(sockstat string) (int, error) {
	for line := range strings.Lines(sockstat) {
		f := strings.Fields(line)
		if len(f) == 0 || f[0] != "TCP:" {
			continue
		}
		for i := 1; i+1 < len(f); i += 2 {
			if f[i] == "tw" {
				return strconv.Atoi(f[i+1])
			}
		}
	}
	return 0, fmt.Errorf("%s: nothing about TIME_WAIT", sockstatFile)
}

// Count counts connections by remote address. The zero value is ready to use.
// Its methods are safe for concurrent use. It keeps an address only while
// there is a connection to it.
type Count struct {
	mu sync.Mutex
	m  map[netip.AddrPort]int64
}

// Add adds n, which may be negative, to the number of connections to an
// address. It ignores invalid addresses, such as those of unix sockets, which
// use no port.
func (c *Count) Add(to netip.AddrPort, n int64) {
	if !to.IsValid() {
		return
	}
	to = netip.AddrPortFrom(to.Addr().Unmap(), to.Port())
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.m == nil {
		c.m = map[netip.AddrPort]int64{}
	}
	if c.m[to] += n; c.m[to] == 0 {
		delete(c.m, to)
	}
}

// AddTo adds the numbers of connections to sum, by address.
func (c *Count) AddTo(sum map[netip.AddrPort]int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for to, n := range c.m {
		sum[to] += n
	}
}
