package resource

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"penstock/routing/resource/manual"
)

// eachStruct calls do with the struct types that are reachable from a type.
func eachStruct(t reflect.Type, seen map[reflect.Type]bool, do func(reflect.Type)) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		t = t.Elem()
	}
	if !holdsStruct(t) || seen[t] {
		return
	}
	seen[t] = true
	do(t)
	for i := range t.NumField() {
		eachStruct(t.Field(i).Type, seen, do)
	}
}

func eachSpecStruct(do func(reflect.Type)) {
	seen := map[reflect.Type]bool{}
	for _, k := range RoutingKinds() {
		eachStruct(reflect.TypeOf(k.New()), seen, do)
	}
}

func TestCommentsMatchDefaultsAndBounds(t *testing.T) {
	var fields []manual.Field
	eachSpecStruct(func(s reflect.Type) {
		for i := range s.NumField() {
			if f := s.Field(i); f.IsExported() {
				fields = append(fields, manual.Field{Struct: s, StructField: f})
			}
		}
	})
	manual.Check(t, fields)
}

func TestFieldTagsAreValid(t *testing.T) {
	eachSpecStruct(func(s reflect.Type) {
		for i := range s.NumField() {
			f, name := s.Field(i), s.Name()+"."+s.Field(i).Name
			if !f.IsExported() { // cannot be written
				continue
			}
			if key := f.Tag.Get("yaml"); !regexp.MustCompile(`^[a-z][a-zA-Z0-9]*$`).MatchString(key) {
				t.Errorf("%s has the key %q", name, key)
			}
			inner := f.Type
			if inner.Kind() == reflect.Pointer {
				inner = inner.Elem()
			}
			lo, hi, bounded := strings.Cut(f.Tag.Get("range"), "..")
			def := f.Tag.Get("default")
			read := func(text string) int64 {
				if inner == reflect.TypeFor[Duration]() {
					d, err := ParseDuration(text)
					if err != nil {
						t.Errorf("%s: %v", name, err)
					}
					return int64(d)
				}
				if strings.Trim(text, "0123456789") != "" {
					t.Errorf("%s: %s is no number", name, text)
				}
				return number(text)
			}
			if bounded && read(lo) >= read(hi) {
				t.Errorf("%s: bad range", name)
			}
			if bounded && def != "" && (read(def) < read(lo) || read(def) > read(hi)) {
				t.Errorf("%s: the default is out of range", name)
			}
			if words := f.Tag.Get("oneof"); def != "" && words != "" && !strings.Contains(" "+words+" ", " "+def+" ") {
				t.Errorf("%s: the default is none of the words", name)
			}
		}
	})
}

// Every key of the model is used in one of the good files.
func TestGoodFilesUseEveryKey(t *testing.T) {
	var text strings.Builder
	for _, file := range append(glob(t, "testdata/good/*.yaml"), glob(t, "testdata/http/good/*.yaml")...) {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		objects, _ := Decode("", data, RoutingKinds())
		for _, o := range objects {
			text.Write(EncodeWithSecrets(o))
		}
	}
	eachSpecStruct(func(s reflect.Type) {
		for _, key := range SchemaOf(s).Names {
			if !strings.Contains(text.String(), `"`+key+`":`) {
				t.Errorf("%s: no good file has %s", s.Name(), key)
			}
		}
	})
}

