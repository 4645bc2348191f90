package history

import (
	"bufio"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"sort"
	"strings"
)

// Format is a way to write a history.
type Format string

const (
	FormatJSONL     Format = "jsonl"      // our own: one JSON object a line
	FormatEDN       Format = "edn"        // Jepsen's history.edn: maps, one after the other or in one vector
	FormatJepsenLog Format = "jepsen-log" // lines that Jepsen logs
	FormatKV        Format = "kv"         // porcupine's key-value text: EDN maps without times
)

// Formats are all formats that can be read.
var Formats = []Format{FormatJSONL, FormatEDN, FormatJepsenLog, FormatKV}

// ReadOptions say how to read a history. The zero value is good.
type ReadOptions struct {
	// Name is what errors call the input: usually its path.
	Name string
	// Format is the format; empty to tell it from the content.
	Format Format
	// MaxLine is the length in bytes of the longest line, or EDN map, that is
	// accepted; 16 MiB if it is 0. What is longer is not read into memory.
	MaxLine int
	// Size is the length of the input in bytes, 0 if it is not known. It is
	// used to save memory, and need not be right.
	Size int64
	// Progress, if not nil, is told now and then how many bytes of the input
	// (packed, if it is) have been read. It is called from one goroutine at a
	// time, not always the caller's.
	Progress func(bytes int64)
}

const defaultMaxLine = 16 << 20

// SyntaxError says that an input is not a history, and where.
type SyntaxError struct {
	File string
	Line int // from 1
	Msg  string
}

func (e *SyntaxError) Error() string { return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Msg) }

// Open reads the history in the file at path, or on standard input if path is
// "-". See Decode.
func Open(path string, o ReadOptions) (*History, error) {
	if path == "-" {
		if o.Name == "" {
			o.Name = "stdin"
		}
		return Decode(os.Stdin, o)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open history: %w", err)
	}
	defer f.Close()
	if o.Name == "" {
		o.Name = path
	}
	if info, err := f.Stat(); err == nil && info.Mode().IsRegular() && o.Size == 0 {
		o.Size = info.Size()
	}
	return Decode(f, o)
}

// Decode reads a whole history, of any format and packed with gzip or not.
//
// A history that cannot be read is a *SyntaxError with its line. One that can
// be read but breaks what checking relies on is returned, with Assumptions. An
// input that ends within an event, as when its writer was killed, is no error:
// the event is left out and Truncated set. An empty input is a History without
// events; whether it is worth a verdict is for the caller to say.
//
// Decode streams: it keeps operations, names and different values, not the
// text. It reads in a goroutine of its own, which has ended when it returns.
func Decode(r io.Reader, o ReadOptions) (*History, error) {
	src, err := newSource(r, o, true)
	if err != nil {
		return nil, err
	}
	defer src.close()
	return decode(src)
}

func decode(src *source) (*History, error) {
	p := newPairing(src.format, src.size, src.offset)
	var rec record
	for {
		err := src.next(&rec)
		if err == io.EOF {
			break
		}
		if err == nil {
			if err = p.add(&rec); err == nil {
				if src.plain && p.order.events%placesApart == 0 {
					p.h.places = push(p.h.places, place{src.offset(), rec.line, p.order.orderState})
				}
				continue
			}
			err = &SyntaxError{Line: rec.line, Msg: err.Error()}
		}
		return nil, src.named(err, rec.line)
	}
	h := p.finish(src.truncated())
	if h.Truncated && p.order.events == 0 {
		return nil, src.named(&SyntaxError{Line: 1, Msg: "not a history: it ends in the middle of its first event"}, 0)
	}
	return h, nil
}

// place is a place in an input between two events.
type place struct {
	offset int64
	line   int
	order  orderState
}

// placesApart is the number of events between places.
const placesApart = 1 << 13

// Scanner reads a history event by event, whole, in the order of its lines.
// Events get the index and time that Decode would give them; nothing is left
// out but what Decode finds twice.
type Scanner struct {
	src         *source
	order       order
	rec         record
	index, time int64
	found       bool // rec is an event
	err         error
	done        bool
}

// NewScanner returns a scanner of r. It needs no closing.
func NewScanner(r io.Reader, o ReadOptions) (*Scanner, error) {
	src, err := newSource(r, o, false)
	if err != nil {
		return nil, err
	}
	return &Scanner{src: src, order: newOrder(src.format == FormatJSONL, func(Assumption, string, ...any) {})}, nil
}

