package cli

import (
	"io"
	"strconv"
	"time"

	"penstock/node/api"
)

// printProviders shows the endpoint providers: one line each, and one for each
// service about which there is something to say.
func printProviders(w io.Writer, providers []api.ProviderStatus) {
	var rows [][]string
	for _, p := range providers {
		endpoints := 0
		var oldest *time.Time
		for i := range p.Services {
			q := &p.Services[i]
			endpoints += q.Endpoints
			if q.Answered != nil && (oldest == nil || q.Answered.Before(*oldest)) {
				oldest = q.Answered
			}
		}
		rows = append(rows, []string{
			p.Name, p.Node, p.State, strconv.Itoa(len(p.Services)), strconv.Itoa(endpoints), ageText(oldest), p.Error,
		})
		for i := range p.Services {
			if text := queryText(&p.Services[i], p.Error); text != "" {
				q := &p.Services[i]
				rows = append(rows, []string{"  " + q.Service, "", "", "", strconv.Itoa(q.Endpoints), ageText(q.Answered), text})
			}
		}
	}
	printTable(w, []string{"PROVIDER", "NODE", "STATE", "SERVICES", "ENDPOINTS", "ANSWERED", "PROBLEM"}, rows)
}

// queryText says what is wrong with the answer about a service, unless the whole
// provider has that problem.
func queryText(q *api.ProviderQuery, all string) string {
	switch {
	case q.Expired:
		return "stale for too long, its endpoints are removed: " + q.Error
	case q.Stale && q.Error != "" && q.Error != all:
		return q.Error
	case q.HeldSince != nil:
		return "the last answer would remove most endpoints; its removals are held back since " + ageText(q.HeldSince)
	case q.Unused > 0:
		return strconv.Itoa(q.Unused) + " endpoints are not used: " + q.Fault
	}
	return q.Warning
}
