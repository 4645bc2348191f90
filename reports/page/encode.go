package page

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"io"
)

// columns are numbers packed for the page's script: one column after another,
// each a row of variable-length integers, the whole packed with gzip and written
// in base64. A million operations take some 10 MB in this form; as JSON objects
// they would take 150.
type columns struct {
	dir  []column
	data bytes.Buffer
}

// column says how to read one column; its bytes follow those of the one before.
type column struct {
	Name  string `json:"name"`
	Code  string `json:"code"` // "u": varints; "d": zigzag varints of differences to the value before
	Len   int    `json:"len"`
	Bytes int    `json:"bytes"`
}

// plain adds a column of numbers that are not negative.
func (c *columns) plain(name string, n int, at func(int) int64) {
	c.add(name, "u", n, func(b []byte, i int) []byte { return binary.AppendUvarint(b, uint64(at(i))) })
}

// deltas adds a column of numbers that are near their predecessors.
func (c *columns) deltas(name string, n int, at func(int) int64) {
	last := int64(0)
	c.add(name, "d", n, func(b []byte, i int) []byte {
		v := at(i)
		b = binary.AppendVarint(b, v-last)
		last = v
		return b
	})
}

func (c *columns) add(name, code string, n int, put func([]byte, int) []byte) {
	start := c.data.Len()
	var b [binary.MaxVarintLen64]byte
	for i := range n {
		c.data.Write(put(b[:0], i))
	}
	c.dir = append(c.dir, column{name, code, n, c.data.Len() - start})
}

// write writes head (with the directory of columns in its field "columns") and
// the columns: the length of head in four bytes, head as JSON, the columns.
func (c *columns) write(w io.Writer, head map[string]any) error {
	head["columns"] = c.dir
	b, err := json.Marshal(head)
	if err != nil {
		return err
	}
	text := base64.NewEncoder(base64.StdEncoding, w)
	pack, err := gzip.NewWriterLevel(text, gzip.BestSpeed)
	if err != nil {
		return err
	}
	if _, err := pack.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(b)))); err != nil {
		return err
	}
	if _, err := pack.Write(b); err != nil {
		return err
	}
	if _, err := pack.Write(c.data.Bytes()); err != nil {
		return err
	}
	if err := pack.Close(); err != nil {
		return err
	}
	return text.Close()
}
