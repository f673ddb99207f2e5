package tiproxy

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"penstock/routing/resource"
	"penstock/routing/resource/codec"
)

// What is exported of a file's resources becomes the same resources again.
func TestExportsBecomeTheSameResources(t *testing.T) {
	files, _ := filepath.Glob("testdata/*.toml")
	some := 0
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		objects, faults, _ := codec.DecodeReport(file, data, resource.RoutingKinds(), Foreign())
		if len(faults) > 0 {
			continue
		}
		some++
		text, err := TOML(Export(objects))
		if err != nil {
			t.Fatal(err)
		}
		want, got := "", ""
		for _, o := range objects {
			want += string(codec.EncodeYAML(o)) + "\n"
		}
		again, faults, _ := codec.DecodeReport("-", text, resource.RoutingKinds(), Foreign())
		for _, o := range again {
			got += string(codec.EncodeYAML(o)) + "\n"
		}
		if len(faults) > 0 || got != want {
			t.Errorf("%s: %v\n%s\nbecomes\n%s\nwant\n%s", file, faults, text, got, want)
		}
	}
	if some < 4 {
		t.Errorf("only %d files", some)
	}
}

func TestPartOfAFileReplacesWhatItGives(t *testing.T) {
	before := Settings{
		"proxy":  Settings{"addr": "0.0.0.0:6000", "max-connections": 5},
		"labels": Settings{"group": "a", "rack": "b"},
	}
	text, err := Merge(before, []byte("labels = {group = 'c'}\nproxy.max-connections = 7\n[balance]\npolicy = 'location'\n"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"addr = '0.0.0.0:6000'", "max-connections = 7", "group = 'c'", "policy = 'location'"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	if strings.Contains(string(text), "rack") {
		t.Errorf("a label that is no longer given is left in\n%s", text)
	}
	if _, err := Merge(before, []byte("a = 1\n[")); err == nil || !strings.HasPrefix(err.Error(), "line 2: ") {
		t.Errorf("error %v", err)
	}
}
