package history

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// jsonlDecoder decodes our own format. Lines in the shape that Recorder writes
// take a short way; whatever else is JSON takes the long one. Both give the
// same record.
type jsonlDecoder struct {
	lines *lines
	cut   bool
	slow  bool // take the long way always, for comparison in tests
}

func (d *jsonlDecoder) truncated() bool { return d.cut }
func (d *jsonlDecoder) offset() int64   { return d.lines.offset() }

func (d *jsonlDecoder) next(r *record) error {
	line, err := d.lines.next()
	if err != nil {
		return lineError(d.lines, err)
	}
	if !d.slow && parseCanonical(line, r) {
		r.line = d.lines.n
		return nil
	}
	err = parseJSON(line, r)
	r.line = d.lines.n
	if err == nil {
		return nil
	}
	if d.lines.cut && errors.Is(err, errIncomplete) {
		d.cut = true
		return io.EOF
	}
	return &SyntaxError{Line: d.lines.n, Msg: err.Error()}
}

// lineError gives an error of lines.next its line.
func lineError(l *lines, err error) error {
	if err == errLongLine {
		return &SyntaxError{Line: l.n, Msg: fmt.Sprintf("line is longer than %d bytes", l.max)}
	}
	return err
}

// parseCanonical decodes a line that Recorder wrote: fields in the order of
// Event, no white space, texts in plain ASCII without escapes. It reports
// false, with r in any state, for every other line.
func parseCanonical(line []byte, r *record) bool {
	*r = record{hasIndex: true, hasTime: true}
	var ok bool
	i := 0
	if i, ok = after(line, i, `{"index":`); !ok {
		return false
	}
	if r.index, i, ok = number(line, i); !ok {
		return false
	}
	if i, ok = after(line, i, `,"time":`); !ok {
		return false
	}
	if r.time, i, ok = number(line, i); !ok {
		return false
	}
	if i, ok = after(line, i, `,"process":"`); !ok {
		return false
	}
	if r.process, i, ok = text(line, i); !ok || len(r.process) == 0 {
		return false
	}
	if i, ok = after(line, i, `,"type":"`); !ok {
		return false
	}
	if r.typ, i, ok = text(line, i); !ok || len(r.typ) == 0 {
		return false
	}
	if i, ok = after(line, i, `,"f":"`); !ok {
		return false
	}
	if r.f, i, ok = text(line, i); !ok {
		return false
	}
	if i+1 == len(line) && line[i] == '}' {
		return true
	}
	if j, found := after(line, i, `,"key":"`); found {
		if r.key, i, ok = text(line, j); !ok {
			return false
		}
	}
	if j, found := after(line, i, `,"value":`); found {
		if i = compactJSON(line, j, 0); i < 0 {
			return false
		}
		r.value = line[j:i]
	}
	if j, found := after(line, i, `,"token":`); found {
		if r.token, i, r.hasToken = number(line, j); !r.hasToken {
			return false
		}
	}
	if j, found := after(line, i, `,"ttl":`); found {
		if r.ttl, i, ok = number(line, j); !ok {
			return false
		}
	}
	if j, found := after(line, i, `,"until":`); found {
		if r.until, i, ok = number(line, j); !ok {
			return false
		}
	}
	if j, found := after(line, i, `,"client":"`); found {
		if r.client, i, ok = text(line, j); !ok {
			return false
		}
	}
	if j, found := after(line, i, `,"op":`); found {
		if r.op, i, r.hasOp = number(line, j); !r.hasOp {
			return false
		}
	}
	if j, found := after(line, i, `,"error":"`); found {
		if r.error, i, ok = text(line, j); !ok {
			return false
		}
	}
	return i+1 == len(line) && line[i] == '}'
}

// after returns the place after word, if word stands at line[i:].
func after(line []byte, i int, word string) (int, bool) {
	if len(line)-i >= len(word) && string(line[i:i+len(word)]) == word {
		return i + len(word), true
	}
	return i, false
}

// number reads a whole number of up to 18 digits at line[i:]. JSON knows no
// leading zeros. Negative numbers are left to the long way.
func number(line []byte, i int) (n int64, end int, ok bool) {
	start := i
	for ; i < len(line); i++ {
		c := line[i] - '0'
		if c > 9 {
			break
		}
		n = 10*n + int64(c)
	}
	digits := i - start
	if digits == 0 || digits > 18 || digits > 1 && line[start] == '0' {
		return 0, i, false
	}
	return n, i, true
}

// text reads a string at line[i:], just after its opening quote, and returns
// the place after the closing one. Escapes and what is not ASCII are left to
// the long way.
func text(line []byte, i int) (s []byte, end int, ok bool) {
	for j := i; j < len(line); j++ {
		switch c := line[j]; {
		case c == '"':
			return line[i:j], j + 1, true
		case c < ' ' || c == '\\' || c >= 0x80:
			return nil, j, false
		}
	}
	return nil, i, false
}

// maxPlainDepth is how deep values may nest on the short way.
const maxPlainDepth = 8

