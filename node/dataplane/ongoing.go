package dataplane

import (
	"context"
	"strings"
	"time"

	"penstock/node/accesslog"
)

const (
	// ongoingEvery is how often a connection is logged while it is open, with
	// Config.AccessAll.
	ongoingEvery = 5 * time.Minute
	// maxOngoing bounds the lines of one round.
	maxOngoing = 50_000
)

// LogOngoing writes a line for each open connection from time to time, so that
// those which never end are seen too, until ctx ends.
func (d *Dataplane) LogOngoing(ctx context.Context) {
	ticker := time.NewTicker(ongoingEvery)
	defer ticker.Stop()
	for {
		select {
		case now := <-ticker.C:
			d.logOpen(now, ongoingEvery)
		case <-ctx.Done():
			return
		}
	}
}

// logOpen writes a line for each connection of at least that age: what the
// younger ones have is their first line.
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
