package kafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/internal/testkit"
)

// TestEquivalenceOfEveryAPI sends requests of each API that the broker offers,
// at each version: with default fields, with every field set and existing
// names, and with every field set and unknown names. The answers of all targets
// must be equal.
func TestEquivalenceOfEveryAPI(t *testing.T) {
	long(t)
	c := cluster(t)
	compareSweeps(t, direct(c), directTLS(c), viaTCP(t, c))
}

func compareSweeps(t *testing.T, targets ...target) {
	t.Helper()
	var first *sweep
	for _, g := range targets {
		began := time.Now()
		r := newRun(t, g)
		r.ctx = t.Context() // without a deadline
		s := newSweep(r)
		s.everything()
		t.Logf("%s: %d requests in %v", g.name, s.requests, time.Since(began).Round(time.Millisecond))
		if first == nil {
			first = s
			s.wantAnswers(t)
			continue
		}
		t.Run(g.name, func(t *testing.T) { first.compare(t, s) })
	}
}

// wantAnswers checks that requests with all fields set are answered: a closed
// connection compares nothing.
func (s *sweep) wantAnswers(t *testing.T) {
	t.Helper()
	for key, lines := range s.answers {
		for _, l := range lines {
			// Produce v0 to v2 are advertised for old clients, but not supported.
			if strings.HasSuffix(l, ": closed") && !strings.Contains(l, ", defaults") && (key != 0 || l[:2] > "v2") {
				t.Errorf("%s: %s", kmsg.NameForKey(key), l)
			}
		}
	}
}

// unswept are the APIs that sweeps skip, with reasons.
var unswept = map[int16]string{
	17: "SaslHandshake: programs of their own", 36: "SaslAuthenticate: programs of their own",
	80: "AddRaftVoter: would change the quorum", 81: "RemoveRaftVoter: would change the quorum",
	18: "ApiVersions: what is offered is compared by itself",
}

type sweep struct {
	*run
	present, absent objectNames
	offered         map[int16][2]int16 // by key: oldest and newest version
	at              map[string]string  // addresses by role
	conns           map[string]*rawConn
	requests        int
	answers         map[int16][]string
}

func newSweep(r *run) *sweep {
	s := &sweep{run: r, at: map[string]string{}, conns: map[string]*rawConn{}, answers: map[int16][]string{}}
	r.t.Cleanup(func() {
		for _, c := range s.conns {
			c.Close()
		}
	})
	// Unknown names of the same length as the existing ones.
	s.absent = objectNames{topic: r.uniqueName("nopic"), group: r.uniqueName("nroup"), share: r.uniqueName("nhare"), txn: r.uniqueName("nxn"),
		user: r.uniqueName("nser"), topicID: [16]byte{0xfe, 15: 1}}
	s.present = objectNames{
		topic: r.newTopic("topic", 1), group: r.uniqueName("group"),
		share: r.uniqueName("share"), txn: r.uniqueName("txn"), user: r.uniqueName("user"),
	}
	s.prepare()
	return s
}

// prepare creates the existing objects, and finds their leaders.
func (s *sweep) prepare() {
	r := s.run
	cl := r.client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err := cl.ProduceSync(r.ctx, records(s.present.topic, 10, 1)...).FirstErr(); err != nil {
		r.t.Fatalf("%s: %v", r.name, err)
	}
	meta, err := kmsg.NewPtrMetadataRequest().RequestWith(r.ctx, cl)
	if err != nil {
		r.t.Fatalf("%s: %v", r.name, err)
	}
	brokers := map[int32]string{}
	for _, b := range meta.Brokers {
		brokers[b.NodeID] = net.JoinHostPort(b.Host, fmt.Sprint(b.Port))
	}
	for _, topic := range meta.Topics {
		if *topic.Topic == s.present.topic {
			s.present.topicID, s.at["leader"] = topic.TopicID, brokers[topic.Partitions[0].Leader]
		}
	}
	for role, key := range map[string]string{"group": s.present.group, "txn": s.present.txn, "share": s.present.share} {
		find := kmsg.NewPtrFindCoordinatorRequest()
		find.CoordinatorKeys = []string{key}
		if role == "txn" {
			find.CoordinatorType = 1
		}
		testkit.WaitFor(r.t, "a coordinator of "+key, func() bool {
			resp, err := find.RequestWith(r.ctx, cl)
			if err != nil || len(resp.Coordinators) != 1 || resp.Coordinators[0].ErrorCode != 0 {
				return false
			}
			s.at[role] = net.JoinHostPort(resp.Coordinators[0].Host, fmt.Sprint(resp.Coordinators[0].Port))
			return true
		})
	}
	s.askOffered()
	s.at["any"] = brokers[0]
}

