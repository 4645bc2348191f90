package history

import (
	"bytes"
	"errors"
	"io"
)

// errLongLine says that a line is longer than what is accepted.
var errLongLine = errors.New("line too long")

const blockSize = 256 << 10 // fits a second-level cache

// blocks cuts an input into blocks of whole lines. Only the last block may end
// within a line.
type blocks struct {
	r    io.Reader
	max  int    // longest line, in bytes
	tail []byte // begin of a line whose end was not read yet
	err  error
}

// next reads a block into buf, which grows if it must, and returns it. A line
// that is too long is never read whole: errLongLine comes instead.
func (b *blocks) next(buf []byte) ([]byte, error) {
	buf = append(buf[:0], b.tail...)
	b.tail = b.tail[:0]
	for idle := 0; ; {
		if b.err != nil {
			if len(buf) > 0 && b.err == io.EOF {
				return buf, nil
			}
			return nil, b.err
		}
		if len(buf) > b.max {
			return nil, errLongLine
		}
		if len(buf) == cap(buf) {
			grown := make([]byte, len(buf), max(blockSize, 2*cap(buf)))
			copy(grown, buf)
			buf = grown
		}
		seen := len(buf)
		n, err := b.r.Read(buf[seen:cap(buf)])
		buf, b.err = buf[:seen+n], err
		if n == 0 && err == nil {
			if idle++; idle == 100 {
				b.err = io.ErrNoProgress
			}
			continue
		}
		idle = 0
		if i := bytes.LastIndexByte(buf[seen:], '\n'); i >= 0 {
			end := seen + i + 1
			b.tail = append(b.tail, buf[end:]...)
			return buf[:end], nil
		}
	}
}

// block is what one call of blocks.next returned.
type block struct {
	b   []byte
	err error
}

// ahead reads blocks in a goroutine of its own, so that reading, and above all
// unpacking, overlaps with parsing.
type ahead struct {
	full chan block
	free chan []byte
	stop chan struct{}
	done chan struct{}
	cur  []byte
}

const readAhead = 3 // blocks in flight

func readBlocksAhead(src *blocks) *ahead {
	a := &ahead{
		full: make(chan block, readAhead),
		free: make(chan []byte, readAhead),
		stop: make(chan struct{}),
		done: make(chan struct{}),
	}
	for range readAhead {
		a.free <- nil
	}
	go func() {
		defer close(a.done)
		for {
			var buf []byte
			select {
			case buf = <-a.free:
			case <-a.stop:
				return
			}
			b, err := src.next(buf)
			a.full <- block{b, err} // never blocks: as many blocks as places
			if err != nil {
				return
			}
		}
	}()
	return a
}

// next returns the next block, which is good until the next call.
func (a *ahead) next() ([]byte, error) {
	if a.cur != nil {
		a.free <- a.cur
		a.cur = nil
	}
	b := <-a.full
	if b.err != nil {
		a.full <- b // the last one: asked again, the answer is the same
		return nil, b.err
	}
	a.cur = b.b
	return b.b, nil
}

// close ends the goroutine and waits for it: nobody reads the input after.
func (a *ahead) close() {
	close(a.stop)
	<-a.done
}

// lines hands out the lines of an input, one after the other.
type lines struct {
	more  func() ([]byte, error) // the next block
	max   int
	block []byte
	read  int64 // bytes in all blocks so far
	n     int   // number of the line handed out last, from 1
	cut   bool  // that line had no end
}

func newLines(src *blocks) *lines {
	var buf []byte
	return &lines{max: src.max, more: func() ([]byte, error) {
		b, err := src.next(buf)
		if b != nil {
			buf = b
		}
		return b, err
	}}
}

// offset is how many bytes have been handed out.
func (l *lines) offset() int64 { return l.read - int64(len(l.block)) }

// next returns the next line that is not blank, without its end. It is good
// until the next call.
func (l *lines) next() ([]byte, error) {
	for {
		if len(l.block) == 0 {
			b, err := l.more()
			if err != nil {
				if err == errLongLine {
					l.n++
				}
				return nil, err
			}
			l.block = b
			l.read += int64(len(b))
		}
		line := l.block
		if i := bytes.IndexByte(line, '\n'); i >= 0 {
			line, l.block = line[:i], line[i+1:]
		} else {
			l.block, l.cut = nil, true
		}
		l.n++
		if len(line) > l.max {
			return nil, errLongLine
		}
		if n := len(line); n > 0 && line[n-1] == '\r' {
			line = line[:n-1]
		}
		if len(line) == 0 || line[0] <= ' ' && len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		return line, nil
	}
}
