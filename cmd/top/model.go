package top

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"penstock/node/api"
)

// A view is a kind of picture.
type view int

// The views. Those up to viewProblems have a digit; the others are opened from a row.
const (
	viewServices view = iota
	viewNodes
	viewListeners
	viewConnections
	viewKafka
	viewProblems
	viewEndpoints // of a service
	viewBrokers   // of a virtual cluster
	viewTrace     // of a connection
)

// rootViews are the titles of the views with a digit.
var rootViews = []string{"Services", "Nodes", "Listeners", "Connections", "Kafka", "Problems"}

// level is one step of the way from a view to what was opened from it.
type level struct {
	view view
	place
	title string
	// What it is about; which of them are set depends on the view.
	listener, service, endpoint, cluster string
	node                                 string // of the connection
	id                                   uint64
	ends                                 ends // which connections
}

// ends says which connections a view lists.
type ends int

// The connections of a view, in the order of the key.
const (
	openOnes ends = iota
	endedOnes
	failedOnes
	allEnds
)

// Model is what top shows and what keys do, without a terminal and without a network:
// messages go in by Update, a picture comes out of draw, and want says what to ask for.
// It belongs to one goroutine.
type Model struct {
	size     size
	glyphs   glyphs
	zone     *time.Location
	interval time.Duration

	roots  []*level // of the views with a digit
	path   []*level // from a root to what is shown
	node   string   // whose numbers are shown; "": all
	paused bool
	help   bool
	typing bool   // a filter
	before string // the filter before typing
	fresh  bool   // pictures show new connections rather than bytes
	done   bool

	link    link
	history *history
	asked   int // of the history: changes when it is to be asked for again
	filled  bool

	sample      *api.TopSample
	members     api.Members
	status      *api.Status
	problems    *api.Problems
	endpoints   []api.Endpoint
	flow        *api.FlowResult
	connections *api.Connections
	trace       *api.Trace
	faults      map[topic]string // why a topic has no answer
	// withoutList: the node is of a version without the list of connections; samples
	// have the latest ones.
	withoutList bool
}

func newModel(g glyphs, zone *time.Location, interval time.Duration, node string) *Model {
	m := &Model{glyphs: g, zone: zone, interval: interval, node: node, history: newHistory(), faults: map[topic]string{}, size: size{80, 24}}
	for v, title := range rootViews {
		m.roots = append(m.roots, &level{view: view(v), title: strings.ToLower(title)})
	}
	// What there is most of comes first.
	m.roots[viewServices].sort = 2
	m.roots[viewConnections].sort = 9
	m.path = m.roots[:1:1]
	return m
}

// level returns what is shown.
func (m *Model) level() *level { return m.path[len(m.path)-1] }

// Update takes a message: a size, a key, an answer or a link.
func (m *Model) Update(msg any) {
	switch msg := msg.(type) {
	case size:
		m.size = msg
	case link:
		m.link = msg
		if msg.up { // perhaps of another version
			m.withoutList = false
		}
	case key:
		m.press(msg)
	case answer:
		if !m.paused {
			m.take(&msg)
		}
	}
}

// take keeps an answer, unless the question is no longer asked.
func (m *Model) take(a *answer) {
	if !a.current(m.want()) {
		return
	}
	if a.err != nil {
		m.fail(a)
		return
	}
	delete(m.faults, a.topic)
	switch v := a.value.(type) {
	case *api.TopSample:
		m.sample = v
		if m.filled {
			m.history.sample(v)
		}
	case *api.Members:
		m.members = *v
	case []api.TelemetryFrame:
		m.history.fill(v)
		m.filled = true
	case *api.Status:
		m.status = v
	case *api.Problems:
		m.problems = v
	case *api.Endpoints:
		m.endpoints = *v
	case *api.FlowResult:
		m.flow = v
	case *api.Connections:
		m.connections = v
	case *api.Trace:
		m.trace = v
	}
}

// fail keeps why there is no answer.
func (m *Model) fail(a *answer) {
	text := a.err.Error()
	if refused(a.err, api.Unknown) {
		text = "the node is of a version that does not know this"
		m.withoutList = m.withoutList || a.topic == topicConnections
	}
	m.faults[a.topic] = text
	switch {
	case a.topic == topicHistory: // it fills up from now on
		m.filled = true
	case a.topic == topicTrace && refused(a.err, api.NotFound):
		m.trace = nil
	}
}

