package ops

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"penstock/node/api"
	"penstock/node/cluster/directory"
	"penstock/node/logs"
	"penstock/node/rpc"
)

const (
	// logsInterval is the time between two looks at what is new.
	logsInterval = 500 * time.Millisecond
	// logsPart bounds the lines of one item.
	logsPart = 500
)

// logLines has the methods of the logs.
type logLines struct {
	peers *Peers
	logs  *logs.Logs
}

func (l logLines) register(s *rpc.Server) {
	rpc.HandleStream(s, api.MethodLogs, api.RoleReader, l.read)
	rpc.Handle(s, api.MethodLogsHere, api.RoleNode, l.here)
}

// here answers for this node alone.
func (l logLines) here(ctx context.Context, r *api.LogsHereRequest) (*api.LogsHere, error) {
	if err := checkLogs(&r.LogFilter, r.Limit); err != nil {
		return nil, err
	}
	if err := rpc.LargeResponse(ctx); err != nil {
		return nil, err
	}
	return l.logs.Read(r), nil
}

func checkLogs(f *api.LogFilter, limit int) error {
	if err := logs.Check(f); err != nil {
		return api.Errorf(api.Invalid, "%v", err)
	}
	if limit < 1 || limit > api.MaxLogs {
		return api.Errorf(api.Invalid, "limit %d: want 1 to %d", limit, api.MaxLogs)
	}
	return nil
}

// read sends lines in order of time: the last ones of all nodes, and with r.Follow those
// that come later.
func (l logLines) read(ctx context.Context, r *api.LogsRequest, send func(*api.LogsItem) error) error {
	if err := checkLogs(&r.LogFilter, r.Limit); err != nil {
		return err
	}
	reader := &logReader{logLines: l, r: r, at: map[string]uint64{}}
	if len(reader.members()) == 0 {
		return api.Errorf(api.NotFound, "there is no node %q: see penstock members", r.Node)
	}
	tick := time.NewTicker(logsInterval)
	defer tick.Stop()
	for first := true; ; first = false {
		if err := rpc.LargeResponse(ctx); err != nil { // before the nodes' answers take memory
			return err
		}
		item := reader.next(ctx)
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := sendLogs(ctx, item, first, send); err != nil || !r.Follow {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// sendLogs sends an item in parts. If it has nothing, it is sent only at first.
func sendLogs(ctx context.Context, all api.LogsItem, first bool, send func(*api.LogsItem) error) error {
	for first || len(all.Entries) > 0 || len(all.Missing) > 0 || all.Lost > 0 {
		first = false
		if err := rpc.LargeResponse(ctx); err != nil {
			return err
		}
		part := all.Entries[:min(len(all.Entries), logsPart)]
		all.Entries = all.Entries[len(part):]
		if err := send(&api.LogsItem{Entries: part, More: len(all.Entries) > 0, Missing: all.Missing, Lost: all.Lost}); err != nil {
			return err
		}
		all.Missing, all.Lost = nil, 0
	}
	return nil
}

// logReader is one request to read the logs.
type logReader struct {
	logLines
	r       *api.LogsRequest
	at      map[string]uint64 // node ID -> LogsHere.Position of its last answer
	held    []api.LogEntry    // with Follow: lines that others may still come before
	missing []string          // as last sent
}

// members returns the nodes that are asked.
func (l *logReader) members() []directory.Member {
	return slices.DeleteFunc(l.peers.members(), func(m directory.Member) bool {
		return l.r.Node != "" && m.Name != l.r.Node && m.ID != l.r.Node
	})
}

// next returns what is new, in order of time, and the nodes that did not answer if these
// are others than before.
//
// With Follow, lines are held until the next look if they are younger than the answer of
// some node: that one may have an older line by then. No line is held twice, so a node
// whose clock is behind delays nothing further; its lines come later than others of the
// same time.
func (l *logReader) next(ctx context.Context) api.LogsItem {
	item := api.LogsItem{Entries: l.held}
	var complete time.Time // all answers are at least as young
	fresh, missing := []api.LogEntry{}, []string{}
	for _, n := range l.ask(ctx) {
		if n.err != nil {
			missing = append(missing, n.member.Name+": "+n.err.Error())
			continue
		}
		l.at[n.member.ID] = n.answer.Position
		fresh = append(fresh, n.answer.Entries...)
		item.Lost += n.answer.Lost
		if complete.IsZero() || n.answer.At.Before(complete) {
			complete = n.answer.At
		}
	}
	l.held = nil
	for i := range fresh {
		if l.r.Follow && fresh[i].At.After(complete) {
			l.held = append(l.held, fresh[i])
		} else {
			item.Entries = append(item.Entries, fresh[i])
		}
	}
	slices.SortStableFunc(item.Entries, func(a, b api.LogEntry) int { return a.At.Compare(b.At) })
	if !l.r.Follow {
		item.Entries = item.Entries[max(0, len(item.Entries)-l.r.Limit):]
	}
	if !slices.Equal(missing, l.missing) {
		l.missing, item.Missing = missing, missing
	}
	return item
}

// logsAnswer is the answer of one node.
type logsAnswer struct {
	member directory.Member
	answer *api.LogsHere
	err    error
}

// ask asks the nodes for their lines since their last answers. The answers are sorted by
// name.
func (l *logReader) ask(ctx context.Context) (all []logsAnswer) {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	members := l.members()
	answers := make(chan logsAnswer, len(members))
	for _, m := range members {
		r := &api.LogsHereRequest{LogFilter: l.r.LogFilter, Since: l.r.Since, After: l.at[m.ID], Limit: l.r.Limit}
		if r.After > 0 {
			r.Limit = api.MaxLogs
		}
		go func() {
			answer, err := l.of(ctx, m, r)
			answers <- logsAnswer{m, answer, err}
		}()
	}
	for range members {
		all = append(all, <-answers)
	}
	slices.SortFunc(all, func(a, b logsAnswer) int { return strings.Compare(a.member.Name, b.member.Name) })
	return all
}

// of asks one node.
func (l *logReader) of(ctx context.Context, m directory.Member, r *api.LogsHereRequest) (*api.LogsHere, error) {
	if m.Self {
		return l.logs.Read(r), nil
	}
	if !m.Up() {
		return nil, errors.New(cmp.Or(m.State, "unreachable"))
	}
	client, err := l.peers.cluster.Directory.Pool.Get(ctx, m.ID)
	if err != nil {
		return nil, err
	}
	answer, err := rpc.Call[api.LogsHere](ctx, client, api.MethodLogsHere, r)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, errors.New("did not respond")
	}
	return answer, err
}
