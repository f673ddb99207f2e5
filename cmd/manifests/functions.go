package manifests

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"math/big"
	"reflect"
	"strconv"
	"strings"
	"text/template"

	yaml "go.yaml.in/yaml/v3"
)

// failure is the error of the function fail.
type failure struct{ text string }

func (f *failure) Error() string { return f.text }

// functions has those of Helm's functions that the chart uses.
func functions(all *template.Template) template.FuncMap {
	return template.FuncMap{
		"include": func(name string, data any) (string, error) {
			var out bytes.Buffer
			err := all.ExecuteTemplate(&out, name, data)
			return out.String(), err
		},
		"toYaml": func(v any) (string, error) {
			var out bytes.Buffer
			e := yaml.NewEncoder(&out)
			e.SetIndent(2)
			err := e.Encode(v)
			return strings.TrimSuffix(out.String(), "\n"), err
		},
		"nindent": func(n int, text string) string {
			pad := "\n" + strings.Repeat(" ", n)
			return pad + strings.ReplaceAll(text, "\n", pad)
		},
		"fail":  func(text string) (string, error) { return "", &failure{text} },
		"quote": func(v any) string { return strconv.Quote(fmt.Sprint(v)) },
		"default": func(other, v any) any {
			if v == nil || reflect.ValueOf(v).IsZero() {
				return other
			}
			return v
		},
		// There is no API server to ask.
		"lookup":       func(_, _, _, _ string) map[string]any { return nil },
		"b64enc":       func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) },
		"randAlphaNum": randomLetters,
		"int":          number,
		"until": func(n int) (list []int) {
			for i := range n {
				list = append(list, i)
			}
			return list
		},
		"add": func(values ...any) (sum int) {
			for _, v := range values {
				sum += number(v)
			}
			return sum
		},
		"sub": func(a, b any) int { return number(a) - number(b) },
		"div": func(a, b any) int { return number(a) / number(b) },
	}
}

// number returns an integer of any kind that YAML and templates give; 0: it is none.
func number(v any) int {
	switch n := v.(type) {
	case int:
		return n
	case float64:
		return int(n)
	}
	return 0
}

// randomLetters returns n random letters and digits.
func randomLetters(n int) (string, error) {
	const letters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	text := make([]byte, n)
	for i := range text {
		at, err := rand.Int(rand.Reader, big.NewInt(int64(len(letters))))
		if err != nil {
			return "", err
		}
		text[i] = letters[at.Int64()]
	}
	return string(text), nil
}
