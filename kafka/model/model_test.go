package model

import (
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"penstock/kafka/filter"
	"penstock/routing/resource"
	"penstock/routing/resource/codec"
	"penstock/routing/resource/validate"
)

var update = flag.Bool("update", false, "rewrite what testdata expects")

// A filter's configuration for tests, in the shapes that the real ones have.
type (
	noConfig struct{}

	mapping struct {
		// BrokerAddressMapping maps addresses.
		BrokerAddressMapping map[string]string `yaml:"brokerAddressMapping"`
	}

	tenant struct {
		// TenantKey is the prefix.
		TenantKey string `yaml:"tenantKey"`
	}

	login struct {
		User     string          `yaml:"user"`
		Password resource.Secret `yaml:"password"`
	}
)

func (*noConfig) Validate(func(path, message string, value any)) {}
func (*login) Validate(func(path, message string, value any))    {}

func (c *mapping) Validate(fault func(path, message string, value any)) {
	seen := map[string]string{}
	keys := make([]string, 0, len(c.BrokerAddressMapping))
	for from := range c.BrokerAddressMapping {
		keys = append(keys, from)
	}
	slices.Sort(keys)
	for _, from := range keys {
		to := c.BrokerAddressMapping[from]
		if before, twice := seen[to]; twice {
			fault(`brokerAddressMapping["`+from+`"]`, "duplicate address, first at "+before, to)
		}
		seen[to] = from
	}
}

func (c *tenant) Validate(fault func(path, message string, value any)) {
	if c.TenantKey == "" {
		fault("tenantKey", "is required", nil)
	}
}

func (c *tenant) NamePrefix() string { return c.TenantKey + "-" }

func (c *noConfig) Provision(env filter.Env) (filter.Filter, error) { return provision("none", env) }
func (c *login) Provision(env filter.Env) (filter.Filter, error)    { return provision("login", env) }
func (c *mapping) Provision(env filter.Env) (filter.Filter, error)  { return provision("mapping", env) }
func (c *tenant) Provision(env filter.Env) (filter.Filter, error)   { return provision(c.TenantKey, env) }

func (*noConfig) Accepts(filter.Config) bool { return true }
func (*login) Accepts(filter.Config) bool    { return true }
func (*mapping) Accepts(filter.Config) bool  { return true }
func (c *tenant) Accepts(older filter.Config) bool {
	o, ok := older.(*tenant)
	return ok && o.TenantKey == c.TenantKey
}

func testTypes() []filter.Type {
	return []filter.Type{
		{Name: "ApiVersions", Config: func() filter.Config { return new(noConfig) }},
		{Name: "BrokerAddress", Config: func() filter.Config { return new(mapping) }},
		{Name: "MultiTenant", Aliases: []string{"MultiTenantFilter"}, Config: func() filter.Config { return new(tenant) }},
		{Name: "Login", Config: func() filter.Config { return new(login) }},
	}
}

func testKinds() []resource.Kind { return append(resource.RoutingKinds(), Kinds(testTypes())...) }

// decode decodes a text that must be right.
func decode(t testing.TB, text string) []resource.Object {
	t.Helper()
	objects, faults := codec.Decode("test.yaml", []byte(text), testKinds())
	if len(faults) > 0 {
		t.Fatalf("unexpected faults:\n%v", faults)
	}
	return objects
}

// certificates are there in every test: t1 and t2.
func certificates() []resource.Object {
	var all []resource.Object
	for _, name := range []string{"t1", "t2"} {
		all = append(all, resource.Object{Key: resource.Key{Kind: "Certificate", Name: name}, Spec: new(resource.Certificate)})
	}
	return all
}

func puts(objects []resource.Object) []resource.Change {
	changes := make([]resource.Change, len(objects))
	for i, o := range objects {
		changes[i] = resource.Put(o)
	}
	return changes
}

// Each file in testdata/bad breaks one rule or a few of a kind; the faults
// that users are told stand beside it (go test -update writes them).
func TestBadFilesGetTheExpectedFaults(t *testing.T) {
	files, err := filepath.Glob("testdata/bad/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			objects, faults := codec.Decode(filepath.Base(file), data, testKinds())
			if len(faults) == 0 {
				faults, _ = validate.Objects(append(certificates(), objects...))
			}
			if len(faults) == 0 {
				t.Error("no faults")
			}
			golden(t, file+".txt", faults.Error()+"\n")
		})
	}
}

// golden compares with what stands in a file, or writes it.
func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

// What is taken is given back as it was written, and every key of the kinds is
// among it.
func TestGoodFilesRoundTrip(t *testing.T) {
	files, err := filepath.Glob("testdata/good/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files: %v", err)
	}
	var all strings.Builder
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		objects := decode(t, string(data))
		if faults, _ := validate.Objects(append(certificates(), objects...)); len(faults) > 0 {
			t.Errorf("%s:\n%v", file, faults)
		}
		var text strings.Builder
		for i, o := range objects {
			if i > 0 {
				text.WriteString("---\n")
			}
			text.Write(codec.EncodeYAML(o))
			all.Write(codec.EncodeWithSecrets(o))
			again, err := codec.Restore(codec.EncodeWithSecrets(o), testKinds())
			if err != nil || !resource.Equal(o, again) {
				t.Errorf("%v changed in a round trip: %v", o.Key, err)
			}
		}
		golden(t, file+".txt", text.String())
	}
	eachField(func(s reflect.Type, f reflect.StructField) {
		if key := f.Tag.Get("yaml"); key != "" && !strings.Contains(all.String(), `"`+key+`":`) {
			t.Errorf("%s: no good file has %s", s.Name(), key)
		}
	})
}

// eachField calls do with the fields of all structs of the kinds.
func eachField(do func(s reflect.Type, f reflect.StructField)) {
	seen := map[reflect.Type]bool{}
	var walk func(t reflect.Type)
	walk = func(t reflect.Type) {
		for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
			t = t.Elem()
		}
		if t.Kind() != reflect.Struct || seen[t] || t.PkgPath() != reflect.TypeFor[VirtualCluster]().PkgPath() ||
			t == reflect.TypeFor[PortRange]() {
			return
		}
		seen[t] = true
		for i := range t.NumField() {
			if f := t.Field(i); f.IsExported() {
				do(t, f)
				walk(f.Type)
			}
		}
	}
	walk(reflect.TypeFor[PhysicalCluster]())
	walk(reflect.TypeFor[VirtualCluster]())
}
