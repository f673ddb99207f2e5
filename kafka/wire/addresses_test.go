package wire

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// virtual is an address map for tests: it hides empty hosts and every third node.
func virtual(id int32, host string, port int32) (string, int32, bool, error) {
	return fmt.Sprintf("broker-%d.t1.example", id), port + 1, host != "" && id%3 != 0, nil
}

// mapDecoded edits a decoded response as MapAddresses edits its bytes.
func mapDecoded(m message, to NodeFunc) {
	switch m := m.(type) {
	case *kmsg.DescribeQuorumResponse:
		for i := range m.Nodes {
			m.Nodes[i].Listeners = nil
		}
	case *kmsg.DescribeConfigsResponse:
		maskDecoded(m)
	case *kmsg.FindCoordinatorResponse:
		one := func(id *int32, host *string, port *int32, code *int16) {
			if *id == -1 && *host == "" {
				return
			}
			vhost, vport, ok, _ := to(*id, *host, *port)
			if *host, *port = vhost, vport; !ok {
				*id, *host, *port = -1, "", -1
				if *code == 0 {
					*code = errCoordinatorNotAvailable
				}
			}
		}
		if m.Version <= 3 {
			one(&m.NodeID, &m.Host, &m.Port, &m.ErrorCode)
		}
		for i := range m.Coordinators {
			c := &m.Coordinators[i]
			one(&c.NodeID, &c.Host, &c.Port, &c.ErrorCode)
		}
	case *kmsg.DescribeClusterResponse:
		if m.Version >= 1 && m.EndpointType != 1 {
			m.Brokers = nil
		}
		gone := removedBrokers(m.Brokers, to, func(b *kmsg.DescribeClusterResponseBroker) (int32, string, int32) {
			return b.NodeID, b.Host, b.Port
		})
		mapSlice(reflect.ValueOf(m).Elem().FieldByName("Brokers"), to)
		if gone[m.ControllerID] {
			if m.ControllerID = -1; len(m.Brokers) > 0 {
				m.ControllerID = m.Brokers[0].NodeID
			}
		}
	case *kmsg.MetadataResponse:
		gone := removedBrokers(m.Brokers, to, func(b *kmsg.MetadataResponseBroker) (int32, string, int32) { return b.NodeID, b.Host, b.Port })
		mapSlice(reflect.ValueOf(m).Elem().FieldByName("Brokers"), to)
		if m.Version >= 1 && gone[m.ControllerID] {
			if m.ControllerID = -1; len(m.Brokers) > 0 {
				m.ControllerID = m.Brokers[0].NodeID
			}
		}
		for i := range m.Topics {
			for j := range m.Topics[i].Partitions {
				if p := &m.Topics[i].Partitions[j]; gone[p.Leader] {
					if p.Leader = -1; p.ErrorCode == 0 {
						p.ErrorCode = errLeaderNotAvailable
					}
				}
			}
		}
	default:
		v := reflect.ValueOf(m).Elem().FieldByName("Brokers")
		if !v.IsValid() {
			v = reflect.ValueOf(m).Elem().FieldByName("NodeEndpoints")
		}
		mapSlice(v, to)
	}
}

// removedBrokers are the ids of the brokers that are left out.
func removedBrokers[B any](list []B, to NodeFunc, of func(*B) (int32, string, int32)) map[int32]bool {
	gone := map[int32]bool{}
	for i := range list {
		id, host, port := of(&list[i])
		if _, _, ok, _ := to(id, host, port); !ok {
			gone[id] = true
		}
	}
	return gone
}

// setLeaders makes brokers of the response the controller and the leaders of
// partitions.
func setLeaders(m *kmsg.MetadataResponse, seed uint64) *kmsg.MetadataResponse {
	id := func(i int) int32 { return m.Brokers[(int(seed)+i)%len(m.Brokers)].NodeID }
	if len(m.Brokers) == 0 {
		return m
	}
	m.ControllerID = id(0)
	for i := range m.Topics {
		for j := range m.Topics[i].Partitions {
			p := &m.Topics[i].Partitions[j]
			p.Leader, p.ErrorCode = id(i+j), int16(j%2)
		}
	}
	return m
}

