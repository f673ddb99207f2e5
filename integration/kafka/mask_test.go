package kafka

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// volatile are the fields of answers that differ between runs on the same
// broker; a value is shown as "*". Addresses are among them; other tests check
// those.
var volatile = map[string]bool{
	"ThrottleMillis": true, "CorrelationID": true,
	"Host": true, "Port": true, "NodeID": true, "Rack": true, "Coordinator": true,
	"ControllerID": true, "LeaderID": true, "Leader": true, "LeaderEpoch": true, "CurrentLeaderEpoch": true, "PartitionLeaderEpoch": true,
	"Replicas": true, "ISR": true, "OfflineReplicas": true, "PreferredReadReplica": true, "CurrentLeader": true,
	"EligibleLeaderReplicas": true, "LastKnownELR": true, "AddingReplicas": true, "RemovingReplicas": true,
	"TopicID": true, "MemberID": true, "ProducerID": true, "TransactionalProducerID": true, "TransactionCoordinator": true,
	"LogAppendTime": true, "StartTimestamp": true, "TxnStartTimestamp": true, "LastTimestamp": true, "Timestamp": true,
	"CoordinatorEpoch": true, "CurrentTxnStartOffset": true,
	"Size": true, "OffsetLag": true, "TotalBytes": true, "UsableBytes": true,
	"HighWatermark": true, "LastFetchTimestamp": true, "LastCaughtUpTimestamp": true, "LogEndOffset": true,
	"SessionID": true, "ClientHost": true, "ClientInstanceID": true,
	"IssueTimestampMillis": true, "ExpiryTimestampMillis": true, "MaxTimestampMillis": true, "TokenID": true, "HMAC": true,
	"DirectoryID": true, "ReplicaDirectoryID": true, "FinalizedFeaturesEpoch": true, "BrokerEpoch": true, "FencedBrokers": true,
	"AcquisitionLockTimeoutMillis": true,
}

// text formats a decoded message as one line: non-zero fields, lists of
// structures sorted. List elements of other runs are omitted.
func text(v any, id string) string {
	w := writer{id: id}
	return w.text(reflect.ValueOf(v))
}

// text formats a message like the function text, and omits the brokers'
// internal topics if the target is compared with one that hides them.
func (r *run) text(v any) string {
	w := writer{id: r.id, ownTopics: r.withoutInternal}
	return w.text(reflect.ValueOf(v))
}

type writer struct {
	strings.Builder
	id        string // of this run; elements of other runs are omitted
	ownTopics bool   // internal topics are omitted
}

func (b *writer) text(v reflect.Value) string {
	one := writer{id: b.id, ownTopics: b.ownTopics}
	one.write(v)
	return one.String()
}

// foreign reports whether a list element belongs to another run or is omitted.
func (b *writer) foreign(s string) bool {
	if b.ownTopics && (strings.Contains(s, `Topic:"__`) || strings.Contains(s, `{Name:"__`)) {
		return true
	}
	for _, m := range runs.FindAllString(s, -1) {
		if m[1:] != b.id {
			return true
		}
	}
	return false
}

var runs = regexp.MustCompile(`-z[0-9a-f]{5}\b`)

func (b *writer) write(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			b.WriteString("null")
			return
		}
		b.write(v.Elem())
	case reflect.Struct:
		b.writeStruct(v)
	case reflect.Array:
		fmt.Fprintf(b, "%x", v.Interface())
	case reflect.Slice:
		b.writeSlice(v)
	case reflect.String:
		fmt.Fprintf(b, "%q", unaddressed(v.String()))
	default:
		fmt.Fprint(b, v.Interface())
	}
}

func (b *writer) writeStruct(v reflect.Value) {
	b.WriteByte('{')
	first := true
	for i := range v.NumField() {
		f := v.Type().Field(i)
		// Version is that of the request; unknown tags are not compared.
		if !f.IsExported() || f.Name == "Version" || f.Name == "UnknownTags" || v.Field(i).IsZero() && !volatile[f.Name] {
			continue
		}
		// The presence of an address or an ID can be compared.
		if k := v.Field(i).Kind(); volatile[f.Name] && (k == reflect.String || k == reflect.Array) && v.Field(i).IsZero() {
			continue
		}
		// A list whose elements are all omitted counts as empty.
		if f := v.Field(i); f.Kind() == reflect.Slice && (b.ownTopics || f.Len() > 0) && b.text(f) == "[]" {
			continue
		}
		if !first {
			b.WriteByte(' ')
		}
		first = false
		b.WriteString(f.Name)
		b.WriteByte(':')
		if volatile[f.Name] {
			b.WriteByte('*')
			continue
		}
		b.write(v.Field(i))
	}
	b.WriteByte('}')
}

func (b *writer) writeSlice(v reflect.Value) {
	if v.Type().Elem().Kind() == reflect.Uint8 {
		fmt.Fprintf(b, "(%d bytes)", v.Len())
		return
	}
	var all []string
	for i := range v.Len() {
		if one := b.text(v.Index(i)); !b.foreign(one) {
			all = append(all, one)
		}
	}
	if v.Type().Elem().Kind() == reflect.Struct {
		slices.Sort(all)
	}
	fmt.Fprintf(b, "[%s]", strings.Join(all, " "))
}

var (
	addresses  = regexp.MustCompile(`\b127\.\d+\.\d+\.\d+(:\d+)?|\blocalhost:\d+|[a-z0-9-]+(\.[a-z0-9-]+)+:\d{4,5}`)
	identities = regexp.MustCompile(`\b[A-Za-z0-9_-]{22}\b|\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b`)
)

// unaddressed masks addresses and random IDs in a text.
func unaddressed(s string) string {
	return identities.ReplaceAllString(addresses.ReplaceAllString(s, "ADDRESS"), "UUID")
}

func TestMaskedText(t *testing.T) {
	type inner struct {
		Name string
		Port int32
		Err  int16
	}
	got := text(&struct {
		Version        int16
		ThrottleMillis int32
		Message        *string
		Many           []inner
		None           []inner
		Raw            []byte
		ID             [2]byte
	}{4, 7, new("not at 127.9.8.7:9092 now"), []inner{{"b-z00001", 1, 0}, {"a", 0, 3}, {"c-z00002", 0, 0}},
		nil, []byte{1, 2}, [2]byte{1, 255}}, "z00001")
	want := `{ThrottleMillis:* Message:"not at ADDRESS now" Many:[{Name:"a" Port:* Err:3} {Name:"b-z00001" Port:*}] Raw:(2 bytes) ID:01ff}`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
