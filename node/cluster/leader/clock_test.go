package leader

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestClockOffsetIsLogged: a node logs when its clock and the leader's differ
// by a minute or more, when the difference changes by as much, and when they
// agree again.
func TestClockOffsetIsLogged(t *testing.T) {
	t.Parallel()
	const apart, agree = "WARN clocks are apart", "INFO clocks agree again"
	var out bytes.Buffer
	c := &Clock{Log: slog.New(slog.NewTextHandler(&out, nil))}
	for _, step := range []struct {
		ahead time.Duration // of the leader's clock
		want  []string
	}{
		{30 * time.Second, nil},
		{2 * time.Hour, []string{apart + " 2h0m0s"}},
		{2 * time.Hour, nil},
		{3 * time.Hour, []string{apart + " 3h0m0s"}},
		{10 * time.Second, []string{agree + " 10s"}},
		{-55 * time.Second, nil},
		{10 * time.Second, nil},
		{-time.Hour, []string{apart + " -1h0m0s"}},
		{time.Hour, []string{apart + " 1h0m0s"}},
		{0, []string{agree + " 0s"}},
		{0, nil},
	} {
		out.Reset()
		now := time.Now()
		// A quarter of a second, so that rounding to seconds bears a slow machine.
		c.Note(now.Add(step.ahead+250*time.Millisecond).UnixMilli(), now)
		var got []string
		for line := range strings.Lines(out.String()) {
			_, offset, _ := strings.Cut(strings.TrimSpace(line), "leader_is_ahead_by=")
			switch {
			case strings.Contains(line, "level=WARN") && strings.Contains(line, "are apart"):
				got = append(got, apart+" "+offset)
			case strings.Contains(line, "level=INFO") && strings.Contains(line, "agree again"):
				got = append(got, agree+" "+offset)
			default:
				got = append(got, line)
			}
		}
		if !slices.Equal(got, step.want) {
			t.Errorf("the leader is ahead by %v: logged %q, want %q", step.ahead, got, step.want)
		}
	}
}