// NewScannerNear returns a scanner of the history h, which was decoded from r,
// that begins a little before the event with the given index, where that is
// possible: in our own format, not packed, that breaks no assumption. Elsewhere
// it begins at the beginning. r is read from its start.
func (h *History) NewScannerNear(r io.ReadSeeker, o ReadOptions, index int64) (*Scanner, error) {
	n := sort.Search(len(h.places), func(i int) bool { return h.places[i].order.next > index }) - 1
	if n < 0 || len(h.Assumptions) > 0 {
		return NewScanner(r, o)
	}
	p := &h.places[n]
	if _, err := r.Seek(p.offset, io.SeekCurrent); err != nil {
		return nil, fmt.Errorf("read history %s: %w", o.Name, err)
	}
	o.Format = h.Format
	s, err := NewScanner(r, o)
	if err != nil {
		return nil, err
	}
	s.order.orderState = p.order
	if d, ok := s.src.decoder.(*jsonlDecoder); ok {
		d.lines.n = p.line
	}
	return s, nil
}

// Scan goes on to the next event. It returns false at the end and on an error.
func (s *Scanner) Scan() bool {
	s.found = false
	for !s.done {
		err := s.src.next(&s.rec)
		if err == io.EOF {
			s.done = true
			break
		}
		var index, time int64
		var duplicate bool
		if err == nil {
			index, time, duplicate, err = s.order.place(&s.rec, math.MinInt64)
			if err != nil {
				err = &SyntaxError{Line: s.rec.line, Msg: err.Error()}
			}
		}
		if err != nil {
			s.done, s.err = true, s.src.named(err, s.rec.line)
			break
		}
		if !duplicate {
			s.index, s.time, s.found = index, time, true
			return true
		}
	}
	return false
}

// Event returns the event that Scan went to. It is the caller's to keep.
func (s *Scanner) Event() Event {
	if !s.found {
		return Event{}
	}
	return s.rec.event(s.index, s.time)
}

// Index returns the index of that event.
func (s *Scanner) Index() int64 { return s.index }

// Line returns the line of that event, from 1.
func (s *Scanner) Line() int { return s.rec.line }

// Err returns what ended scanning before the end of the history, with file and
// line.
func (s *Scanner) Err() error { return s.err }

// Truncated reports, when Scan has returned false, whether the history ends in
// the middle of an event.
func (s *Scanner) Truncated() bool { return s.done && s.err == nil && s.src.truncated() }

// Format returns the format of the history.
func (s *Scanner) Format() Format { return s.src.format }

// source is an input with the decoder for it.
type source struct {
	decoder
	name   string
	format Format
	size   int64
	packed *unpacker // nil if not packed
	plain  bool      // offsets are those of the input, in our own format
	close  func()
}

func (s *source) truncated() bool {
	return s.decoder.truncated() || s.packed != nil && s.packed.cut
}

// named gives an error the name of the input. Line is that of the last event
// decoded.
func (s *source) named(err error, line int) error {
	if damaged(err) {
		err = &SyntaxError{Line: line + 1, Msg: "the file is damaged from here on: " + err.Error()}
	}
	if syn, ok := errors.AsType[*SyntaxError](err); ok {
		syn.File = s.name
		return syn
	}
	return fmt.Errorf("read history %s: %w", s.name, err)
}

// newSource finds out what r is. With parallel, lines are read in a goroutine
// until close.
func newSource(r io.Reader, o ReadOptions, parallel bool) (*source, error) {
	s := &source{name: o.Name, format: o.Format, size: o.Size, close: func() {}}
	if s.name == "" {
		s.name = "history"
	}
	if o.MaxLine == 0 {
		o.MaxLine = defaultMaxLine
	}
	if o.Progress != nil {
		r = &progressReader{r: r, report: o.Progress}
	}
	const peek = 64 << 10
	in := bufio.NewReaderSize(r, peek)
	if magic, _ := in.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		s.size = 0
		z, err := gzip.NewReader(in)
		if err != nil {
			return nil, s.named(&SyntaxError{Line: 1, Msg: "not a gzip file: " + err.Error()}, 0)
		}
		s.packed = &unpacker{z: z}
		in = bufio.NewReaderSize(s.packed, peek)
	}
	marked := false
	if mark, _ := in.Peek(3); string(mark) == "\ufeff" { // byte order mark
		_, _ = in.Discard(3)
		marked = true
	}
	if s.format == "" {
		begin, err := in.Peek(peek)
		if len(begin) == 0 && err != io.EOF {
			return nil, s.named(err, 0)
		}
		var reason string
		if s.format, reason = detect(begin); s.format == "" {
			return nil, s.named(&SyntaxError{Line: 1, Msg: reason}, 0)
		}
	}
	switch s.format {
	case FormatEDN, FormatKV:
		s.decoder = &ednDecoder{edn: ednReader{r: in, line: 1, max: o.MaxLine}}
		return s, nil
	case FormatJSONL, FormatJepsenLog:
	default:
		var names []string
		for _, f := range Formats {
			names = append(names, string(f))
		}
		return nil, fmt.Errorf("read history %s: unknown format %q, want one of %s", s.name, s.format, strings.Join(names, ", "))
	}
	src := &blocks{r: in, max: o.MaxLine}
	var l *lines
	if parallel {
		a := readBlocksAhead(src)
		l = &lines{more: a.next, max: o.MaxLine}
		s.close = a.close
	} else {
		l = newLines(src)
	}
	if s.format == FormatJSONL {
		s.decoder = &jsonlDecoder{lines: l}
		s.plain = s.packed == nil && !marked
	} else {
		s.decoder = &logDecoder{lines: l}
	}
	return s, nil
}

