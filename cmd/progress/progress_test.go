package progress

import (
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"penstock/internal/testkit"
)

func TestMain(m *testing.M) { testkit.VerifyTestMain(m) }

// What is done within a second shows nothing; what takes longer has a line that is gone
// in the end.
func TestABarAppearsAfterASecondAndIsRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out testkit.Log
		b := start(&out, func() int { return 80 }, "saving", Handled)
		<-time.After(patience - time.Millisecond)
		b.Stop()
		b.Stop()
		if out.String() != "" {
			t.Errorf("a quick command shows %q", out.String())
		}
		b = start(&out, func() int { return 80 }, "saving", Handled)
		b.Set(5, 10, "5 B of 10 B")
		<-time.After(patience + interval + time.Millisecond)
		synctest.Wait()
		b.Stop()
		want := "\rsaving  [==========          ]  5 B of 10 B  1s\x1b[K"
		if got := out.String(); got != want+want+"\r\x1b[K" {
			t.Errorf("shown: %q", got)
		}
	})
}

func TestLinesFitTheTerminal(t *testing.T) {
	for _, c := range []struct {
		done, total int64
		width       int
		want        string
	}{
		{0, 0, 79, "draining n1  text  12s"},
		{0, 7, 79, "draining n1  [                    ]  text  12s"},
		{9, 7, 79, "draining n1  [====================]  text  12s"}, // more than expected
		{-1, 7, 20, "draining n1  [      "},
		{1, 7, -1, ""},
	} {
		if got := line("draining n1", "text", c.done, c.total, 12*time.Second, c.width); got != c.want {
			t.Errorf("%d of %d in %d columns: %q, want %q", c.done, c.total, c.width, got, c.want)
		}
	}
}

// A file, a pipe or a dumb terminal gets no bar, and the nil Bar does nothing.
func TestNothingIsShownWithoutATerminal(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, b := range []*Bar{Start(f, "x", Ends), Start(new(strings.Builder), "x", Ends)} {
		if b != nil {
			t.Errorf("%+v", b)
		}
		b.Set(1, 2, "y")
		b.Stop()
	}
}