// askOffered requests the offered APIs.
func (s *sweep) askOffered() {
	s.at["any"] = s.bootstrap[0]
	var err error
	if s.offered, err = s.target.offered(s.ctx); err != nil {
		s.t.Fatalf("%s: ApiVersions: %v", s.name, err)
	}
}

// offered returns the offered APIs: by key, oldest and newest version.
func (g target) offered(ctx context.Context) (map[int16][2]int16, error) {
	c, err := g.raw(ctx, g.bootstrap[0])
	if err != nil {
		return nil, err
	}
	defer c.Close()
	resp, _, err := c.ask(request(18, 0))
	if err != nil {
		return nil, err
	}
	all := map[int16][2]int16{}
	for _, k := range resp.(*kmsg.ApiVersionsResponse).ApiKeys {
		all[k.ApiKey] = [2]int16{k.MinVersion, k.MaxVersion}
	}
	return all, nil
}

// role returns which broker answers an API.
func role(key int16) string {
	switch key {
	case 0, 1, 2, 21, 23, 27, 61, 78, 79:
		return "leader"
	case 8, 9, 11, 12, 13, 14, 15, 28, 42, 47, 68, 69, 88, 89:
		return "group"
	case 22, 24, 25, 26, 65:
		return "txn"
	case 76, 77, 90, 91, 92:
		return "share"
	}
	return "any"
}

func (s *sweep) everything() {
	for _, key := range slices.Sorted(maps.Keys(s.offered)) {
		if unswept[key] != "" || key > kmsg.MaxKey {
			continue
		}
		for _, version := range versions(s.offered[key][0], min(s.offered[key][1], kmsg.RequestForKey(key).MaxVersion())) {
			if key != 64 { // UnregisterBroker: its default is broker 0
				s.one(key, version, "defaults", request(key, version))
			}
			s.one(key, version, "present", s.present.fill(request(key, version)))
			s.one(key, version, "absent", s.absent.fill(request(key, version)))
			for _, req := range s.addressed(key, version) {
				s.requests++
				_, _ = s.ask("any", req) // checks for addresses
			}
			for i, req := range s.special(key, version) {
				s.one(key, version, fmt.Sprint("special ", i), req)
			}
		}
	}
}

func (s *sweep) one(key, version int16, what string, req kmsg.Request) {
	req.SetVersion(version)
	if neverAnswered(req) {
		return
	}
	began := time.Now()
	resp, err := s.ask(role(key), req)
	var line string
	if err != nil {
		line = failure(err)
	} else {
		line = s.text(resp)
		if resp.Key() == 18 && key != 18 {
			line = "no answer is right"
		}
	}
	if took := time.Since(began); took > time.Second {
		s.t.Logf("%s v%d, %s, took %v", kmsg.NameForKey(key), version, what, took.Round(time.Millisecond))
	}
	s.requests++
	s.answers[key] = append(s.answers[key], fmt.Sprintf("v%d, %s: %s", version, what, strings.ReplaceAll(line, s.id, "ID")))
}