// detect tells a format from the beginning of a history, or says why it
// cannot. Nothing at all is taken for our own format.
func detect(begin []byte) (f Format, reason string) {
	text := bytes.TrimLeft(begin, " \t\r\n,")
	if len(text) == 0 {
		return FormatJSONL, ""
	}
	switch text[0] {
	case '{':
		if looksLikeJSON(text) {
			return FormatJSONL, ""
		}
		return ednFormat(text), ""
	case '[':
		if inner := bytes.TrimLeft(text[1:], " \t\r\n,"); len(inner) > 0 && inner[0] == '{' && looksLikeJSON(inner) {
			return "", "a JSON array, want one JSON object a line"
		}
		return FormatEDN, ""
	case '(', ';', '#':
		return FormatEDN, ""
	}
	for line := range bytes.Lines(text) {
		if _, _, ok := logEvent(bytes.TrimRight(line, "\r\n")); ok {
			return FormatJepsenLog, ""
		}
	}
	return "", fmt.Sprintf("not a history in a format known here: it begins with %s", quoted(bytes.TrimRight(firstLine(text), "\r\n")))
}

func firstLine(text []byte) []byte {
	line, _, _ := bytes.Cut(text, []byte("\n"))
	return line
}

// looksLikeJSON tells a JSON object from an EDN map: by its first key, which
// in JSON is a string with a colon and a value after it.
func looksLikeJSON(text []byte) bool {
	text = bytes.TrimLeft(text[1:], " \t\r\n")
	if len(text) == 0 || text[0] == '}' {
		return true
	}
	if text[0] != '"' {
		return false
	}
	i := 1
	for ; i < len(text) && text[i] != '"'; i++ {
		if text[i] == '\\' {
			i++
		}
	}
	if i >= len(text) {
		return true // too little to tell
	}
	text = bytes.TrimLeft(text[i+1:], " \t\r\n")
	if len(text) == 0 {
		return true
	}
	if text[0] != ':' {
		return false
	}
	text = bytes.TrimLeft(text[1:], " \t\r\n")
	return len(text) == 0 || bytes.IndexByte([]byte(`"{[-0123456789`), text[0]) >= 0 ||
		bytes.HasPrefix(text, []byte("true")) || bytes.HasPrefix(text, []byte("false")) || bytes.HasPrefix(text, []byte("null"))
}

// ednFormat tells porcupine's key-value text from other EDN by its first event.
func ednFormat(text []byte) Format {
	line := firstLine(text)
	if bytes.Contains(line, []byte("key")) && !bytes.Contains(line, []byte("time")) {
		for _, f := range []string{"get", "put", "append"} {
			if bytes.Contains(line, []byte(":"+f)) || bytes.Contains(line, []byte(`"`+f+`"`)) {
				return FormatKV
			}
		}
	}
	return FormatEDN
}

// unpacker reads a gzip stream. One that was cut off ends where it ends.
type unpacker struct {
	z   *gzip.Reader
	cut bool
}

func (u *unpacker) Read(p []byte) (int, error) {
	n, err := u.z.Read(p)
	if err == io.ErrUnexpectedEOF {
		u.cut = true
		err = io.EOF
	}
	return n, err
}

// damaged reports whether err says that packed data are wrong.
func damaged(err error) bool {
	var corrupt flate.CorruptInputError
	return errors.As(err, &corrupt) || errors.Is(err, gzip.ErrChecksum) || errors.Is(err, gzip.ErrHeader)
}

// progressReader counts what is read.
type progressReader struct {
	r      io.Reader
	n      int64
	report func(int64)
}

func (p *progressReader) Read(b []byte) (int, error) {
	n, err := p.r.Read(b)
	p.n += int64(n)
	p.report(p.n)
	return n, err
}
