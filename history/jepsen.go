package history

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
)

// ednDecoder decodes events written as EDN maps, one after the other or within
// one vector: Jepsen's history.edn, and porcupine's key-value histories. Keys
// and names may be keywords, symbols or texts. Maps under a tag, like Jepsen's
// own records, are taken for what they hold.
type ednDecoder struct {
	edn   ednReader
	open  byte // bracket of the vector or list that is open around the maps
	cut   bool
	buf   []byte
	spans [fieldCount]span
}

// span is where in buf the JSON text of a field is.
type span struct {
	from, to int
	kind     form
	stated   bool
}

type field uint8

const (
	fieldIndex field = iota
	fieldTime
	fieldToken
	fieldOp
	fieldTTL
	fieldUntil
	fieldProcess
	fieldType
	fieldF
	fieldKey
	fieldClient
	fieldError
	fieldValue
	fieldCount
)

var fieldNames = [fieldCount]string{
	"index", "time", "token", "op", "ttl", "until",
	"process", "type", "f", "key", "client", "error", "value",
}

func (d *ednDecoder) truncated() bool { return d.cut }
func (d *ednDecoder) offset() int64   { return d.edn.offset() }

func (d *ednDecoder) next(r *record) error {
	err := d.event(r)
	switch {
	case err == nil || err == io.EOF:
		return err
	case err == errCut:
		d.cut = true
		return io.EOF
	case err == errLongForm:
		return &SyntaxError{Line: d.edn.line, Msg: fmt.Sprintf("an event is longer than %d bytes", d.edn.max)}
	case err == errCloseForm:
		return &SyntaxError{Line: d.edn.line, Msg: "unexpected closing bracket"}
	}
	if d.edn.err != nil && err == d.edn.err { // of the reader, not of the text
		return err
	}
	return &SyntaxError{Line: d.edn.line, Msg: err.Error()}
}

func (d *ednDecoder) event(r *record) error {
	for {
		c, err := d.edn.blank()
		switch {
		case err == io.EOF && d.open != 0:
			return errCut
		case err != nil:
			return err
		case d.open == 0 && (c == '[' || c == '('):
			d.open = c
			d.edn.skip()
			continue
		case d.open != 0 && c == closing(d.open):
			d.open = 0
			d.edn.skip()
			continue
		}
		d.edn.left = d.edn.max
		if c == '#' {
			if found, err := d.tag(); err != nil {
				return err
			} else if !found {
				continue
			}
		} else if c != '{' {
			return fmt.Errorf("not an event: unexpected %q, want a map in braces", c)
		}
		d.edn.skip()
		line := d.edn.line
		if err := d.fields(); err != nil {
			return err
		}
		if err := d.fill(r); err != nil {
			return err
		}
		r.line = line
		return nil
	}
}

// tag passes over a tag and stops before the brace of its map. A discarded
// form is passed over whole, and found is false.
func (d *ednDecoder) tag() (found bool, err error) {
	d.edn.skip()
	c, err := d.edn.need()
	if err != nil {
		return false, err
	}
	if c == '_' {
		d.edn.skip()
		d.buf, _, err = d.edn.form(d.buf[:0], 0)
		return false, err
	}
	if d.buf, err = d.edn.token(d.buf[:0]); err != nil {
		return false, err
	}
	if c, err = d.edn.blank(); err == io.EOF {
		return false, errCut
	} else if err != nil {
		return false, err
	}
	if c != '{' || len(d.buf) == 0 {
		return false, fmt.Errorf("not an event: unexpected %q after a tag, want a map in braces", c)
	}
	return true, nil
}

// fields reads a map after its brace and keeps what belongs to an event.
func (d *ednDecoder) fields() error {
	d.spans = [fieldCount]span{}
	d.buf = d.buf[:0]
	for {
		done, err := d.edn.closed('{')
		if err != nil || done {
			return err
		}
		start := len(d.buf)
		var kind form
		d.buf, kind, err = d.edn.form(d.buf, 1)
		if err == errCloseForm { // after a discarded form
			d.buf = d.buf[:start]
			continue
		}
		if err != nil {
			return err
		}
		f := fieldCount
		if kind == formName {
			f = field(slices.Index(fieldNames[:], string(plainText(d.buf[start:]))))
		}
		if d.buf, kind, err = d.edn.form(d.buf[:start], 1); err != nil {
			return noValue(err)
		}
		if f >= fieldCount {
			d.buf = d.buf[:start]
			continue
		}
		if d.spans[f].stated {
			return fmt.Errorf("%q is stated twice", fieldNames[f])
		}
		d.spans[f] = span{start, len(d.buf), kind, kind != formNil || f == fieldValue}
	}
}

