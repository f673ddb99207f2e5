package dataplane

import (
	"context"
	"strings"
	"time"

	"penstock/node/accesslog"
)

// maxOngoing bounds the lines of one round.
const maxOngoing = 50_000

// LogOngoing periodically writes a line for each open connection, so that
// connections that never end appear too. It runs until ctx ends.
func (d *Dataplane) LogOngoing(ctx context.Context, interval time.Duration) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case now := <-ticker.C:
			d.logOpen(now, interval)
		case <-ctx.Done():
			return
		}
	}
}

// logOpen writes a line for each connection of at least that age; younger ones
// have just had their first line.
func (d *Dataplane) logOpen(now time.Time, age time.Duration) {
	for _, c := range d.Engine.Connections(maxOngoing) {
		if c.Age < age {
			continue
		}
		service, at, _ := strings.Cut(c.Label, " ")
		d.access.Write(accesslog.Record{
			Event: accesslog.Ongoing, At: now, ID: c.ID, Listener: c.Listener, Client: c.Client,
			SNI: c.ServerName, Service: service, Endpoint: at,
			In: c.BytesIn, Out: c.BytesOut, Duration: c.Age,
		})
	}
}
