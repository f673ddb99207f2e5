package dataplane

import (
	"net"
	"slices"
	"testing"
	"time"

	"penstock/netio"
	"penstock/node/nodetest"
)

// BenchmarkListConnections lists 100,000 connections: 2,000 that are open, shown fifty
// times, as the descriptors of a test suffice for no more. It reports the time that a loop
// takes for a connection, and for a slice, during which it serves nobody: the mean, and
// what 99 of 100 stay below.
func BenchmarkListConnections(b *testing.B) {
	const open, times = 2000, 50
	n := start(b, nodetest.PlainService("apps", net.JoinHostPort("127.0.0.1", silent(b))))
	for range open {
		c, err := net.Dial("tcp", n.at(b, "apps"))
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { c.Close() })
	}
	for order, name := range map[int]string{NewestFirst: "newest", LargestFirst: "bytes"} {
		b.Run(name, func(b *testing.B) {
			var took []time.Duration
			for b.Loop() {
				for range times {
					q := &ConnectionQuery{Order: order, Limit: 1000}
					err := n.Engine.Visit(b.Context(), func(loop int) (func(c *netio.Conn) bool, func()) {
						l := lister{traffic: n.traffic, query: q, first: first{limit: q.Limit}}
						shown, began := 0, time.Now()
						return func(c *netio.Conn) bool {
							if shown%64 == 0 {
								began = time.Now()
							}
							shown++
							more := l.visit(c)
							if shown%64 == 0 && loop == 0 {
								took = append(took, time.Since(began))
							}
							return more
						}, func() {}
					})
					if err != nil {
						b.Fatal(err)
					}
				}
			}
			slices.Sort(took)
			var all time.Duration
			for _, one := range took {
				all += one
			}
			b.ReportMetric(float64(all.Nanoseconds())/float64(len(took))/64, "ns/connection")
			b.ReportMetric(float64(all.Microseconds())/float64(len(took)), "us/slice")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "us/slice-p99")
		})
	}
}

// silent returns the port of a server that takes connections and says nothing.
func silent(b *testing.B) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { ln.Close() })
	go func() {
		var all []net.Conn
		defer func() {
			for _, c := range all {
				c.Close()
			}
		}()
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			all = append(all, c)
		}
	}()
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	return port
}
