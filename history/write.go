package history

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"unicode/utf8"
)

// appendEvent appends e as a line of JSON, as encoding/json would write it: the
// shape that decoding is fast for. A value that is not JSON is an error, and
// the line is then written without it.
func appendEvent(dst []byte, e *Event) ([]byte, error) {
	var err error
	dst = strconv.AppendInt(append(dst, `{"index":`...), e.Index, 10)
	dst = strconv.AppendInt(append(dst, `,"time":`...), e.Time, 10)
	dst = appendText(append(dst, `,"process":`...), e.Process)
	dst = appendText(append(dst, `,"type":`...), string(e.Type))
	dst = appendText(append(dst, `,"f":`...), e.F)
	if e.Key != "" {
		dst = appendText(append(dst, `,"key":`...), e.Key)
	}
	if len(e.Value) > 0 {
		dst, err = appendValue(dst, e)
	}
	if e.Token != nil {
		dst = strconv.AppendInt(append(dst, `,"token":`...), *e.Token, 10)
	}
	if e.TTL != 0 {
		dst = strconv.AppendInt(append(dst, `,"ttl":`...), e.TTL, 10)
	}
	if e.Until != 0 {
		dst = strconv.AppendInt(append(dst, `,"until":`...), e.Until, 10)
	}
	if e.Client != "" {
		dst = appendText(append(dst, `,"client":`...), e.Client)
	}
	if e.Op != nil {
		dst = strconv.AppendInt(append(dst, `,"op":`...), *e.Op, 10)
	}
	if e.Error != "" {
		dst = appendText(append(dst, `,"error":`...), e.Error)
	}
	return append(dst, '}', '\n'), err
}

func appendValue(dst []byte, e *Event) ([]byte, error) {
	const field = `,"value":`
	if compactJSON(e.Value, 0, 0) == len(e.Value) {
		return append(append(dst, field...), e.Value...), nil
	}
	var b bytes.Buffer
	if err := json.Compact(&b, e.Value); err != nil {
		return dst, fmt.Errorf("event %d: its value is not JSON and was left out: %w", e.Index, err)
	}
	return append(append(dst, field...), b.Bytes()...), nil
}

// appendText appends s as a JSON string. What is not UTF-8 becomes U+FFFD.
func appendText(dst []byte, s string) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	from := 0 // of what is not yet appended
	for i := 0; i < len(s); {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' && c < utf8.RuneSelf {
			i++
			continue
		}
		size := 1
		var as string
		switch {
		case c == '"':
			as = `\"`
		case c == '\\':
			as = `\\`
		case c == '\b':
			as = `\b`
		case c == '\f':
			as = `\f`
		case c == '\n':
			as = `\n`
		case c == '\r':
			as = `\r`
		case c == '\t':
			as = `\t`
		case c < ' ':
			as = `\u00` + string(hex[c>>4]) + string(hex[c&0xf])
		default:
			var r rune
			r, size = utf8.DecodeRuneInString(s[i:])
			switch {
			case r == utf8.RuneError && size == 1:
				as = `\ufffd`
			case r == '\u2028':
				as = `\u2028`
			case r == '\u2029':
				as = `\u2029`
			default:
				i += size
				continue
			}
		}
		dst = append(append(dst, s[from:i]...), as...)
		i += size
		from = i
	}
	return append(append(dst, s[from:]...), '"')
}

// Select copies the events of the history r that keep wants to w, as a history
// of its own in our format, whatever the format of r. It reports how many
// events it wrote.
//
// Indexes are counted anew, and what refers to one (Event.Op) follows; a
// reference to an event that was not kept is dropped. Times stay, so that an
// event can be found again in r.
func Select(r io.Reader, w io.Writer, o ReadOptions, keep func(Event) bool) (int64, error) {
	s, err := NewScanner(r, o)
	if err != nil {
		return 0, err
	}
	var n int64
	moved := map[int64]int64{} // old to new index of invocations
	var buf []byte
	for s.Scan() {
		e := s.Event()
		if !keep(e) {
			continue
		}
		if e.Type == Invoke {
			moved[e.Index] = n
		}
		e.Index = n
		if e.Op != nil {
			op, kept := moved[*e.Op]
			e.Op = nil
			if kept {
				e.Op = &op
			}
		}
		n++
		if buf, err = appendEvent(buf, &e); err != nil {
			return n, err
		}
		if len(buf) >= 1<<16 {
			if _, err := w.Write(buf); err != nil {
				return n, fmt.Errorf("write history: %w", err)
			}
			buf = buf[:0]
		}
	}
	if err := s.Err(); err != nil {
		return n, err
	}
	if len(buf) > 0 {
		if _, err := w.Write(buf); err != nil {
			return n, fmt.Errorf("write history: %w", err)
		}
	}
	return n, nil
}
