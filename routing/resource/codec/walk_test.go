package codec

import (
	"net/netip"
	"reflect"
	"testing"

	"penstock/routing/resource"
	"penstock/routing/resource/validate"
)

// free is a spec with types of fields that only other packages' kinds have.
type free struct {
	Config map[string]any               `yaml:"config"`
	Parts  map[string]*part             `yaml:"parts"`
	Rate   float64                      `yaml:"rate" `
	Count  uint16                       `yaml:"count"`
	Flags  []bool                       `yaml:"flags"`
	Addr   netip.Addr                   `yaml:"addr"`
	Addrs  []netip.AddrPort             `yaml:"addrs"`
	Times  map[string]resource.Duration `yaml:"times"`
}

type part struct {
	Size int `yaml:"size" default:"4" range:"1..9"`
}

func (f *free) Validate(fault func(path, message string, value any)) { validate.Fields(f, fault) }
func (f *free) Refs() []resource.Ref                                 { return nil }

func freeKinds() []resource.Kind {
	return []resource.Kind{{Name: "Free", Plural: "frees", New: func() resource.Spec { return new(free) }}}
}

func TestKindsOfOtherPackagesMayUseMoreTypes(t *testing.T) {
	objects, faults := Decode("x.yaml", []byte(`
kind: Free
name: a
spec:
  config: {text: a, yes: true, whole: 3, broken: 1.5, even: 2.0, large: 1e20, list: [1, {a: []}], empty: {}}
  parts: {one: {size: 3}, two: {}}
  rate: 3
  count: 65535
  flags: [true, false]
  addr: 10.0.0.1
  addrs: ["[::1]:80"]
  times: {a: 1s}
`), freeKinds())
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	want := &free{
		Config: map[string]any{"text": "a", "yes": true, "whole": int64(3), "broken": 1.5, "even": 2.0, "large": 1e20,
			"list": []any{int64(1), map[string]any{"a": []any{}}}, "empty": map[string]any{}},
		Parts: map[string]*part{"one": {3}, "two": {}},
		Rate:  3, Count: 65535, Flags: []bool{true, false},
		Addr: netip.MustParseAddr("10.0.0.1"), Addrs: []netip.AddrPort{netip.MustParseAddrPort("[::1]:80")},
		Times: map[string]resource.Duration{"a": 1e9},
	}
	if !reflect.DeepEqual(objects[0].Spec, want) {
		t.Errorf("%+v", objects[0].Spec)
	}
	back, err := Restore(EncodeWithSecrets(objects[0]), freeKinds())
	if err != nil || !reflect.DeepEqual(back.Spec, want) {
		t.Errorf("%v, %+v", err, back.Spec)
	}
	again, faults := Decode("x.yaml", EncodeYAML(objects[0]), freeKinds())
	if len(faults) > 0 || !reflect.DeepEqual(again[0].Spec, want) {
		t.Errorf("%v, %+v", faults, again)
	}
}

func TestFaultsInFreeFormContentHavePaths(t *testing.T) {
	_, faults := Decode("x.yaml", []byte(`
kind: Free
name: a
spec:
  config: {a: {b: [1, ~]}, c: 0x10, d: .inf, c: 1, "e.f": {g: 99999999999999999999999}}
  parts: {one: {size: 30}, two: {sise: 1}, three: x}
  rate: fast
  count: 65536
  flags: [1]
  addr: here
`), freeKinds())
	wantFaults(t, faults,
		"x.yaml:5: Free/a spec.config.a.b[1]: has no value",
		"spec.config.c: must be a decimal number of 64 bits, or a quoted string (0x10)",
		"spec.config.d: must be a decimal number, or a quoted string (.inf)",
		"spec.config.c: duplicate key",
		`spec.parts.two.sise: unknown field, did you mean size?`,
		"spec.parts.three: must be a mapping, not a string",
		"spec.parts.one.size: must be from 1 to 9 (30)",
		"spec.rate: must be a number (fast)",
		"spec.count: must be a whole number, 0 or more in plain decimal, within its bounds (65536)",
		"spec.flags[0]: must be true or false (1)",
		"spec.addr: ",
	)
}

func TestHasSecrets(t *testing.T) {
	for _, k := range append(resource.RoutingKinds(), freeKinds()...) {
		if got, want := k.HasSecrets(), k.Name == "Certificate" || k.Name == resource.KindProvider || k.Name == resource.KindTelemetry; got != want {
			t.Errorf("%s: %v", k.Name, got)
		}
	}
}