// current reports whether an answer is to a question that is still asked.
func (a *answer) current(w want) bool {
	switch a.topic {
	case topicSample:
		return a.to.node == w.node
	case topicHistory:
		return a.to.node == w.node && a.to.history == w.history
	case topicEndpoints, topicFlow:
		return w.endpoints && a.to.service == w.service && a.to.node == w.node
	case topicConnections:
		return a.to.connections == w.connections
	case topicTrace:
		return a.to.trace == w.trace
	}
	return true
}

// How often the state of the whole cluster is asked for: less often where it is not all
// that the view shows.
const (
	statusInView = 2 * time.Second
	statusBeside = 5 * time.Second
)

// maxListed is how many connections are asked for.
const maxListed = 500

// want returns what the model needs now.
func (m *Model) want() want {
	w := want{node: m.node, history: m.asked, paused: m.paused}
	if m.paused {
		return w
	}
	l := m.level()
	w.status, w.problems = statusBeside, statusBeside
	switch l.view {
	case viewListeners, viewKafka, viewBrokers:
		w.status = statusInView
	case viewProblems:
		w.problems = statusInView
	case viewEndpoints:
		w.status = statusInView
		w.endpoints, w.service = true, l.service
	case viewTrace:
		w.trace = api.TraceRequest{Node: l.node, ID: l.id}
	case viewConnections:
		if m.withoutList {
			w.latest = maxListed
			break
		}
		w.connections = api.ConnectionsRequest{
			ConnectionFilter: api.ConnectionFilter{Node: m.node, Listener: l.listener, Service: l.service, Endpoint: l.endpoint},
			Ended:            l.ends != openOnes, Failures: l.ends == failedOnes, Sort: l.connectionOrder(), Limit: maxListed,
		}
	}
	return w
}

// show goes to a view with a digit, at its own place.
func (m *Model) show(v view) { m.path = []*level{m.roots[v]} }

// open goes one level further in. What was known of another one is no longer shown.
func (m *Model) open(l *level) {
	switch l.view {
	case viewEndpoints:
		m.endpoints, m.flow = nil, nil
	case viewConnections:
		m.connections = nil
		l.sort = m.roots[viewConnections].sort
	case viewTrace:
		m.trace = nil
	}
	for _, t := range []topic{topicEndpoints, topicFlow, topicConnections, topicTrace} {
		delete(m.faults, t)
	}
	m.path = append(m.path, l)
}

// back goes one level out; false: there is none.
func (m *Model) back() bool {
	if len(m.path) == 1 {
		return false
	}
	m.path = slices.Clone(m.path[:len(m.path)-1])
	return true
}

// setNode shows the numbers of one node, or with "" of all.
func (m *Model) setNode(name string) {
	if m.node == name {
		return
	}
	m.node = name
	m.sample, m.connections, m.flow, m.endpoints = nil, nil, nil, nil
	m.refill()
}

// nextNode shows the numbers of the next node; after the last one, of all.
func (m *Model) nextNode() {
	names := []string{""}
	at := 0
	for _, n := range m.members {
		if n.Name == m.node || n.ID == m.node {
			at = len(names)
		}
		names = append(names, n.Name)
	}
	m.setNode(names[(at+1)%len(names)])
}

// refill has the history asked for again.
func (m *Model) refill() {
	m.asked++
	m.history, m.filled = newHistory(), false
}

// traffic sums up the flows that a function selects.
func (m *Model) traffic(selects func(*api.Flow) bool) (sum api.Flow) {
	if m.sample == nil {
		return sum
	}
	for i := range m.sample.Flows {
		if f := &m.sample.Flows[i]; selects(f) {
			sum.Connections += f.Connections
			sum.NewRate += f.NewRate
			sum.InRate += f.InRate
			sum.OutRate += f.OutRate
			sum.Total += f.Total
		}
	}
	return sum
}

// points returns a function for the picture of a row.
func (m *Model) points(of string, name ...string) func(int) []float64 {
	k := seriesKey{of: of, fresh: m.fresh && of != ofCluster}
	copy(k.name[:], name)
	return func(n int) []float64 { return m.history.last(k, min(n, historyPoints)) }
}

// pictureTitle is the title of the column with pictures: what of, and for how long.
func (m *Model) pictureTitle() string {
	if m.fresh {
		return "NEW 2M"
	}
	return "BYTES 2M"
}

// The texts of numbers.
func rateText(v float64) string { return fmt.Sprintf("%.1f", v) }
func count(n int64) field       { return number(fmt.Sprint(n), float64(n)) }
func rate(v float64) field      { return number(rateText(v), v) }
func unknown() field            { return field{text: "-", number: math.Inf(-1)} }
