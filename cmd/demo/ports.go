package demo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
)

// nodeCount is the number of nodes.
const nodeCount = 3

// listen listens on a port of 127.0.0.1, or on a free port if that is taken.
func listen(ctx context.Context, port int) (net.Listener, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", at("127.0.0.1", port))
	if err != nil {
		return lc.Listen(ctx, "tcp", at("127.0.0.1", 0))
	}
	return l, nil
}

func at(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }

func portOf(l net.Listener) int {
	if a, ok := l.Addr().(*net.TCPAddr); ok {
		return a.Port
	}
	return 0
}

// hosts returns the loopback addresses of the nodes: 127.0.0.11 and following
// if the balancer has its default port, which no other demo can have then;
// otherwise addresses derived from its port.
func hosts(port int) []string {
	network := "127.0.0"
	if port != shopPort {
		network = fmt.Sprintf("127.%d.%d", port>>8, port&255)
	}
	var all []string
	for i := range nodeCount {
		all = append(all, fmt.Sprintf("%s.%d", network, 11+i))
	}
	return all
}

// freePort returns a port that is free on all hosts, for TCP and UDP: usual if
// it is not 0 and free, otherwise another one.
func freePort(ctx context.Context, hosts []string, usual int) (int, error) {
	if usual != 0 && free(ctx, hosts, usual) {
		return usual, nil
	}
	for range 100 {
		var lc net.ListenConfig
		l, err := lc.Listen(ctx, "tcp", at(hosts[0], 0))
		if err != nil {
			return 0, err
		}
		port := portOf(l)
		l.Close()
		if free(ctx, hosts, port) {
			return port, nil
		}
	}
	return 0, errors.New("found no port that is free at " + fmt.Sprint(hosts))
}

func free(ctx context.Context, hosts []string, port int) bool {
	var lc net.ListenConfig
	for _, h := range hosts {
		l, err := lc.Listen(ctx, "tcp", at(h, port))
		if err != nil {
			return false
		}
		defer l.Close()
		p, err := lc.ListenPacket(ctx, "udp", at(h, port))
		if err != nil {
			return false
		}
		defer p.Close()
	}
	return true
}
