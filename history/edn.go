package history

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"unicode/utf8"
)

// ednReader reads EDN forms, the notation of Clojure's data, and turns each
// into JSON text:
//
//	nil true false      null true false
//	1 -2 3N 1.5 2.5M    the number; 1/2, ##Inf and the like become texts
//	"text" \c :key sym  texts; a keyword loses its colon
//	[1 2] (1 2)         arrays
//	#{1 2}              an array, its elements sorted by their text
//	{:a 1}              an object, sorted by key
//	#tag form           the form
//	#_ form, ; comment  nothing
//
// It reads as it goes and keeps no more than one form.
type ednReader struct {
	r    io.Reader // nil: buf is all there is
	buf  []byte
	pos  int
	read int64 // bytes read from r
	err  error // of r
	line int   // of pos, from 1
	max  int   // longest form in bytes
	left int   // bytes that the present form may still have
}

// kind of a form, as far as events care.
type form uint8

const (
	formNil form = iota
	formInt
	formName // keyword, symbol, text or character
	formOther
)

const maxEDNDepth = 256

var (
	errCut       = errors.New("ends in the middle of a form")
	errLongForm  = errors.New("form too long")
	errDeepForm  = fmt.Errorf("nested deeper than %d", maxEDNDepth)
	errCloseForm = errors.New("closing bracket") // the end of a collection, not an error to show
	errNothing   = errors.New("discarded form")  // likewise
	errNoForm    = errors.New("nothing after a tag or the like")
)

// peek returns the next byte. At the end it returns io.EOF.
func (e *ednReader) peek() (byte, error) {
	for idle := 0; e.pos == len(e.buf); idle++ {
		if e.r == nil {
			return 0, io.EOF
		}
		if e.err != nil {
			return 0, e.err
		}
		if idle == 100 {
			e.err = io.ErrNoProgress
			return 0, e.err
		}
		if cap(e.buf) == 0 {
			e.buf = make([]byte, 0, 64<<10)
		}
		var n int
		n, e.err = e.r.Read(e.buf[:cap(e.buf)])
		e.buf, e.pos = e.buf[:n], 0
		e.read += int64(n)
	}
	return e.buf[e.pos], nil
}

// offset is how many bytes have been consumed.
func (e *ednReader) offset() int64 { return e.read - int64(len(e.buf)-e.pos) }

// skip consumes the byte that peek returned.
func (e *ednReader) skip() {
	if e.buf[e.pos] == '\n' {
		e.line++
	}
	e.pos++
	e.left--
}

// need is peek within a form, where the end of input is too early.
func (e *ednReader) need() (byte, error) {
	if e.left <= 0 {
		return 0, errLongForm
	}
	c, err := e.peek()
	if err == io.EOF {
		err = errCut
	}
	return c, err
}

// blank consumes white space, commas and comments and returns the byte after.
func (e *ednReader) blank() (byte, error) {
	comment := false
	for {
		c, err := e.peek()
		if err != nil {
			return 0, err
		}
		switch {
		case c == '\n':
			comment = false
		case comment, c == ' ', c == '\t', c == '\r', c == '\f', c == ',':
		case c == ';':
			comment = true
		default:
			return c, nil
		}
		e.skip()
	}
}

func delimiter(c byte) bool {
	switch c {
	case ' ', '\t', '\r', '\n', '\f', ',', ';', '"', '(', ')', '[', ']', '{', '}':
		return true
	}
	return false
}

// token appends the bytes up to the next delimiter.
func (e *ednReader) token(dst []byte) ([]byte, error) {
	for {
		c, err := e.peek()
		if err == io.EOF || err == nil && delimiter(c) {
			return dst, nil
		}
		if err != nil {
			return dst, err
		}
		if e.left <= 0 {
			return dst, errLongForm
		}
		dst = append(dst, c)
		e.skip()
	}
}

// form reads one form and appends its JSON text to dst. Before a closing
// bracket it returns errCloseForm and leaves the bracket.
func (e *ednReader) form(dst []byte, depth int) ([]byte, form, error) {
	start := len(dst)
	for {
		dst, kind, err := e.formOrNothing(dst[:start], depth)
		if err != errNothing {
			return dst, kind, err
		}
	}
}

// tagged reads the form that a tag, or the like, belongs to.
func (e *ednReader) tagged(dst []byte, depth int) ([]byte, form, error) {
	dst, kind, err := e.form(dst, depth+1)
	if err == errCloseForm {
		err = errNoForm
	}
	return dst, kind, err
}