// neverAnswered reports whether brokers never answer the request.
func neverAnswered(req kmsg.Request) bool {
	p, ok := req.(*kmsg.AddPartitionsToTxnRequest)
	return ok && p.Version >= 4 && len(p.Transactions) == 0
}

// failure describes how a connection ended, with the same words for equivalent
// errors.
func failure(err error) string {
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, io.ErrUnexpectedEOF):
		return "closed"
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "no answer"
	}
	return "error: " + err.Error()
}

// ask sends a request to the broker of a role. After a failure the next request
// opens a new connection.
func (s *sweep) ask(role string, req kmsg.Request) (kmsg.Response, error) {
	resp, _, err := s.askAt(s.at[role], req)
	return resp, err
}

func (s *sweep) askAt(at string, req kmsg.Request) (kmsg.Response, []byte, error) {
	c := s.conns[at]
	if c == nil {
		ctx, cancel := context.WithTimeout(s.ctx, testkit.Patience)
		defer cancel()
		var err error
		if c, err = s.raw(ctx, at); err != nil {
			return nil, nil, err
		}
		c.limit = 5 * time.Second
		s.conns[at] = c
	}
	if p, ok := req.(*kmsg.ProduceRequest); ok && p.Acks == 0 && p.Version >= 3 {
		// It has no answer; the next request's answer comes first.
		if _, err := c.Write(rawFormat.AppendRequest(nil, req, -1)); err != nil {
			return nil, nil, err
		}
		req = request(18, 0)
	}
	resp, frame, err := c.ask(req)
	for _, address := range s.hidden {
		if bytes.Contains(frame, []byte(address)) {
			s.t.Errorf("%s: an answer to %s v%d holds the real address %s", s.name, kmsg.NameForKey(req.Key()), req.GetVersion(), address)
		}
	}
	if err != nil {
		c.Close()
		delete(s.conns, at)
	}
	return resp, frame, err
}

