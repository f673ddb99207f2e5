package otlp

import (
	"context"
	"errors"
	"net/url"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	collogs "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	colmetrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	coltrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"
)

// maxText bounds what is shown of a collector's answer, in bytes.
const maxText = 256

// answer is what a collector said about a batch that it took in part.
type answer struct {
	rejected int64
	message  string
}

// refused describes a partial success.
func (a *answer) refused(rejected, of int) *sendError {
	return &sendError{text: "the collector refused " + strconv.Itoa(rejected) + " of " + strconv.Itoa(of), said: a.message}
}

type answerKey struct{}

// withAnswer returns a context whose requests write to a. It passes through the exporters
// of the OpenTelemetry SDK, which keep answers to themselves.
func withAnswer(ctx context.Context, a *answer) context.Context {
	return context.WithValue(ctx, answerKey{}, a)
}

// take moves what an answer says about rejected items to the context of its request. The
// SDK would tell it to a handler of the whole process.
func take(ctx context.Context, response proto.Message) {
	var rejected int64
	var message string
	switch m := response.(type) {
	case *coltrace.ExportTraceServiceResponse:
		rejected, message, m.PartialSuccess = m.GetPartialSuccess().GetRejectedSpans(), m.GetPartialSuccess().GetErrorMessage(), nil
	case *collogs.ExportLogsServiceResponse:
		rejected, message, m.PartialSuccess = m.GetPartialSuccess().GetRejectedLogRecords(), m.GetPartialSuccess().GetErrorMessage(), nil
	case *colmetrics.ExportMetricsServiceResponse:
		rejected, message, m.PartialSuccess = m.GetPartialSuccess().GetRejectedDataPoints(), m.GetPartialSuccess().GetErrorMessage(), nil
	}
	if a, ok := ctx.Value(answerKey{}).(*answer); ok {
		a.rejected, a.message = rejected, message
	}
}

// shown returns the text of a peer as one line of printable characters, in quotes.
func shown(s string) string { return strconv.Quote(bounded(strings.TrimSpace(s))) }

// bounded cuts a text to maxText bytes, and replaces what is not printable.
func bounded(s string) string {
	if len(s) > maxText {
		s = s[:maxText]
		for len(s) > 0 && !utf8.ValidString(s[max(0, len(s)-utf8.UTFMax):]) {
			s = s[:len(s)-1]
		}
		s += "..."
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
}

// reason returns the error behind what packages wrap around it.
func reason(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}