func TestDefaultsAreFilledInOnACopy(t *testing.T) {
	o := decode(t, `
kind: Service
name: a
spec:
  healthCheck: {interval: 3s}
  connect: {retryBudget: 0}
  tls: {}
  endpoints:
  - {address: "a:1", weight: 0}
  - {address: "b:1"}
`)[0]
	before := string(EncodeWithSecrets(o))
	s := o.Spec.(*Service).WithDefaults()
	if after := string(EncodeWithSecrets(o)); after != before {
		t.Errorf("the original changed: %s", after)
	}
	checks := map[string]bool{
		"protocol": s.Protocol == "tcp" && s.AllUnhealthy == "fail",
		"balancing": s.Balancing.Policy == "roundRobin" && s.Balancing.HashOn == "source" &&
			*s.Balancing.ZoneMinHealthy == 70 && s.Balancing.SlowStart == 0,
		"connect": s.Connect.Timeout.D() == time.Second && s.Connect.Attempts == 3 && *s.Connect.RetryBudget == 0,
		"health check": s.HealthCheck.Type == "tcp" && s.HealthCheck.Interval.D() == 3*time.Second &&
			s.HealthCheck.Timeout.D() == time.Second && s.HealthCheck.Rise == 2 && s.HealthCheck.Fall == 2,
		"own statuses": (&HealthCheck{Status: []int{204}}).StatusOK(204) && !(&HealthCheck{Status: []int{204}}).StatusOK(200),
		"statuses": s.HealthCheck.StatusOK(200) && s.HealthCheck.StatusOK(399) &&
			!s.HealthCheck.StatusOK(400) && !s.HealthCheck.StatusOK(199),
		"left out": s.Ejection == nil && s.ProxyProtocol == nil,
		"timeouts": s.IdleTimeout.D() == time.Hour && s.HalfClosedTimeout.D() == 5*time.Minute &&
			*s.MaxAge == 0 && s.Resolve.D() == 10*time.Second,
		"tls":     s.TLS.MinVersion == "1.2",
		"weights": *s.Endpoints[0].Weight == 0 && *s.Endpoints[1].Weight == 1,
	}
	for what, ok := range checks {
		if !ok {
			t.Errorf("%s: %+v", what, s)
		}
	}
	l := (&Listener{Protocol: "tls"}).WithDefaults()
	if l.TLS == nil || l.TLS.Mode != "passthrough" || l.NoServerName != "close" ||
		l.Timeouts.ProxyHeader.D() != 5*time.Second || l.Timeouts.Handshake.D() != 10*time.Second {
		t.Errorf("%+v", l)
	}
	if l := (&Listener{}).WithDefaults(); l.Protocol != "tcp" || l.TLS != nil {
		t.Errorf("%+v", l)
	}
	r := (&MeshTCPRoute{To: []RouteTo{{TargetRef: TargetRef{Kind: "MeshService", Name: "a"}, Rules: []RouteRule{{}}}}}).WithDefaults()
	refs := r.To[0].Rules[0].Default.BackendRefs
	if r.TargetRef.Kind != "Mesh" || len(refs) != 1 || refs[0].Kind != "MeshService" || refs[0].Name != "a" || *refs[0].Weight != 1 {
		t.Errorf("%+v", r)
	}
}

func TestEscapes(t *testing.T) {
	for in, want := range map[string]string{
		``: "", `PING\r\n`: "PING\r\n", `\x00\xff`: "\x00\xff", `\0`: "\x00", `\0a`: "\x00a", `"'`: `"'`, `\"\'`: `"'`,
		"a\nb": "a\nb", `é`: "é", `\u00e9`: "é", `\\n`: `\n`, `\101`: "A",
	} {
		if got, err := Unescape(in); err != nil || string(got) != want {
			t.Errorf("Unescape(%q) = %q, %v", in, got, err)
		}
	}
	for _, in := range []string{`\`, `\z`, `\x1`, `\u12`, `a\`} {
		if got, err := Unescape(in); err == nil {
			t.Errorf("Unescape(%q) = %q", in, got)
		}
	}
}

// The default of halfClosedTimeout is not longer than a given idleTimeout.
func TestHalfClosedTimeoutFollowsIdleTimeout(t *testing.T) {
	d := func(d time.Duration) *Duration { return new(Duration(d)) }
	for _, c := range []struct {
		idle, half *Duration
		want       time.Duration
	}{
		{nil, nil, 5 * time.Minute},
		{d(2 * time.Second), nil, 2 * time.Second},
		{d(time.Hour), nil, 5 * time.Minute},
		{d(0), nil, 5 * time.Minute},
		{d(2 * time.Second), d(time.Minute), time.Minute},
		{d(2 * time.Second), d(0), 0},
	} {
		s := Service{IdleTimeout: c.idle, HalfClosedTimeout: c.half}
		if got := s.WithDefaults().HalfClosedTimeout.D(); got != c.want {
			t.Errorf("idleTimeout %v, halfClosedTimeout %v: %v, want %v", c.idle, c.half, got, c.want)
		}
	}
}
