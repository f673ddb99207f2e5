package resource

import "testing"

func TestSizesRoundTripExactly(t *testing.T) {
	for text, want := range map[string]Size{"0": 0, "1": 1, "64KiB": 64 << 10, "100MiB": 100 << 20, "1GiB": 1 << 30, "1024": 1024} {
		got, err := ParseSize(text)
		if err != nil || got != want {
			t.Errorf("%s: %d, %v", text, got, err)
		}
		if again, err := ParseSize(got.String()); err != nil || again != got {
			t.Errorf("%s is written as %s", text, got)
		}
	}
	if s := Size(1536).String() + Size(2048).String(); s != "15362KiB" {
		t.Error(s)
	}
	for _, text := range []string{"", "KiB", "-1", "1.5MiB", "1K", "1MB", "01", "+1", "9999999999GiB", "1 KiB"} {
		if got, err := ParseSize(text); err == nil {
			t.Errorf("%q is taken for %d", text, got)
		}
	}
}
