package deploy

import (
	"archive/tar"
	"bytes"
	"io"
	"strings"
	"testing"
)

// renamed is an archive whose names have lost a prefix.
func renamed(t *testing.T, archive io.Reader, prefix string) io.Reader {
	t.Helper()
	var out bytes.Buffer
	r, w := tar.NewReader(archive), tar.NewWriter(&out)
	for {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		h.Name = strings.TrimPrefix(h.Name, prefix)
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(w, r); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &out
}

// evil is an archive with a name that leads out of the folder.
func evil(t *testing.T) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	if err := w.WriteHeader(&tar.Header{Name: "data/../../evil", Typeflag: tar.TypeReg, Mode: 0o600, Size: 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
