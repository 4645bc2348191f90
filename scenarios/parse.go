package scenarios

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
	"go.yaml.in/yaml/v3"
)

// maxSize bounds a file, so that a wrong path does not fill the memory.
const maxSize = 1 << 20

// Parse reads a scenario from the text of the file named file, which only
// serves for messages. The error, if any, is of type Errors and holds all that
// is wrong with the file.
func Parse(file string, text []byte) (*Scenario, error) {
	p := &parser{file: file}
	s := &Scenario{File: file, Source: text}
	if root := p.document(text); root != nil {
		fields := scenarioFields(s)
		s.lines = p.object(root, "a scenario", fields)
		p.story(root, s.lines, fields)
	}
	if len(p.errs) > 0 {
		// What the steps mean cannot be judged while some were not understood.
		v := &validator{scenario: s}
		v.header()
		return nil, p.with(v.errs)
	}
	if err := s.Validate(); err != nil {
		return nil, err
	}
	return s, nil
}

// story reports the fields that are missing of a scenario that has neither steps
// nor a workload.
func (p *parser) story(root *yaml.Node, given map[string]int, fields []field) {
	if _, ok := given["workload"]; ok || given == nil {
		return
	}
	for _, f := range fields {
		if _, ok := given[f.name]; !ok && (f.name == "clients" || f.name == "steps") {
			p.errorf(root, "a scenario needs the field %s (%s)", quote(f.name), f.doc)
		}
	}
}

// ParseSuite reads a suite, as Parse reads a scenario.
func ParseSuite(file string, text []byte) (*Suite, error) {
	p := &parser{file: file}
	s := &Suite{File: file}
	if root := p.document(text); root != nil {
		p.object(root, "a suite", suiteFields(s))
	}
	if len(p.errs) > 0 {
		return nil, p.with(nil)
	}
	if err := s.Validate(); err != nil {
		return nil, err
	}
	return s, nil
}

// isSuite reports whether the text is a suite's: a mapping with the field
// "scenarios". Text that is no YAML is not.
func isSuite(file string, text []byte) bool {
	root := (&parser{file: file}).document(text)
	if root == nil || root.Kind != yaml.MappingNode {
		return false
	}
	for i := 0; i+1 < len(root.Content); i += 2 {
		if root.Content[i].Value == "scenarios" {
			return true
		}
	}
	return false
}

// parser walks the nodes of a file and collects what is wrong with it. Its
// depth is that of the fields below, so aliases cannot make it run away.
type parser struct {
	file string
	errs Errors
}

func (p *parser) errorf(n *yaml.Node, format string, args ...any) {
	p.errs = append(p.errs, Error{File: p.file, Line: n.Line, Msg: fmt.Sprintf(format, args...)})
}

// with returns all errors, sorted, with those of more whose lines have none yet.
func (p *parser) with(more Errors) Errors {
	all := p.errs
	for _, e := range more {
		if e.Line > 0 && !slices.ContainsFunc(p.errs, func(o Error) bool { return o.Line == e.Line }) {
			all = append(all, e)
		}
	}
	sort.SliceStable(all, func(i, j int) bool { return all[i].Line < all[j].Line })
	return all
}

var yamlLine = regexp.MustCompile(`^yaml: (?:unmarshal errors:\s+)?(?:line (\d+): )?`)

// document returns the root of the only document in text, or nil after an error.
func (p *parser) document(text []byte) *yaml.Node {
	fail := func(line int, msg string) *yaml.Node {
		p.errs = append(p.errs, Error{File: p.file, Line: line, Msg: msg})
		return nil
	}
	if len(text) > maxSize {
		return fail(0, fmt.Sprintf("file is larger than %d bytes: is it a scenario?", maxSize))
	}
	dec := yaml.NewDecoder(bytes.NewReader(text))
	var doc, more yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return fail(0, "file is empty: a scenario needs at least name, clients and steps")
	} else if err != nil {
		return fail(syntaxError(err))
	}
	if err := dec.Decode(&more); err == nil {
		return fail(more.Line, "second document: a file holds one scenario")
	} else if !errors.Is(err, io.EOF) {
		return fail(syntaxError(err))
	}
	if len(doc.Content) != 1 {
		return fail(0, "file is empty: a scenario needs at least name, clients and steps")
	}
	return resolve(doc.Content[0])
}

// syntaxError takes apart an error of the yaml package.
func syntaxError(err error) (line int, msg string) {
	msg = err.Error()
	m := yamlLine.FindStringSubmatch(msg)
	if m == nil {
		return 0, "not YAML: " + msg
	}
	if m[1] != "" {
		line, _ = strconv.Atoi(m[1])
	}
	return line, "not YAML: " + msg[len(m[0]):]
}