func (e *ednReader) formOrNothing(dst []byte, depth int) ([]byte, form, error) {
	if depth > maxEDNDepth {
		return dst, 0, errDeepForm
	}
	c, err := e.blank()
	if err == io.EOF {
		err = errCut
	}
	if err == nil && e.left <= 0 {
		err = errLongForm
	}
	if err != nil {
		return dst, 0, err
	}
	switch c {
	case '"':
		dst, err = e.text(dst)
		return dst, formName, err
	case '[', '(':
		e.skip()
		dst, err = e.elements(dst, depth, c, false)
		return dst, formOther, err
	case '{':
		e.skip()
		dst, err = e.pairs(dst, depth)
		return dst, formOther, err
	case ']', ')', '}':
		return dst, 0, errCloseForm
	case '#':
		e.skip()
		return e.dispatch(dst, depth)
	case '^': // metadata: a form about the form that follows
		e.skip()
		return e.second(dst, depth)
	case '\'':
		e.skip()
		return e.tagged(dst, depth)
	case '\\':
		e.skip()
		dst, err = e.character(dst)
		return dst, formName, err
	}
	return e.atom(dst)
}

// second reads two forms and keeps the second.
func (e *ednReader) second(dst []byte, depth int) ([]byte, form, error) {
	start := len(dst)
	dst, _, err := e.tagged(dst, depth)
	if err != nil {
		return dst, 0, err
	}
	return e.tagged(dst[:start], depth)
}

// dispatch reads what follows a #.
func (e *ednReader) dispatch(dst []byte, depth int) ([]byte, form, error) {
	c, err := e.need()
	if err != nil {
		return dst, 0, err
	}
	switch c {
	case '{':
		e.skip()
		dst, err = e.elements(dst, depth, '{', true)
		return dst, formOther, err
	case '_':
		e.skip()
		if dst, _, err = e.tagged(dst, depth); err == nil {
			err = errNothing
		}
		return dst, 0, err
	case '^':
		e.skip()
		return e.second(dst, depth)
	case '"':
		dst, err = e.text(dst)
		return dst, formName, err
	case '\'':
		e.skip()
		return e.tagged(dst, depth)
	case '#':
		start := len(dst)
		if dst, err = e.token(dst); err != nil {
			return dst, 0, err
		}
		sym := string(dst[start:])
		return appendText(dst[:start], "#"+sym), formOther, nil
	}
	if delimiter(c) {
		return dst, 0, fmt.Errorf("unexpected %q after #", c)
	}
	start := len(dst)
	if dst, err = e.token(dst); err != nil {
		return dst, 0, err
	}
	return e.tagged(dst[:start], depth)
}

// elements reads forms up to the bracket that closes open.
func (e *ednReader) elements(dst []byte, depth int, open byte, set bool) ([]byte, error) {
	start := len(dst)
	dst = append(dst, '[')
	var ends []int // of elements, in dst
	for {
		done, err := e.closed(open)
		if err != nil {
			return dst, err
		}
		if done {
			break
		}
		end := len(dst)
		if end > start+1 {
			dst = append(dst, ',')
		}
		dst, _, err = e.form(dst, depth+1)
		if err == errCloseForm { // after a discarded form
			dst = dst[:end]
			continue
		}
		if err != nil {
			return dst, err
		}
		if set {
			ends = append(ends, len(dst))
		}
	}
	if len(ends) > 1 {
		var elems [][]byte
		from := start + 1
		for _, end := range ends {
			elems = append(elems, bytes.Clone(dst[from:end]))
			from = end + 1
		}
		slices.SortFunc(elems, bytes.Compare)
		dst = append(dst[:start+1], bytes.Join(elems, []byte{','})...)
	}
	return append(dst, ']'), nil
}

// closed reports whether the collection that open began ends here, and
// consumes its end.
func (e *ednReader) closed(open byte) (bool, error) {
	c, err := e.blank()
	if err == io.EOF {
		return false, errCut
	}
	if err != nil {
		return false, err
	}
	if e.left <= 0 {
		return false, errLongForm
	}
	switch c {
	case ']', ')', '}':
		if want := closing(open); c != want {
			return false, fmt.Errorf("unexpected %q, want %q", c, want)
		}
		e.skip()
		return true, nil
	}
	return false, nil
}

func closing(open byte) byte {
	if open == '(' {
		return ')'
	}
	return open + 2 // ] and } are two after [ and {
}

