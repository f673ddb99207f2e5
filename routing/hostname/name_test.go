package hostname

import (
	"errors"
	"strings"
	"testing"
)

var (
	label63 = strings.Repeat("a", 63)
	name253 = label63 + "." + label63 + "." + label63 + "." + strings.Repeat("a", 61)
)

// Rule 3 of integration/rules_test.go: names are lower-case A-labels once
// configuration is read.
func TestPatternsAreNormalised(t *testing.T) {
	for in, want := range map[string]string{
		"api.example.com":         "api.example.com",
		"API.Example.COM":         "api.example.com",
		"*.Apps.example.com":      "*.apps.example.com",
		"bücher.example":          "xn--bcher-kva.example",
		"*.BÜCHER.example":        "*.xn--bcher-kva.example",
		"faß.example":             "xn--fa-hia.example",
		"例え。テスト":                  "xn--r8jz45g.xn--zckzah",
		"XN--BCHER-KVA.example":   "xn--bcher-kva.example",
		"localhost":               "localhost",
		"my_service.internal":     "my_service.internal",
		"r3---sn.example":         "r3---sn.example",
		"1.2.3.4.example":         "1.2.3.4.example",
		"0x7f.example":            "0x7f.example",
		"a.0xyz":                  "a.0xyz",
		name253:                   name253,
		"*." + name253[2:]:        "*." + name253[2:],
		"broker-1.t1.kafka.com":   "broker-1.t1.kafka.com",
		"xn--80ak6aa92e.xn--p1ai": "xn--80ak6aa92e.xn--p1ai",
		"ＡＰＩ.example":             "api.example",
	} {
		got, err := ParsePattern(in)
		if err != nil || got != want {
			t.Errorf("ParsePattern(%q) = %q, %v; want %q", in, got, err, want)
		}
		again, err := ParsePattern(got)
		if err != nil || again != got {
			t.Errorf("ParsePattern(%q) = %q, %v; want itself", got, again, err)
		}
	}
}

// Rule 3 of integration/rules_test.go: names that configuration must not
// contain, and the error for each.
func TestPatternsAreRefused(t *testing.T) {
	for in, want := range map[string]error{
		"":                           ErrEmpty,
		"*.":                         ErrEmpty,
		"example.com.":               ErrTrailingDot,
		"*.example.com.":             ErrTrailingDot,
		"例え。テスト。":                    ErrTrailingDot,
		".":                          ErrTrailingDot,
		".example.com":               ErrEmptyLabel,
		"*..example.com":             ErrEmptyLabel,
		"a..b":                       ErrEmptyLabel,
		label63 + "a.example":        ErrLabelLength,
		name253 + "a":                ErrLength,
		"*." + name253[1:]:           ErrLength,
		"a b.example":                ErrCharacter,
		"a/b.example":                ErrCharacter,
		"a%2eb.example":              ErrCharacter,
		"a\x00.example":              ErrCharacter,
		"-a.example":                 ErrHyphen,
		"a-.example":                 ErrHyphen,
		"a.example-":                 ErrHyphen,
		"127.0.0.1":                  ErrAddress,
		"127.1":                      ErrAddress,
		"2130706433":                 ErrAddress,
		"0x7f000001":                 ErrAddress,
		"0x7f.1":                     ErrAddress,
		"127.0.0.0x1":                ErrAddress,
		"a.0X":                       ErrAddress,
		"１２７.1":                      ErrAddress,
		"*.0.0.1":                    ErrAddress,
		"::1":                        ErrAddress,
		"[::1]":                      ErrAddress,
		"example.com:443":            ErrAddress,
		"*":                          ErrWildcard,
		"a*.example.com":             ErrWildcard,
		"*a.example.com":             ErrWildcard,
		"a.*.example.com":            ErrWildcard,
		"*.*.example.com":            ErrWildcard,
		"xn--a.example":              ErrIDN,
		"xn--zzzzzzzzzz99999.exampl": ErrIDN,
		"\u0300a.example":            ErrIDN,
		"\xff.example":               ErrIDN,
	} {
		if got, err := ParsePattern(in); !errors.Is(err, want) {
			t.Errorf("ParsePattern(%q) = %q, %v; want %v", in, got, err, want)
		}
	}
	if got, err := ParseName("*.example.com"); !errors.Is(err, ErrWildcard) {
		t.Errorf("ParseName of a wildcard = %q, %v; want %v", got, err, ErrWildcard)
	}
}

// Rule 2 of integration/rules_test.go: a client's server name is either
// unambiguous or refused.
func TestServerNamesFromClientsAreCheckedNotRepaired(t *testing.T) {
	for in, want := range map[string]string{
		"api.example.com":       "api.example.com",
		"Api.EXAMPLE.com":       "api.example.com",
		"xn--bcher-kva.example": "xn--bcher-kva.example",
		"my_service.internal":   "my_service.internal",
		name253:                 name253,
	} {
		if got, ok := CheckSNI(in); !ok || got != want {
			t.Errorf("CheckSNI(%q) = %q, %v; want %q", in, got, ok, want)
		}
	}
	for _, in := range []string{
		"", ".", "example.com.", "a..b", ".a", "*.example.com", "bücher.example", "a\x00b", "a b",
		"127.0.0.1", "127.1", "0x7f.1", "::1", "[::1]", "fe80::1%eth0", "a:443", "-a.b", "a-.b",
		label63 + "a.b", name253 + "a", "a\nb", "a.example。com",
	} {
		if got, ok := CheckSNI(in); ok {
			t.Errorf("CheckSNI(%q) = %q; want it refused", in, got)
		}
	}
}

func TestCheckingALowerCaseNameAllocatesNothing(t *testing.T) {
	if n := testing.AllocsPerRun(100, func() { CheckSNI("broker-1.my-tenant1.kafka.example.com") }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// An accepted name does not change when it is parsed or checked again.
func FuzzServerName(f *testing.F) {
	for _, s := range []string{"api.example.com", "*.a.b", "BÜCHER.example", "127.1", "a.0x", "xn--a", "a..b", "-"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if name, ok := CheckSNI(s); ok {
			if !strings.EqualFold(name, s) || name != strings.ToLower(name) {
				t.Fatalf("CheckSNI(%q) = %q", s, name)
			}
			if again, ok := CheckSNI(name); !ok || again != name {
				t.Fatalf("CheckSNI(%q) = %q, %v the second time", name, again, ok)
			}
		}
		pattern, err := ParsePattern(s)
		if err != nil {
			return
		}
		again, err := ParsePattern(pattern)
		if err != nil || again != pattern {
			t.Fatalf("ParsePattern(%q) = %q, then %q, %v", s, pattern, again, err)
		}
		name, _ := strings.CutPrefix(pattern, "*.")
		if got, ok := CheckSNI(name); !ok || got != name {
			t.Fatalf("pattern %q of %q is not a name that a client could request", pattern, s)
		}
	})
}

func BenchmarkCheckSNI(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		CheckSNI("broker-1.my-tenant1.kafka.example.com")
	}
}
