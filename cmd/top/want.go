package top

import (
	"time"

	"penstock/node/api"
)

// A topic is something that a node is asked for.
type topic string

// The topics.
const (
	topicSample      topic = "sample"
	topicMembers     topic = "members"
	topicHistory     topic = "history"
	topicStatus      topic = "status"
	topicProblems    topic = "problems"
	topicEndpoints   topic = "endpoints"
	topicFlow        topic = "flow"
	topicConnections topic = "connections"
	topicTrace       topic = "trace"
)

// want is what the model needs from the cluster: what the view on the screen shows. The
// zero value asks for members alone.
type want struct {
	paused  bool
	node    string // "": all
	latest  int    // connections in a sample
	history int    // changes when the history is to be read anew

	status      time.Duration // how often; 0: not
	problems    time.Duration
	endpoints   bool // of service
	service     string
	connections api.ConnectionsRequest // Limit 0: none
	trace       api.TraceRequest       // ID 0: none
}

// answer is what a node has answered. value is a pointer to the type of the topic:
// *api.TopSample, *api.Members, []api.TelemetryFrame, *api.Status, *api.Problems,
// *api.Endpoints, *api.FlowResult, *api.Connections or *api.Trace.
type answer struct {
	topic topic
	to    want // the question
	value any
	err   error // if not nil, value is nil
}

// link is the state of the connection to the cluster.
type link struct {
	node string // its name; "": not known yet
	addr string
	up   bool
	why  string        // what is wrong: with the node asked before, or with all
	wait time.Duration // until the next attempt; 0: it is going on
}

// size is the size of the terminal.
type size struct{ w, h int }

// key is a key: a printable character, or a name such as "Enter", "Esc", "Up" or "Ctrl-C".
type key string