// mapSlice maps a slice of structs with NodeID, Host and Port.
func mapSlice(v reflect.Value, to NodeFunc) {
	kept := reflect.MakeSlice(v.Type(), 0, v.Len())
	for i := range v.Len() {
		n := v.Index(i)
		host, port, ok, _ := to(int32(n.FieldByName("NodeID").Int()), n.FieldByName("Host").String(), int32(n.FieldByName("Port").Int()))
		if ok {
			n.FieldByName("Host").SetString(host)
			n.FieldByName("Port").SetInt(int64(port))
			kept = reflect.Append(kept, n)
		}
	}
	v.Set(kept)
}

func maskDecoded(m *kmsg.DescribeConfigsResponse) {
	for i := range m.Resources {
		r := &m.Resources[i]
		if r.ResourceType != kmsg.ConfigResourceTypeBroker {
			continue
		}
		for j := range r.Configs {
			c := &r.Configs[j]
			mask := isAddressSetting([]byte(c.Name))
			if mask {
				c.Value, c.IsSensitive = nil, true
			}
			for k := range c.ConfigSynonyms {
				if s := &c.ConfigSynonyms[k]; mask || isAddressSetting([]byte(s.Name)) {
					s.Value = nil
				}
			}
		}
	}
}

// carriers calls do for all responses that carry addresses.
func carriers(do func(key, version int16)) {
	for key := range int16(MaxKey + 1) {
		_, highest, ok := Known(key)
		for v := int16(0); ok && v <= highest; v++ {
			if CarriesAddress(key, v) {
				do(key, v)
			}
		}
	}
}

func mapAddresses(key, version int16, body []byte, to NodeFunc) ([]byte, error) {
	out, tail, _, err := MapAddresses([]byte("dst"), key, version, body, to)
	if err != nil {
		return nil, err
	}
	return append(out[len("dst"):], tail...), nil
}

// checkMapped compares edit-then-decode of a response with decode-then-edit.
func checkMapped(t *testing.T, key, version int16, body []byte, to NodeFunc) {
	t.Helper()
	before := string(body)
	got, err := mapAddresses(key, version, body, to)
	if err != nil {
		t.Fatalf("%s v%d: %v", Name(key), version, err)
	}
	if before != string(body) {
		t.Fatalf("%s v%d: the body was written to", Name(key), version)
	}
	want := newMessage(t, Response, key, version)
	if err := want.ReadFrom(body); err != nil {
		t.Fatalf("%s v%d: edited, but kmsg cannot read it: %v", Name(key), version, err)
	}
	mapDecoded(want, to)
	plain(reflect.ValueOf(want).Elem())
	if m := decode(t, Response, key, version, got); !reflect.DeepEqual(m, want) {
		t.Fatalf("%s v%d\ngot  %+v\nwant %+v", Name(key), version, m, want)
	}
}

// Every version of a response with addresses is edited like its decoded value.
func TestMapAddressesMatchesDecodedMapping(t *testing.T) {
	n := 0
	carriers(func(key, version int16) {
		n++
		t.Run(fmt.Sprint(Name(key), version), func(t *testing.T) {
			for seed := range uint64(40) {
				m, body := randomMessage(t, rand.New(rand.NewPCG(seed, 2)), Response, key, version)
				if c, ok := m.(*kmsg.DescribeConfigsResponse); ok {
					body = withAddressSettings(c, seed).AppendTo(nil)
				}
				if c, ok := m.(*kmsg.DescribeClusterResponse); ok && seed%2 == 0 {
					if c.EndpointType = 1; len(c.Brokers) > 0 {
						c.ControllerID = c.Brokers[0].NodeID
					}
					body = c.AppendTo(nil)
				}
				if c, ok := m.(*kmsg.MetadataResponse); ok && seed%4 != 0 {
					body = setLeaders(c, seed).AppendTo(nil)
				}
				checkMapped(t, key, version, body, virtual)
			}
		})
	})
	if n != 14+7+3+4+3+3+3+1+5 {
		t.Errorf("%d versions of responses carry addresses", n)
	}
}