// compare compares another sweep with this one. Differences must match their
// declared deviation.
func (s *sweep) compare(t *testing.T, other *sweep) {
	for _, key := range slices.Sorted(maps.Keys(s.offered)) {
		s.compareOffered(t, other, key)
	}
	for key := range other.offered {
		if _, ok := s.offered[key]; !ok {
			t.Errorf("%s is offered, but not by %s", kmsg.NameForKey(key), s.name)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(s.answers)) {
		t.Run(kmsg.NameForKey(key), func(t *testing.T) {
			if _, ok := other.offered[key]; !ok {
				other.wantRefused(t, key, s.offered[key])
				return
			}
			// compareOffered has checked versions that only one of them has.
			want, got := s.transcriptOf(key, other), other.transcriptOf(key, s)
			if d := other.deviations[kmsg.NameForKey(key)]; d.differs != nil {
				if want == got {
					t.Errorf("%s is listed as a deviation, but does not differ: %s", other.name, d.why)
				}
				want = d.differs(want)
			}
			if want != got {
				t.Errorf("%s differs from %s:\n%s", other.name, s.name, difference(want, got))
			}
		})
	}
}

// compareOffered checks that an API has the versions of the first target, or
// those of its deviation.
func (s *sweep) compareOffered(t *testing.T, other *sweep, key int16) {
	t.Helper()
	name := kmsg.NameForKey(key)
	got, has := other.offered[key]
	d, unlike := other.deviations[name]
	switch {
	case !unlike:
		if !has || got != s.offered[key] {
			t.Errorf("%s is offered: %v, as %v; by %s as %v", name, has, got, s.name, s.offered[key])
		}
	case d.offered == nil && has:
		t.Errorf("%s is offered as %v, want it hidden: %s", name, got, d.why)
	case d.offered != nil && got != *d.offered:
		t.Errorf("%s is offered: %v, as %v, not as %v: %s", name, has, got, *d.offered, d.why)
	case has && got == s.offered[key] && d.differs == nil:
		t.Errorf("%s is offered as by %s, but listed as a deviation: %s", name, s.name, d.why)
	}
}

// wantRefused checks that an API that is not offered is not answered.
func (s *sweep) wantRefused(t *testing.T, key int16, versions [2]int16) {
	t.Helper()
	if _, ok := s.deviations[kmsg.NameForKey(key)]; !ok {
		return // compareOffered has reported it
	}
	for version := versions[0]; version <= min(versions[1], kmsg.RequestForKey(key).MaxVersion()); version++ {
		if _, frame, err := s.askAt(s.at["any"], request(key, version)); err == nil || failure(err) != "closed" {
			t.Errorf("%s: %s v%d is not offered, but is answered with %d bytes, %v", s.name, kmsg.NameForKey(key), version, len(frame), err)
		}
	}
}

// transcriptOf returns the answers of an API at the versions that both sweeps
// tested.
func (s *sweep) transcriptOf(key int16, other *sweep) string {
	version := func(line string) string {
		v, _, _ := strings.Cut(line, ",")
		return v
	}
	var lines []string
	for _, l := range s.answers[key] {
		if slices.ContainsFunc(other.answers[key], func(o string) bool { return version(o) == version(l) }) {
			lines = append(lines, l)
		}
	}
	return strings.Join(lines, "\n")
}

// special returns requests with special fields that clients do send.
func (s *sweep) special(key, version int16) []kmsg.Request {
	switch req := request(key, version).(type) {
	case *kmsg.DeleteTopicsRequest:
		// An existing topic for each version.
		name := s.newTopic(fmt.Sprint("doomed", version), 1)
		req.TopicNames = []string{name, s.absent.topic}
		for _, n := range req.TopicNames {
			one := kmsg.NewDeleteTopicsRequestTopic()
			one.Topic = &n
			req.Topics = append(req.Topics, one)
		}
		return []kmsg.Request{req}
	case *kmsg.DescribeClusterRequest:
		req.EndpointType = 2 // controllers
		return []kmsg.Request{req}
	case *kmsg.ListOffsetsRequest:
		var all []kmsg.Request
		for _, at := range []int64{-2, -3, -4, -5, epoch.UnixMilli() + 3} {
			one := s.present.fill(request(key, version)).(*kmsg.ListOffsetsRequest)
			one.Topics[0].Partitions[0].Timestamp = at
			all = append(all, one)
		}
		return all
	case *kmsg.FindCoordinatorRequest:
		req.CoordinatorType, req.CoordinatorKey, req.CoordinatorKeys = 1, s.present.txn, []string{s.present.txn, s.absent.txn}
		return []kmsg.Request{req}
	case *kmsg.ApiVersionsRequest:
		req.ClientSoftwareName, req.ClientSoftwareVersion = "sweep", "1"
		return []kmsg.Request{req}
	}
	return nil
}

// addressed returns requests whose answers contain addresses that a proxy must
// remove, so they differ from direct ones.
func (s *sweep) addressed(key, version int16) []kmsg.Request {
	switch req := request(key, version).(type) {
	case *kmsg.DescribeConfigsRequest:
		// Brokers' configurations contain listeners and voters.
		for _, broker := range []string{"0", "1"} {
			one := kmsg.NewDescribeConfigsRequestResource()
			one.ResourceType, one.ResourceName = kmsg.ConfigResourceTypeBroker, broker
			req.Resources = append(req.Resources, one)
		}
		req.IncludeSynonyms = true
		return []kmsg.Request{req}
	case *kmsg.DescribeQuorumRequest:
		t := kmsg.NewDescribeQuorumRequestTopic()
		t.Topic = "__cluster_metadata"
		t.Partitions = append(t.Partitions, kmsg.NewDescribeQuorumRequestTopicPartition())
		req.Topics = append(req.Topics, t)
		return []kmsg.Request{req}
	}
	return nil
}
