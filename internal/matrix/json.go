package matrix

import (
	"encoding/json"
	"io"
)

// JSON writes the table for programs. It can be read again with [Read].
func (t *Table) JSON(w io.Writer) error {
	t.Schema = Schema
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", " ")
	return enc.Encode(t)
}
