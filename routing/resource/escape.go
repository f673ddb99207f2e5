package resource

import (
	"bytes"
	"errors"
	"strconv"
	"strings"
)

var errEscape = errors.New(`has an invalid escape; valid are \r, \n, \t, \\, \", \', \0, \xHH and \uHHHH`)

// Unescape returns the bytes that a text with Go escapes stands for.
func Unescape(s string) ([]byte, error) {
	var out bytes.Buffer
	for s != "" {
		if rest, ok := strings.CutPrefix(s, `\0`); ok && (rest == "" || rest[0] < '0' || rest[0] > '7') {
			out.WriteByte(0)
			s = rest
			continue
		}
		if s[0] == '"' || s[0] == '\'' || s[0] == '\n' {
			out.WriteByte(s[0])
			s = s[1:]
			continue
		}
		quote := byte('"')
		if strings.HasPrefix(s, `\'`) {
			quote = '\''
		}
		r, multi, rest, err := strconv.UnquoteChar(s, quote)
		if err != nil {
			return nil, errEscape
		}
		if multi {
			out.WriteRune(r)
		} else {
			out.WriteByte(byte(r))
		}
		s = rest
	}
	return out.Bytes(), nil
}
