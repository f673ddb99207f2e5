package trace

import (
	"fmt"
	"strings"
	"testing"
)

const (
	anID   = "4bf92f3577b34da6a3ce929d0e0e4736"
	aSpan  = "00f067aa0ba902b7"
	parent = "00-" + anID + "-" + aSpan + "-01"
)

// The cases are those of W3C's recommendation and of its test suite.
func TestParseParent(t *testing.T) {
	for _, c := range []struct {
		text string
		want string // what goes on; "": invalid
	}{
		{parent, parent},
		{"00-" + anID + "-" + aSpan + "-00", "00-" + anID + "-" + aSpan + "-00"},
		{"00-" + anID + "-" + aSpan + "-03", "00-" + anID + "-" + aSpan + "-03"},
		{"00-" + anID + "-" + aSpan + "-ff", "00-" + anID + "-" + aSpan + "-03"}, // reserved bits
		{"cc-" + anID + "-" + aSpan + "-01", parent},                             // later versions
		{"cc-" + anID + "-" + aSpan + "-01-what-comes", parent},
		{"cc-" + anID + "-" + aSpan + "-01.what", ""},
		{"cc-" + anID + "-" + aSpan + "-01what", ""},
		{"ff-" + anID + "-" + aSpan + "-01", ""},
		{parent + "-more", ""},
		{parent + "-", ""},
		{parent + " ", ""},
		{" " + parent, ""},
		{parent[:54], ""},
		{"", ""},
		{"0-" + anID + "-" + aSpan + "-01", ""},
		{strings.ToUpper(parent), ""},
		{"00-" + strings.Repeat("0", 32) + "-" + aSpan + "-01", ""},
		{"00-" + anID + "-" + strings.Repeat("0", 16) + "-01", ""},
		{"00-" + anID + "." + aSpan + "-01", ""},
		{"00." + anID + "-" + aSpan + "-01", ""},
		{"00-" + anID + "-" + aSpan + ".01", ""},
		{"00-" + strings.Replace(anID, "4", "g", 1) + "-" + aSpan + "-01", ""},
		{"00-" + anID + "-" + aSpan + "-0x", ""},
		{"0\xff-" + anID + "-" + aSpan + "-01", ""},
	} {
		got, ok := Parse([]string{c.text}, nil)
		if ok != (c.want != "") {
			t.Errorf("%q: valid is %v", c.text, ok)
		} else if ok && string(got.AppendParent(nil)) != c.want {
			t.Errorf("%q goes on as %q, want %q", c.text, got.AppendParent(nil), c.want)
		}
	}
	for _, parents := range [][]string{nil, {}, {parent, parent}} {
		if _, ok := Parse(parents, []string{"a=1"}); ok {
			t.Errorf("%d headers are valid", len(parents))
		}
	}
}

func TestParseState(t *testing.T) {
	long := func(n int) string { return strings.Repeat("x", n) }
	var most []string
	for i := range MaxStateMembers {
		most = append(most, fmt.Sprintf("k%d=v", i))
	}
	for _, c := range []struct {
		values []string
		want   string
		ok     bool
	}{
		{[]string{"foo=1"}, "foo=1", true},
		{[]string{"foo=1,bar=2"}, "foo=1,bar=2", true},
		{[]string{"foo=1", "bar=2"}, "foo=1,bar=2", true},
		{[]string{"foo=1 , \tbar=2, "}, "foo=1 , \tbar=2, ", true},
		{[]string{""}, "", true},
		{[]string{",, ,"}, "", true},
		{[]string{"tenant@system= a b"}, "tenant@system= a b", true},
		{[]string{"0a_-*/@=1"}, "0a_-*/@=1", true},
		{[]string{long(256) + "=" + long(256)}, long(256) + "=" + long(256), true},
		{[]string{strings.Join(most, ",")}, strings.Join(most, ","), true},
		{[]string{strings.Join(append(most, "one=2"), ",")}, "", false},
		{[]string{long(257) + "=1"}, "", false},
		{[]string{"a=" + long(257)}, "", false},
		{[]string{"foo=1,foo=1"}, "", false},
		{[]string{"foo=1", "foo=2"}, "", false},
		{[]string{"foo"}, "", false},
		{[]string{"foo="}, "", false},
		{[]string{"=1"}, "", false},
		{[]string{"foo=1=2"}, "", false},
		{[]string{"foo =1"}, "", false},
		{[]string{"Foo=1"}, "", false},
		{[]string{"@foo=1"}, "", false},
		{[]string{"foo=1;bar"}, "foo=1;bar", true},
		{[]string{"foo=\x00"}, "", false},
		{[]string{"foo=é"}, "", false},
		{[]string{strings.Repeat(",", 100_000)}, "", false},
		{[]string{strings.Repeat(" ", 100_000) + "a=1"}, "", false},
	} {
		got, ok := ParseState(c.values)
		if ok != c.ok || got != c.want {
			t.Errorf("%.80q: %.80q, %v; want %.80q, %v", c.values, got, ok, c.want, c.ok)
		}
	}
}

// Over the bound long members go first, then the last ones.
func TestLongStateIsShortened(t *testing.T) {
	member := func(i, n int) string { return fmt.Sprintf("k%d=%s", i, strings.Repeat("x", n)) }
	var list, want []string
	for i := range 20 {
		if i == 3 {
			list = append(list, member(i, 250))
			continue
		}
		list = append(list, member(i, 120))
		if n := len(strings.Join(append(want, list[i]), ",")); n <= MaxState {
			want = append(want, list[i])
		}
	}
	got, ok := ParseState([]string{strings.Join(list, ",")})
	if !ok || got != strings.Join(want, ",") {
		t.Errorf("%q, %v; want %q", got, ok, strings.Join(want, ","))
	}
	c, ok := Parse([]string{parent}, []string{"foo"})
	if !ok || c.State != "" {
		t.Errorf("with an invalid tracestate: %+v, %v", c, ok)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(parent, "foo=1", "bar=2")
	f.Add("cc-"+anID+"-"+aSpan+"-01-x", "tenant@system=1,,b=2", "")
	f.Fuzz(func(t *testing.T, head, one, two string) {
		c, ok := Parse([]string{head}, []string{one, two})
		if !ok {
			if c != (Context{}) {
				t.Fatalf("invalid, and yet %+v", c)
			}
			return
		}
		again, ok := Parse([]string{string(c.AppendParent(nil))}, []string{c.State})
		if !ok || again != c {
			t.Fatalf("%+v is read again as %+v, %v", c, again, ok)
		}
		if len(c.State) > MaxState || strings.Count(c.State, "=") > MaxStateMembers {
			t.Fatalf("a tracestate of %d bytes", len(c.State))
		}
	})
}