// resolve follows aliases. The yaml package refuses an alias of an alias.
func resolve(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode && n.Alias != nil {
		return n.Alias
	}
	return n
}

// field is one field of an object in a file. The parser and the JSON Schema
// are made from the same fields, so that they cannot differ.
type field struct {
	name     string
	doc      string
	required bool
	value
}

// value is a shape that a field can have.
type value struct {
	schema func() *jsonschema.Schema
	set    func(p *parser, n *yaml.Node, what string)
}

// object reads a mapping into its fields. It returns the line of each.
func (p *parser) object(n *yaml.Node, what string, fields []field) (seen map[string]int) {
	n = resolve(n)
	if n.Kind != yaml.MappingNode {
		p.errorf(n, "%s must be a mapping of fields, not %s", what, describe(n))
		return nil
	}
	seen = map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, val := resolve(n.Content[i]), n.Content[i+1]
		name := key.Value
		if line, dup := seen[name]; dup {
			p.errorf(key, "field %s is given twice, first at line %d", quote(name), line)
			continue
		}
		seen[name] = key.Line
		at := slices.IndexFunc(fields, func(f field) bool { return f.name == name })
		if at < 0 {
			names := make([]string, len(fields))
			for i, f := range fields {
				names[i] = f.name
			}
			p.errorf(key, "unknown field %s of %s%s", quote(name), what, suggest(name, names))
			continue
		}
		if v := resolve(val); v.Kind == yaml.ScalarNode && v.Tag == "!!null" {
			p.errorf(key, "field %s has no value: give one or leave the field out", quote(name))
			continue
		}
		fields[at].set(p, val, quote(name))
	}
	for _, f := range fields {
		if _, ok := seen[f.name]; f.required && !ok {
			p.errorf(n, "%s needs the field %s (%s)", what, quote(f.name), f.doc)
		}
	}
	return seen
}

// scalar returns the text of a scalar. Numbers and booleans are text as well.
func (p *parser) scalar(n *yaml.Node, what string) (string, bool) {
	n = resolve(n)
	if n.Kind != yaml.ScalarNode {
		p.errorf(n, "%s must be text, not %s", what, describe(n))
		return "", false
	}
	return n.Value, true
}

// text is a value that is kept as it is written.
func text(dst *string) value {
	return value{
		schema: func() *jsonschema.Schema { return &jsonschema.Schema{Type: "string"} },
		set: func(p *parser, n *yaml.Node, what string) {
			if s, ok := p.scalar(n, what); ok {
				*dst = strings.TrimRight(s, "\n")
			}
		},
	}
}

// scalarText is text that may be written as a number or a boolean too.
func scalarText(dst *string) value {
	v := text(dst)
	v.schema = func() *jsonschema.Schema {
		return &jsonschema.Schema{Types: []string{"string", "number", "boolean"}}
	}
	return v
}

// word is text that must be one of words.
func word(dst *string, words []string) value {
	return value{
		schema: func() *jsonschema.Schema { return &jsonschema.Schema{Type: "string", Enum: anys(words)} },
		set: func(p *parser, n *yaml.Node, what string) {
			if s, ok := p.scalar(n, what); ok {
				if !slices.Contains(words, s) {
					p.errorf(n, "%s cannot be %s%s", what, quote(s), suggest(s, words))
				}
				*dst = s
			}
		},
	}
}

// names is a list of names; a single one may stand without the brackets.
func names(dst *[]string, lines *[]int) value {
	return value{
		schema: func() *jsonschema.Schema {
			return &jsonschema.Schema{
				Types: []string{"string", "array"},
				Items: &jsonschema.Schema{Type: "string", MinLength: ptr(1)},
			}
		},
		set: func(p *parser, n *yaml.Node, what string) {
			n = resolve(n)
			items := []*yaml.Node{n}
			if n.Kind == yaml.SequenceNode {
				items = n.Content
			}
			*dst = make([]string, 0, len(items))
			for _, item := range items {
				s, ok := p.scalar(item, "each of "+what)
				switch {
				case !ok:
				case s == "":
					p.errorf(item, "%s has an empty name in it", what)
				case slices.Contains(*dst, s):
					p.errorf(item, "%s names %s twice", what, quote(s))
				default:
					*dst = append(*dst, s)
					if lines != nil {
						*lines = append(*lines, item.Line)
					}
				}
			}
		},
	}
}

// boolean is true or false.
func boolean(dst *bool) value {
	return value{
		schema: func() *jsonschema.Schema { return &jsonschema.Schema{Type: "boolean"} },
		set: func(p *parser, n *yaml.Node, what string) {
			n = resolve(n)
			if n.Kind != yaml.ScalarNode || n.Decode(dst) != nil {
				p.errorf(n, "%s must be true or false, not %s", what, describe(n))
			}
		},
	}
}

