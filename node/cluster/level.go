package cluster

import (
	"fmt"
	"slices"
)

// A level says what resources a version of the program understands. A node
// that meets a resource which it does not understand must end, rather than
// pass it over; so none is taken before every member has announced a level
// that is high enough. Those of the first release announce none, which is 0.
const (
	// LevelKafka has the kinds of Kafka, and listeners for it.
	LevelKafka = 1
	// LevelGroups has several batches in one entry of the log.
	LevelGroups = 1
	// LevelPolicies has MeshHTTPRoutes, and whatever else came with them.
	LevelPolicies = 2
	// LevelRequests has the http of Listeners, and the http.upgrades of Services.
	LevelRequests = 3
	// ownLevel is this version's. Whoever brings a kind, a field or a value that
	// the release before refuses adds a level.
	ownLevel = LevelRequests
)

// Lacking names the members that do not understand a level, with the versions
// that they run, as the cluster knows it: those that are down too, for they
// come back with what they were.
func (c *Cluster) Lacking(level int) (nodes []string) {
	for _, r := range records(c.Store().Snapshot()) {
		if r.member() && r.ID != c.ID() && r.Level < level {
			nodes = append(nodes, fmt.Sprintf("%s (%s)", r.Name, r.Version))
		}
	}
	slices.Sort(nodes)
	return nodes
}