func withAddressSettings(m *kmsg.DescribeConfigsResponse, seed uint64) *kmsg.DescribeConfigsResponse {
	names := []string{"advertised.listeners", "log.dirs", "controller.quorum.voters", "rlmm.common.client.bootstrap.servers", "x.port"}
	for i := range m.Resources {
		m.Resources[i].ResourceType = kmsg.ConfigResourceType(4 - (seed+uint64(i))%3)
		for j := range m.Resources[i].Configs {
			c := &m.Resources[i].Configs[j]
			c.Name = names[(seed+uint64(j))%uint64(len(names))]
			for k := range c.ConfigSynonyms {
				c.ConfigSynonyms[k].Name = names[(seed+uint64(k))%uint64(len(names))]
			}
		}
	}
	return m
}

// No byte of a hidden host reaches a client, in tags and padding either.
func TestHiddenHostsLeaveNoByte(t *testing.T) {
	const secret = "beefy.internal.svc"
	carriers(func(key, version int16) {
		for seed := range uint64(60) {
			m, _ := randomMessage(t, rand.New(rand.NewPCG(seed, 3)), Response, key, version)
			replaceHosts(reflect.ValueOf(m).Elem(), secret)
			if c, ok := m.(*kmsg.DescribeConfigsResponse); ok {
				for i := range c.Resources {
					c.Resources[i].ResourceType = 4
					for j := range c.Resources[i].Configs {
						s := &c.Resources[i].Configs[j]
						s.Name, s.Value = "listeners", kmsg.StringPtr("PLAIN://"+secret+":9092")
						for k := range s.ConfigSynonyms {
							s.ConfigSynonyms[k].Value = s.Value
						}
					}
				}
			}
			body := m.AppendTo(nil)
			hide := func(int32, string, int32) (string, int32, bool, error) { return "", 0, false, nil }
			out, err := mapAddresses(key, version, body, hide)
			if err != nil || strings.Contains(string(out), secret) {
				t.Fatalf("%s v%d: %v, %q", Name(key), version, err, out)
			}
			if Walkable(Response, key, version) {
				out, err := walk(t, rand.New(rand.NewPCG(seed, 4)), Response, key, version, body, &Edits{Node: hide}, 1000)
				if err != nil || strings.Contains(string(out), secret) {
					t.Fatalf("%s v%d, walked: %v, %q", Name(key), version, err, out)
				}
			}
		}
	})
}

// replaceHosts sets every field that is named Host.
func replaceHosts(v reflect.Value, host string) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if name := v.Type().Field(i).Name; name == "Host" {
				v.Field(i).SetString(host)
			} else if v.Type().Field(i).IsExported() {
				replaceHosts(v.Field(i), host)
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			replaceHosts(v.Index(i), host)
		}
	}
}

// FindCoordinator does not change node -1 and its errors.
func TestErrorsWithoutACoordinatorStay(t *testing.T) {
	for version := int16(0); version <= 6; version++ {
		m := kmsg.NewPtrFindCoordinatorResponse()
		m.Version, m.NodeID, m.Port, m.ErrorCode = version, -1, -1, 15
		c := kmsg.NewFindCoordinatorResponseCoordinator()
		c.Key, c.NodeID, c.Port, c.ErrorCode = "g", -1, -1, 15
		m.Coordinators = append(m.Coordinators, c)
		body := m.AppendTo(nil)
		_, tail, hidden, err := MapAddresses(nil, keyFindCoordinator, version, body, func(int32, string, int32) (string, int32, bool, error) {
			return "", 0, false, errors.New("asked")
		})
		if err != nil || len(tail) != len(body) || hidden != 0 {
			t.Errorf("v%d: %v, %d hidden, %d of %d bytes untouched", version, err, hidden, len(tail), len(body))
		}
	}
}