// duration is a Duration.
func duration(dst *Duration) value {
	return value{
		schema: func() *jsonschema.Schema {
			return &jsonschema.Schema{
				Type:     "string",
				Pattern:  `^([0-9.]+ *ttl|0|([0-9.]+(ns|us|µs|ms|s|m|h))+)$`,
				Examples: []any{"200ms", "1.2 ttl"},
			}
		},
		set: func(p *parser, n *yaml.Node, what string) {
			if s, ok := p.scalar(n, what); ok {
				d, err := ParseDuration(s)
				if err != nil {
					p.errorf(n, "%s: %v", what, err)
				}
				*dst = d
			}
		},
	}
}

// table maps names, of which known are allowed (nil: any), to words (nil: any
// text).
func table(dst *map[string]string, known, words []string) value {
	return value{
		schema: func() *jsonschema.Schema {
			entry := &jsonschema.Schema{Types: []string{"string", "number", "boolean"}}
			if words != nil {
				entry = &jsonschema.Schema{Type: "string", Enum: anys(words)}
			}
			s := &jsonschema.Schema{Type: "object", AdditionalProperties: entry}
			if known != nil {
				s.PropertyNames = &jsonschema.Schema{Enum: anys(known)}
			}
			return s
		},
		set: func(p *parser, n *yaml.Node, what string) {
			n = resolve(n)
			if n.Kind != yaml.MappingNode {
				p.errorf(n, "%s must be a mapping of names to values, not %s", what, describe(n))
				return
			}
			*dst = make(map[string]string, len(n.Content)/2)
			for i := 0; i+1 < len(n.Content); i += 2 {
				key := resolve(n.Content[i])
				v, ok := p.scalar(n.Content[i+1], what+" of "+quote(key.Value))
				if !ok {
					continue
				}
				if _, dup := (*dst)[key.Value]; dup {
					p.errorf(key, "%s names %s twice", what, quote(key.Value))
				}
				if known != nil && !slices.Contains(known, key.Value) {
					p.errorf(key, "%s: unknown name %s%s", what, quote(key.Value), suggest(key.Value, known))
				}
				if words != nil && !slices.Contains(words, v) {
					p.errorf(n.Content[i+1], "%s of %s cannot be %s%s", what, quote(key.Value), quote(v), suggest(v, words))
				}
				(*dst)[key.Value] = v
			}
		},
	}
}

// number is a whole number that is not negative.
func number(dst *int) value {
	return value{
		schema: func() *jsonschema.Schema { return &jsonschema.Schema{Type: "integer", Minimum: new(float64)} },
		set: func(p *parser, n *yaml.Node, what string) {
			n = resolve(n)
			if n.Kind != yaml.ScalarNode || n.Tag != "!!int" || n.Decode(dst) != nil || *dst < 0 {
				*dst = 0
				p.errorf(n, "%s must be a whole number that is not negative, not %s", what, describe(n))
			}
		},
	}
}

// mapping is a mapping that is read into the fields of a new T.
func mapping[T any](dst **T, what string, fields func(*T) []field, line func(*T, int)) value {
	return value{
		schema: func() *jsonschema.Schema { return objectSchema(fields(new(T))) },
		set: func(p *parser, n *yaml.Node, name string) {
			*dst = new(T)
			line(*dst, resolve(n).Line)
			p.object(n, what, fields(*dst))
		},
	}
}

// objects is a list of mappings, each read into the fields of a new T.
func objects[T any](dst *[]T, what string, fields func(*T) []field, line func(*T, int)) value {
	return value{
		schema: func() *jsonschema.Schema {
			return &jsonschema.Schema{Type: "array", Items: objectSchema(fields(new(T)))}
		},
		set: func(p *parser, n *yaml.Node, name string) {
			n = resolve(n)
			if n.Kind != yaml.SequenceNode {
				p.errorf(n, "%s must be a list, not %s", name, describe(n))
				return
			}
			*dst = make([]T, len(n.Content))
			for i, item := range n.Content {
				line(&(*dst)[i], item.Line)
				p.object(item, what, fields(&(*dst)[i]))
			}
		},
	}
}

func describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	if n.Tag == "!!null" {
		return "nothing"
	}
	return quote(n.Value)
}

// quote shows text from a file, escaped and cut to a readable length.
func quote(s string) string {
	const most = 40
	if r := []rune(s); len(r) > most {
		s = string(r[:most]) + "…"
	}
	return strconv.Quote(s)
}
