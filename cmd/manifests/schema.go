package manifests

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// check returns the faults of a value, each with its path. It knows the keywords of JSON
// Schema (draft 7) that the chart's schema uses; Helm has a complete implementation.
func check(schema map[string]any, value any, path string) (faults []string) {
	fault := func(format string, args ...any) {
		at := path
		if at == "" {
			at = "the values"
		}
		faults = append(faults, at+": "+fmt.Sprintf(format, args...))
	}
	if types := typesOf(schema["type"]); len(types) > 0 && !slices.ContainsFunc(types, func(t string) bool { return hasType(value, t) }) {
		fault("want %s, not %s", strings.Join(types, " or "), shown(value))
		return faults
	}
	if list, ok := schema["enum"].([]any); ok && !slices.Contains(list, value) {
		fault("want one of %v, not %s", list, shown(value))
	}
	switch v := value.(type) {
	case string:
		if pattern, ok := schema["pattern"].(string); ok && !regexp.MustCompile(pattern).MatchString(v) {
			fault("want text that matches %s, not %s", pattern, shown(value))
		}
		if most, ok := schema["maxLength"]; ok && len(v) > number(most) {
			fault("has %d characters, at most %d", len(v), number(most))
		}
	case int:
		if least, ok := schema["minimum"]; ok && v < number(least) {
			fault("want %d or more, not %d", number(least), v)
		}
		if most, ok := schema["maximum"]; ok && v > number(most) {
			fault("want %d or less, not %d", number(most), v)
		}
	case []any:
		if items, ok := schema["items"].(map[string]any); ok {
			for i, item := range v {
				faults = append(faults, check(items, item, fmt.Sprintf("%s[%d]", path, i))...)
			}
		}
	case map[string]any:
		faults = append(faults, checkFields(schema, v, path)...)
	}
	return faults
}

// checkFields returns the faults of the fields of a map.
func checkFields(schema, value map[string]any, path string) (faults []string) {
	properties, _ := schema["properties"].(map[string]any)
	required, _ := schema["required"].([]any)
	for _, name := range required {
		if _, ok := value[name.(string)]; !ok {
			faults = append(faults, strings.TrimPrefix(path+"."+name.(string), ".")+": is missing")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(value)) {
		at := strings.TrimPrefix(path+"."+name, ".")
		if names, ok := schema["propertyNames"].(map[string]any); ok {
			faults = append(faults, check(names, name, at)...)
		}
		field, known := properties[name].(map[string]any)
		if !known {
			switch other := schema["additionalProperties"].(type) {
			case bool:
				if !other {
					faults = append(faults, at+": is unknown")
				}
				continue
			case map[string]any:
				field = other
			}
		}
		faults = append(faults, check(field, value[name], at)...)
	}
	return faults
}

func typesOf(v any) (types []string) {
	switch t := v.(type) {
	case string:
		return []string{t}
	case []any:
		for _, one := range t {
			types = append(types, fmt.Sprint(one))
		}
	}
	return types
}

func hasType(value any, name string) bool {
	switch value.(type) {
	case string:
		return name == "string"
	case bool:
		return name == "boolean"
	case int:
		return name == "integer" || name == "number"
	case float64:
		return name == "number"
	case []any:
		return name == "array"
	case map[string]any:
		return name == "object"
	}
	return name == "null"
}

// shown returns a value for an error, which may be a secret: only short ones.
func shown(v any) string {
	text := fmt.Sprintf("%q", fmt.Sprint(v))
	if len(text) > 40 {
		return "what is there"
	}
	return text
}
