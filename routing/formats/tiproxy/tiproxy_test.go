package tiproxy

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"penstock/routing/resource"
	"penstock/routing/resource/codec"
	"penstock/routing/resource/validate"
)

var update = flag.Bool("update", false, "rewrite what the files in testdata become")

// become describes what a file becomes: its faults, or its warnings and resources.
func become(name string, data []byte) string {
	objects, faults, warnings := codec.DecodeReport(name, data, resource.RoutingKinds(), Foreign())
	if len(faults) == 0 {
		faults, _ = validate.Objects(objects)
	}
	if len(faults) > 0 {
		return faults.Error() + "\n"
	}
	var b strings.Builder
	for _, w := range warnings {
		b.WriteString("warning: " + w.Error() + "\n")
	}
	for _, o := range objects {
		b.WriteString("---\n" + string(codec.EncodeYAML(o)))
	}
	return b.String()
}

// The files in testdata become what the files beside them say (go test -update writes them).
func TestFilesBecomeResources(t *testing.T) {
	files, err := filepath.Glob("testdata/*.toml")
	if err != nil || len(files) == 0 {
		t.Fatal("no files", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := become(filepath.Base(file), data)
			if other := become("-", data); strings.ReplaceAll(other, "-:", filepath.Base(file)+":") != got {
				t.Errorf("without the name of the file it becomes\n%s", other)
			}
			golden := file + ".txt"
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("becomes\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// Every key has a form that its sample passes, so that no known key is refused.
func TestEveryKeyIsTaken(t *testing.T) {
	samples := map[form]string{text: `""`, whole: "0", decimal: "0.0", boolean: "false", texts: "[]", wholes: "[]", pairs: "{}"}
	for path, k := range keys {
		sample := samples[k.form]
		switch {
		case path == "proxy.pd-addrs":
			sample = `"127.0.0.1:2379"`
		case k.words != nil:
			sample = `"` + k.words[0] + `"`
		}
		objects, faults, _ := codec.DecodeReport("a.toml", []byte(path+" = "+sample+"\n"), resource.RoutingKinds(), Foreign())
		if len(faults) > 0 || len(objects) == 0 {
			t.Errorf("%s = %s: %v", path, sample, faults)
		}
	}
}

func FuzzFiles(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.toml")
	for _, file := range files {
		data, _ := os.ReadFile(file)
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		objects, faults, _ := codec.DecodeReport("a.toml", data, resource.RoutingKinds(), Foreign())
		if len(faults) > 0 && len(objects) > 0 {
			t.Errorf("%q: %d resources beside faults", data, len(objects))
		}
	})
}
