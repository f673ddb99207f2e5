package cli

import (
	"bytes"
	"strings"
	"testing"
)

// The demo counts for itself whether each of its connections was answered, an
// endpoint's death and two changes of the split included.
func TestDemoAnswersEveryConnection(t *testing.T) {
	var out, errs bytes.Buffer
	code := Run([]string{"demo", "--for", "5s", "--no-screen"}, Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
	if code != 0 {
		t.Fatalf("exit code %d: %s\n%s", code, errs.String(), out.String())
	}
	for _, want := range []string{"endpoint flaky-b dies", "is ejected", "canary moves", "25 long-lived connections", " 0 broken"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the demo did not say %q:\n%s", want, out.String())
		}
	}
}
