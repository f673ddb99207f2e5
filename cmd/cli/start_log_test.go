package cli

import (
	"bytes"
	"log"
	"os"
	"strings"
	"testing"
)

// The process's log includes the output of net/http's standard logger, without
// the bytes of endpoints that it quotes.
func TestStandardLoggerIsRedirected(t *testing.T) {
	flags := log.Flags()
	defer func() { log.SetOutput(os.Stderr); log.SetFlags(flags) }()
	for level, want := range map[string]string{
		"info":  "",
		"debug": "level=DEBUG msg=\"something starting with [...]\"\n",
	} {
		var out, errs bytes.Buffer
		// The invalid budget ends the command before anything starts.
		code := Run([]string{"start", "--dev", "--log-level", level, "--memory-budget", "0"},
			Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
		if code == 0 {
			t.Fatal("it has started")
		}
		errs.Reset()
		log.Printf("something starting with %q; err=%v", "SECRET", nil)
		if got := errs.String(); !strings.HasSuffix(got, want) || want == "" && got != "" || strings.Contains(got, "SECRET") {
			t.Errorf("at level %s: %q, want it to end with %q", level, got, want)
		}
	}
}
