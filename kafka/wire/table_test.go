package wire

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestTableMatchesKmsg(t *testing.T) {
	for key := range int16(MaxKey + 1) {
		r := kmsg.RequestForKey(key)
		lo, hi, ok := Known(key)
		if r == nil || Withheld(key) != "" {
			if ok {
				t.Errorf("%s is offered", Name(key))
			}
			continue
		}
		if !ok || hi != r.MaxVersion() || lo != 0 && key != keySASLHandshake {
			t.Errorf("%s: %d to %d, %v; kmsg has up to %d", Name(key), lo, hi, ok, r.MaxVersion())
		}
		for v := int16(0); v <= hi; v++ {
			resp := r.ResponseKind()
			r.SetVersion(v)
			resp.SetVersion(v)
			if Flexible(key, v) != r.IsFlexible() || resp.IsFlexible() != r.IsFlexible() {
				t.Errorf("%s v%d: flexible is %v", Name(key), v, Flexible(key, v))
			}
		}
	}
}

// Rule 14: unknown APIs are neither offered nor carried, so filters never see them.
func TestUnknownKeysAreNeitherOfferedNorCarried(t *testing.T) {
	for _, key := range []int16{-32768, -1, MaxKey + 1, 32767} {
		if _, _, ok := Known(key); ok || Flexible(key, 9) || Name(key) != "Unknown" || Withheld(key) != "" ||
			CarriesAddress(key, 0) || Walkable(Request, key, 0) {
			t.Errorf("key %d is known", key)
		}
	}
	if Walkable(Request, keyProduce, -1) || Walkable(Request, keyProduce, 99) || Walkable(2, keyProduce, 9) {
		t.Error("unknown versions can be walked")
	}
}

// APIs between brokers or between controllers are never offered.
func TestInternalAPIsAreWithheld(t *testing.T) {
	for _, name := range []string{
		"Vote", "BeginQuorumEpoch", "EndQuorumEpoch", "FetchSnapshot", "AddRaftVoter", "RemoveRaftVoter", "UpdateRaftVoter",
		"BrokerRegistration", "BrokerHeartbeat", "LeaderAndIsr", "StopReplica", "UpdateMetadata", "ControlledShutdown",
		"AlterPartition", "AllocateProducerIds", "Envelope", "ControllerRegistration", "AssignReplicasToDirs",
		"ReadShareGroupState", "UnregisterController",
	} {
		found := false
		for key := range int16(MaxKey + 1) {
			if Name(key) == name {
				found = Withheld(key) != ""
			}
		}
		if !found {
			t.Errorf("%s is not withheld", name)
		}
	}
	for _, key := range []int16{keyProduce, keyDescribeQuorum, 27, 64} {
		if _, _, ok := Known(key); !ok {
			t.Errorf("%s is not offered", Name(key))
		}
	}
	for key := range withheld {
		if Name(int16(key)) == "Unknown" {
			t.Errorf("key %d is withheld, but not known", key)
		}
	}
}

// All handling of an API is documented in the file of its key and name.
func TestEveryEditedAPIHasItsFile(t *testing.T) {
	words := regexp.MustCompile(`[A-Z][a-z]+`)
	named := map[string]string{}
	for key := range int16(MaxKey + 1) {
		file := fmt.Sprintf("%02d_%s.go", key, strings.ToLower(strings.Join(words.FindAllString(Name(key), -1), "_")))
		named[file] = fmt.Sprintf("\n// %s (API key %d", Name(key), key)
		if specOf(key) == nil {
			continue
		}
		if _, err := os.Stat(file); err != nil {
			t.Errorf("%s is edited elsewhere: %v", Name(key), err)
		}
	}
	files, err := filepath.Glob("[0-9]*.go")
	if err != nil || len(files) < len(specs) {
		t.Errorf("files: %q, %v", files, err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		if text, err := os.ReadFile(file); err != nil || named[file] == "" || !strings.Contains(string(text), named[file]) {
			t.Errorf("%s does not begin with %q: %v", file, named[file], err)
		}
	}
}
