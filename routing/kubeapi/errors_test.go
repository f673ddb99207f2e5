package kubeapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestErrorTextsAreShortAndPrintable(t *testing.T) {
	c := &Client{secrets: strings.NewReplacer("s3cret", removed)}
	newer := "newer"
	c.credentials.Store(&newer)
	text := c.Clean(errors.New("a\x00\n\xff s3cret newer " + strings.Repeat("é", 300)))
	if len(text) > 310 || !strings.HasPrefix(text, "a  ? (removed) (removed) é") || !json.Valid(fmt.Appendf(nil, "%q", text)) {
		t.Errorf("%q", text)
	}
}