// fill makes a record of the fields.
func (d *ednDecoder) fill(r *record) (err error) {
	*r = record{}
	whole := func(f field) (n int64, stated bool) {
		s := d.spans[f]
		if !s.stated || err != nil {
			return 0, false
		}
		b := d.buf[s.from:s.to]
		n, bad := strconv.ParseInt(string(b), 10, 64)
		if s.kind != formInt || bad != nil {
			err = fmt.Errorf("%q is %s, want a whole number", fieldNames[f], quoted(b))
		}
		return n, true
	}
	r.index, r.hasIndex = whole(fieldIndex)
	r.time, r.hasTime = whole(fieldTime)
	r.token, r.hasToken = whole(fieldToken)
	r.op, r.hasOp = whole(fieldOp)
	r.ttl, _ = whole(fieldTTL)
	r.until, _ = whole(fieldUntil)
	if err != nil {
		return err
	}
	text := func(f field) []byte {
		if s := d.spans[f]; s.stated {
			return plainText(d.buf[s.from:s.to])
		}
		return nil
	}
	r.process, r.typ, r.f = text(fieldProcess), text(fieldType), text(fieldF)
	r.key, r.client, r.error = text(fieldKey), text(fieldClient), text(fieldError)
	if s := d.spans[fieldValue]; s.stated {
		r.value = d.buf[s.from:s.to]
	}
	return imported(r)
}

// quoted is a text that prints as its beginning, in quotes.
type quoted string

func (q quoted) String() string {
	const most = 40
	if len(q) > most {
		return fmt.Sprintf("%q...", string(q[:most]))
	}
	return fmt.Sprintf("%q", string(q))
}

// imported checks what every event needs, and gives what Jepsen writes in the
// place of a value, when a request timed out, its own place.
func imported(r *record) error {
	if len(r.process) == 0 {
		return errors.New("not an event: no :process")
	}
	if len(r.typ) == 0 {
		return errors.New("not an event: no :type")
	}
	if t := string(r.typ); (t == string(Info) || t == string(Fail)) && string(r.value) == `"timed-out"` {
		r.value = nil
		if r.error == nil {
			r.error = []byte("timed-out")
		}
	}
	return nil
}

// logDecoder decodes the lines that Jepsen logs while it runs:
//
//	INFO  jepsen.util - 0	:invoke	:read	nil
//
// with process, type, operation, value and perhaps an error, apart by tabs or
// blanks. Other lines of the log are passed over. A log states no times.
type logDecoder struct {
	lines *lines
	edn   ednReader
	buf   []byte
	cut   bool
}

const logMark = "jepsen.util"

func (d *logDecoder) truncated() bool { return d.cut }
func (d *logDecoder) offset() int64   { return d.lines.offset() }

func (d *logDecoder) next(r *record) error {
	for {
		line, err := d.lines.next()
		if err != nil {
			return lineError(d.lines, err)
		}
		process, rest, ok := logEvent(line)
		if !ok {
			continue
		}
		if err := d.parse(process, rest, r); err != nil {
			if d.lines.cut {
				d.cut = true
				return io.EOF
			}
			return &SyntaxError{Line: d.lines.n, Msg: err.Error()}
		}
		r.line = d.lines.n
		r.unterminated = d.lines.cut
		return nil
	}
}

// logEvent finds the process in a line that logs an event, and what follows
// it. It reports false for other lines of a log.
func logEvent(line []byte) (process, rest []byte, ok bool) {
	i := bytes.Index(line, []byte(logMark))
	if i >= 0 {
		// A keyword loses its colon here as it does elsewhere.
		line = bytes.TrimLeft(line[i+len(logMark):], " \t:-")
	}
	process, rest = word(line)
	typ, _ := word(rest)
	if len(process) == 0 || len(typ) == 0 || typ[0] != ':' {
		return nil, nil, false
	}
	if allDigits(process) {
		return process, rest, true
	}
	switch Type(typ[1:]) {
	case Invoke, OK, Fail, Info:
		return process, rest, i >= 0
	}
	return nil, nil, false
}

func allDigits(b []byte) bool {
	return !bytes.ContainsFunc(b, func(r rune) bool { return r < '0' || r > '9' })
}

// word cuts the first word off a line.
func word(line []byte) (w, rest []byte) {
	line = bytes.TrimLeft(line, " \t")
	if i := bytes.IndexAny(line, " \t"); i >= 0 {
		return line[:i], line[i:]
	}
	return line, nil
}

func (d *logDecoder) parse(process, rest []byte, r *record) error {
	*r = record{process: process}
	var typ, f []byte
	typ, rest = word(rest)
	f, rest = word(rest)
	if len(f) == 0 {
		return errors.New("not an event: no operation after its type")
	}
	r.typ, r.f = bytes.TrimPrefix(typ, []byte(":")), bytes.TrimPrefix(f, []byte(":"))
	d.edn = ednReader{buf: rest, line: 1, left: len(rest) + 1}
	value, _, err := d.edn.form(d.buf[:0], 0)
	d.buf = value
	switch {
	case err == errCut && len(bytes.TrimSpace(rest)) == 0: // no value
	case err != nil && string(process) == Nemesis:
		r.value = appendText(nil, string(bytes.TrimSpace(rest)))
	case err != nil:
		return fmt.Errorf("value %s: %w", quoted(bytes.TrimSpace(rest)), err)
	default:
		r.value = value
		r.error = plainText(bytes.TrimSpace(d.edn.buf[d.edn.pos:]))
		r.error = bytes.TrimPrefix(r.error, []byte(":"))
	}
	return imported(r)
}
