package resource

import "strconv"

// Item returns "path[i]".
func Item(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }

// Step appends a mapping's key to a path, shortened and quoted as needed.
func Step(path, key string) string { return string(AppendStep([]byte(path), key)) }

// AppendStep appends ".name", or ["name"] if the name needs quotes.
func AppendStep(path []byte, name string) []byte {
	if looksSecret(name) {
		name = HiddenSecret
	}
	if len(name) > maxShown {
		name = name[:maxShown] + "..."
	}
	if !plainStep(name) {
		return append(strconv.AppendQuote(append(path, '['), name), ']')
	}
	if len(path) > 0 {
		path = append(path, '.')
	}
	return append(path, name...)
}

// plainStep reports whether a name needs no quotes in a path: it has no special
// characters and cannot affect a terminal.
func plainStep(name string) bool {
	for _, r := range name {
		switch r {
		case '.', '[', ']', '"', '\\', ' ':
			return false
		}
		if !strconv.IsPrint(r) {
			return false
		}
	}
	return name != ""
}