// compactJSON returns the end of the JSON value at line[i:], or -1 if there is
// none or if it is not plain: white space between tokens, escapes, bytes that
// are not ASCII, deep nesting.
func compactJSON(line []byte, i, depth int) int {
	if i >= len(line) || depth > maxPlainDepth {
		return -1
	}
	switch c := line[i]; c {
	case '"':
		if _, end, ok := text(line, i+1); ok {
			return end
		}
		return -1
	case '[', '{':
		if i+1 < len(line) && line[i+1] == c+2 { // ] and } are two after [ and {
			return i + 2
		}
		for {
			i++
			if c == '{' {
				if i >= len(line) || line[i] != '"' {
					return -1
				}
				_, end, ok := text(line, i+1)
				if !ok || end >= len(line) || line[end] != ':' {
					return -1
				}
				i = end + 1
			}
			if i = compactJSON(line, i, depth+1); i < 0 || i >= len(line) {
				return -1
			}
			switch line[i] {
			case c + 2:
				return i + 1
			case ',':
			default:
				return -1
			}
		}
	case 'n':
		return literal(line, i, "null")
	case 't':
		return literal(line, i, "true")
	case 'f':
		return literal(line, i, "false")
	}
	return numberEnd(line, i)
}

func literal(line []byte, i int, word string) int {
	if end, ok := after(line, i, word); ok {
		return end
	}
	return -1
}

// numberEnd returns the end of the JSON number at line[i:], or -1.
func numberEnd(line []byte, i int) int {
	digits := func() bool {
		from := i
		for i < len(line) && line[i]-'0' <= 9 {
			i++
		}
		return i > from
	}
	if i < len(line) && line[i] == '-' {
		i++
	}
	if i < len(line) && line[i] == '0' {
		i++
	} else if !digits() {
		return -1
	}
	if i < len(line) && line[i] == '.' {
		if i++; !digits() {
			return -1
		}
	}
	if i < len(line) && line[i]|0x20 == 'e' {
		if i++; i < len(line) && (line[i] == '+' || line[i] == '-') {
			i++
		}
		if !digits() {
			return -1
		}
	}
	return i
}

// errIncomplete says that a line is the beginning of JSON.
var errIncomplete = errors.New("ends in the middle of a JSON object")

// name is a text that others may write as a number, like Jepsen's processes.
type name string

func (n *name) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && (b[0] == '-' || b[0]-'0' <= 9) {
		if _, err := strconv.ParseInt(string(b), 10, 64); err == nil {
			*n = name(b)
			return nil
		}
	}
	return json.Unmarshal(b, (*string)(n))
}

// wire is Event as it may come: what is not stated can be told from zero.
type wire struct {
	Index   *int64          `json:"index"`
	Time    *int64          `json:"time"`
	Process name            `json:"process"`
	Type    string          `json:"type"`
	F       string          `json:"f"`
	Key     name            `json:"key"`
	Value   json.RawMessage `json:"value"`
	Token   *int64          `json:"token"`
	TTL     int64           `json:"ttl"`
	Until   int64           `json:"until"`
	Client  name            `json:"client"`
	Op      *int64          `json:"op"`
	Error   string          `json:"error"`
}

// parseJSON decodes any JSON object that holds an event. Unknown fields are
// passed over.
func parseJSON(line []byte, r *record) error {
	*r = record{}
	var w wire
	if err := json.Unmarshal(line, &w); err != nil {
		return jsonError(err)
	}
	if w.Process == "" {
		return errors.New(`not an event: no "process"`)
	}
	if w.Type == "" {
		return errors.New(`not an event: no "type"`)
	}
	r.process, r.typ, r.f = []byte(w.Process), []byte(w.Type), []byte(w.F)
	r.key, r.client, r.error = []byte(w.Key), []byte(w.Client), []byte(w.Error)
	r.index, r.hasIndex = optional(w.Index)
	r.time, r.hasTime = optional(w.Time)
	r.token, r.hasToken = optional(w.Token)
	r.op, r.hasOp = optional(w.Op)
	r.ttl, r.until = w.TTL, w.Until
	if w.Value != nil {
		var b bytes.Buffer
		if err := json.Compact(&b, w.Value); err != nil {
			return jsonError(err)
		}
		r.value = b.Bytes()
	}
	return nil
}

func optional(p *int64) (int64, bool) {
	if p == nil {
		return 0, false
	}
	return *p, true
}

// jsonError says in the words of histories what encoding/json found.
func jsonError(err error) error {
	if syn, ok := errors.AsType[*json.SyntaxError](err); ok {
		if syn.Error() == "unexpected end of JSON input" {
			return errIncomplete
		}
		return fmt.Errorf("not JSON: %w, at byte %d", err, syn.Offset)
	}
	if typ, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		want := "a text"
		switch {
		case typ.Field == "":
			return fmt.Errorf("not an event: %s, want a JSON object", typ.Value)
		case typ.Type != nil && typ.Type.Kind().String() == "int64":
			want = "a whole number"
		}
		return fmt.Errorf("%q is a JSON %s, want %s", typ.Field, typ.Value, want)
	}
	return err
}
