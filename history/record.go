package history

// record is one event as an input states it. Its texts point into the
// decoder's buffers and are good until the next one is decoded.
type record struct {
	line int // of the input, from 1

	index, time        int64
	token, op          int64
	ttl, until         int64
	process, typ, f    []byte
	key, client, error []byte
	value              []byte // JSON text; nil if not stated
	hasIndex, hasTime  bool
	hasToken, hasOp    bool
	unterminated       bool // the last line of a log, without an end
}

// event returns the whole event, with copies of what it points to. The index
// and time are those given, which have been put in order.
func (r *record) event(index, time int64) Event {
	e := Event{
		Index:   index,
		Time:    time,
		Process: string(r.process),
		Type:    Type(r.typ),
		F:       string(r.f),
		Key:     string(r.key),
		TTL:     r.ttl,
		Until:   r.until,
		Client:  string(r.client),
		Error:   string(r.error),
	}
	if r.value != nil {
		e.Value = append(e.Value, r.value...)
	}
	if r.hasToken {
		token := r.token
		e.Token = &token
	}
	if r.hasOp {
		op := r.op
		e.Op = &op
	}
	return e
}

// decoder turns an input into records.
type decoder interface {
	// next decodes the next event into r. It returns io.EOF at the end, a
	// *SyntaxError without a file for what cannot be read, or the error of
	// the underlying reader.
	next(r *record) error
	// truncated says, after io.EOF, whether the input ended within an event.
	truncated() bool
	// offset is how many bytes of the input have been decoded.
	offset() int64
}