// The controllers' listeners are never shown, mapped or not.
func TestControllersAreNeverShown(t *testing.T) {
	show := func(_ int32, host string, port int32) (string, int32, bool, error) { return host, port, true, nil }
	d := kmsg.NewPtrDescribeClusterResponse()
	d.Version, d.EndpointType = 2, 2
	b := kmsg.NewDescribeClusterResponseBroker()
	b.Host = "controller.internal"
	d.Brokers = append(d.Brokers, b)
	q := kmsg.NewPtrDescribeQuorumResponse()
	q.Version = 2
	n := kmsg.NewDescribeQuorumResponseNode()
	l := kmsg.NewDescribeQuorumResponseNodeListener()
	l.Name, l.Host = "CONTROLLER", "controller.internal"
	n.Listeners = append(n.Listeners, l)
	q.Nodes = append(q.Nodes, n)
	for key, body := range map[int16][]byte{keyDescribeCluster: d.AppendTo(nil), keyDescribeQuorum: q.AppendTo(nil)} {
		out, tail, hidden, err := MapAddresses(nil, key, 2, body, show)
		if err != nil || hidden != 1 || strings.Contains(string(out)+string(tail), "controller.internal") {
			t.Errorf("%s: %v, %d hidden, %q", Name(key), err, hidden, append(out, tail...))
		}
	}
}

func TestNodeFuncErrorsEndTheEdit(t *testing.T) {
	fail := func(int32, string, int32) (string, int32, bool, error) { return "", 0, false, errForeign }
	carriers(func(key, version int16) {
		if key == keyDescribeConfigs || key == keyDescribeQuorum {
			return
		}
		rnd, asked := rand.New(rand.NewPCG(uint64(key), 5)), false
		for range 50 {
			m, body := randomMessage(t, rnd, Response, key, version)
			if c, ok := m.(*kmsg.DescribeClusterResponse); ok {
				c.EndpointType = 1
				body = c.AppendTo(nil)
			}
			called := false
			_, err := mapAddresses(key, version, body, func(id int32, host string, port int32) (string, int32, bool, error) {
				called = true
				return fail(id, host, port)
			})
			if called != errors.Is(err, errForeign) || !called && err != nil {
				t.Fatalf("%s v%d: called %v, error %v", Name(key), version, called, err)
			}
			asked = asked || called
		}
		if !asked {
			t.Errorf("%s v%d: the map was never called", Name(key), version)
		}
	})
}

// Every field of every response that may be an address is edited, or known not
// to be a broker's: fields that a newer kmsg adds must be reviewed.
func TestEveryAddressFieldIsMapped(t *testing.T) {
	none := map[string]bool{
		"StreamsGroupHeartbeat.PartitionsByUserEndpoint.UserEndpoint.Host": true, // of clients
		"StreamsGroupDescribe.Groups.Members.UserEndpoint.Host":            true,
		"StreamsGroupHeartbeat.EndpointInformationEpoch":                   true,
		"DescribeAcls.Resources.ACLs.Host":                                 true, // the host that an ACL applies to
		"DeleteAcls.Results.MatchingACLs.Host":                             true,
		"DescribeGroups.Groups.Members.ClientHost":                         true, // the host of a client
		"ConsumerGroupDescribe.Groups.Members.ClientHost":                  true,
		"ShareGroupDescribe.Groups.Members.ClientHost":                     true,
		"StreamsGroupDescribe.Groups.Members.ClientHost":                   true,
	}
	for key := range int16(MaxKey + 1) {
		_, highest, ok := Known(key)
		if !ok {
			continue
		}
		eachField(reflect.TypeOf(kmsg.ResponseForKey(key)).Elem(), Name(key), func(path, name string) {
			if suspicious := strings.Contains(name, "Host") || strings.Contains(name, "Endpoint") && name != "EndpointType" ||
				strings.Contains(name, "Listener") || strings.Contains(name, "Address"); !suspicious {
				return
			}
			if !CarriesAddress(key, highest) && !none[path] && !none[path+".Host"] &&
				!strings.HasPrefix("StreamsGroupHeartbeat.PartitionsByUserEndpoint.UserEndpoint", path) {
				t.Errorf("%s may be an address, but is not edited", path)
			}
		})
	}
}

func eachField(of reflect.Type, path string, do func(path, name string)) {
	for of.Kind() == reflect.Slice || of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	if of.Kind() != reflect.Struct {
		return
	}
	for i := range of.NumField() {
		if f := of.Field(i); f.IsExported() {
			do(path+"."+f.Name, f.Name)
			eachField(f.Type, path+"."+f.Name, do)
		}
	}
}
