package resource

import (
	"errors"
	"strings"
	"time"
)

// Duration is a time.Duration that is written as "1h30m", "500ms" or "0".
type Duration time.Duration

// D returns the time.Duration.
func (d Duration) D() time.Duration { return time.Duration(d) }

// String returns the shortest form: "1h", not "1h0m0s".
func (d Duration) String() string {
	s := time.Duration(d).String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}

var errDuration = errors.New(`must be a duration with a unit, like 500ms, 5s, 1h30m or 0`)

// ParseDuration parses "1h30m", "500ms" or "0". A number without a unit is
// refused, because some programs mean seconds and some milliseconds by it.
func ParseDuration(s string) (Duration, error) {
	d, err := time.ParseDuration(s)
	switch {
	case err != nil && isNumber(s):
		return 0, errors.New("has no unit: write " + s + "s or " + s + "ms")
	case err != nil:
		return 0, errDuration
	case d < 0:
		return 0, errors.New("must not be negative")
	}
	return Duration(d), nil
}

// MarshalText returns the form of String.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText parses text with ParseDuration.
func (d *Duration) UnmarshalText(text []byte) (err error) {
	*d, err = ParseDuration(string(text))
	return err
}

// isNumber reports whether s has only digits and at most one point.
func isNumber(s string) bool {
	digits := strings.Replace(s, ".", "", 1)
	return digits != "" && strings.Trim(digits, "0123456789") == ""
}