// pairs reads a map after its opening brace.
func (e *ednReader) pairs(dst []byte, depth int) ([]byte, error) {
	type pair struct{ key, value []byte }
	var pairs []pair
	start := len(dst)
	for {
		done, err := e.closed('{')
		if err != nil {
			return dst, err
		}
		if done {
			break
		}
		var p pair
		var kind form
		dst, kind, err = e.form(dst[:start], depth+1)
		if err == errCloseForm {
			continue
		}
		if err != nil {
			return dst, err
		}
		if kind == formName {
			p.key = bytes.Clone(dst[start:])
		} else {
			p.key = appendText(nil, string(dst[start:]))
		}
		if dst, _, err = e.form(dst[:start], depth+1); err != nil {
			return dst, noValue(err)
		}
		p.value = bytes.Clone(dst[start:])
		pairs = append(pairs, p)
	}
	slices.SortStableFunc(pairs, func(a, b pair) int { return bytes.Compare(a.key, b.key) })
	dst = append(dst[:start], '{')
	for i, p := range pairs {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(append(append(dst, p.key...), ':'), p.value...)
	}
	return append(dst, '}'), nil
}

func noValue(err error) error {
	if err == errCloseForm {
		return errors.New("a map ends after a key, without its value")
	}
	return err
}

// text reads a string from its opening quote on.
func (e *ednReader) text(dst []byte) ([]byte, error) {
	e.skip()
	var s []byte
	for {
		c, err := e.need()
		if err != nil {
			return dst, err
		}
		e.skip()
		switch c {
		case '"':
			return appendText(dst, string(s)), nil
		case '\\':
			if s, err = e.escape(s); err != nil {
				return dst, err
			}
		default:
			s = append(s, c)
		}
	}
}

// escape reads what follows a backslash in a string.
func (e *ednReader) escape(s []byte) ([]byte, error) {
	c, err := e.need()
	if err != nil {
		return s, err
	}
	e.skip()
	switch c {
	case 't':
		return append(s, '\t'), nil
	case 'r':
		return append(s, '\r'), nil
	case 'n':
		return append(s, '\n'), nil
	case 'b':
		return append(s, '\b'), nil
	case 'f':
		return append(s, '\f'), nil
	case '\\', '"', '\'':
		return append(s, c), nil
	case 'u':
		var hex [4]byte
		for i := range hex {
			if hex[i], err = e.need(); err != nil {
				return s, err
			}
			e.skip()
		}
		n, err := strconv.ParseUint(string(hex[:]), 16, 16)
		if err != nil {
			return s, fmt.Errorf(`bad escape \u%q in a text`, hex)
		}
		return utf8.AppendRune(s, rune(n)), nil
	}
	return s, fmt.Errorf(`bad escape \%c in a text`, c)
}

// character reads a character literal after its backslash.
func (e *ednReader) character(dst []byte) ([]byte, error) {
	c, err := e.need()
	if err != nil {
		return dst, err
	}
	e.skip()
	s, err := e.token([]byte{c})
	if err != nil {
		return dst, err
	}
	switch t := string(s); t {
	case "newline":
		s = []byte("\n")
	case "space":
		s = []byte(" ")
	case "tab":
		s = []byte("\t")
	case "return":
		s = []byte("\r")
	}
	return appendText(dst, string(s)), nil
}

// atom reads a number, keyword or symbol.
func (e *ednReader) atom(dst []byte) ([]byte, form, error) {
	start := len(dst)
	dst, err := e.token(dst)
	if err != nil {
		return dst, 0, err
	}
	t := dst[start:]
	switch string(t) {
	case "nil":
		return append(dst[:start], "null"...), formNil, nil
	case "true", "false":
		return dst, formOther, nil
	}
	if t[0] == ':' {
		return appendText(dst[:start], string(t[1:])), formName, nil
	}
	if n, kind := ednNumber(t); n != nil {
		return append(dst[:start], n...), kind, nil
	}
	return appendText(dst[:start], string(t)), formName, nil
}

// ednNumber returns the JSON number that t writes, or nil if it is none. EDN
// allows a plus sign, and a suffix for arbitrary precision.
func ednNumber(t []byte) ([]byte, form) {
	t = bytes.TrimPrefix(t, []byte("+"))
	if n := len(t) - 1; n > 0 && (t[n] == 'N' || t[n] == 'M') {
		t = t[:n]
	}
	switch {
	case numberEnd(t, 0) != len(t):
		return nil, formOther
	case bytes.ContainsAny(t, ".eE"):
		return t, formOther
	}
	return t, formInt
}

// plainText returns what a JSON string says; other JSON stays as it is.
func plainText(b []byte) []byte {
	if len(b) < 2 || b[0] != '"' {
		return b
	}
	if bytes.IndexByte(b, '\\') < 0 {
		return b[1 : len(b)-1]
	}
	var s string
	if json.Unmarshal(b, &s) != nil {
		return b
	}
	return []byte(s)
}
