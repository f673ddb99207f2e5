package resource

import (
	"errors"
	"math"
	"strconv"
	"strings"
)

// Size is a number of bytes that is written as "64KiB", "100MiB", "1GiB" or
// as a plain number.
type Size int64

// sizeUnits are the units of sizes, the largest first.
var sizeUnits = []struct {
	name  string
	bytes int64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}}

// String returns the shortest exact form.
func (s Size) String() string {
	for _, u := range sizeUnits {
		if s != 0 && int64(s)%u.bytes == 0 {
			return strconv.FormatInt(int64(s)/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(int64(s), 10)
}

var errSize = errors.New("must be a size in bytes, like 64KiB, 100MiB, 1GiB or 65536")

// ParseSize parses "64KiB", "100MiB", "1GiB" or "65536". Other units are
// refused, because K means 1000 in some programs and 1024 in others.
func ParseSize(s string) (Size, error) {
	digits, unit := s, int64(1)
	for _, u := range sizeUnits {
		if rest, ok := strings.CutSuffix(s, u.name); ok {
			digits, unit = rest, u.bytes
		}
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/unit || !WholeNumber(digits) {
		return 0, errSize
	}
	return Size(n * unit), nil
}

// MarshalText returns the form of String.
func (s Size) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText parses text with ParseSize.
func (s *Size) UnmarshalText(text []byte) (err error) {
	*s, err = ParseSize(string(text))
	return err
}

// WholeNumber reports whether s is a plain decimal and not another notation of
// YAML: some programs read 010 as eight, others as ten.
func WholeNumber(s string) bool {
	s = strings.TrimPrefix(s, "-")
	return strings.Trim(s, "0123456789") == "" && (s == "0" || !strings.HasPrefix(s, "0"))
}
