package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockcheck/lockcheck/internal/manual"
)

// TestReferenceIsUpToDate compares docs/reference with what the program says of
// itself.
func TestReferenceIsUpToDate(t *testing.T) {
	dir := filepath.Join("..", "..", "docs", "reference")
	a := &app{stdout: io.Discard, stderr: io.Discard}
	pages, err := manual.Markdown(a.root())
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := writePages(dir, pages); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range pages {
		committed, err := os.ReadFile(filepath.Join(dir, p.Name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(committed, p.Text) {
			t.Errorf("docs/reference/%s is not what the program says: run make docs", p.Name)
		}
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != len(pages) {
		t.Errorf("docs/reference has %d files (%v), and the program makes %d", len(files), err, len(pages))
	}
}

// TestManPages has groff set every man page: it warns of what it does not know.
func TestManPages(t *testing.T) {
	groff, err := exec.LookPath("groff")
	if err != nil {
		t.Skip("groff is not installed: ", err)
	}
	a := &app{stdout: io.Discard, stderr: io.Discard}
	var all bytes.Buffer
	for _, p := range manual.Man(a.root(), statuses) {
		all.Write(p.Text)
	}
	c := exec.Command(groff, "-ww", "-man", "-Tascii", "-P-cbou")
	c.Stdin = &all
	var warnings bytes.Buffer
	c.Stderr = &warnings
	out, err := c.Output()
	if err != nil || warnings.Len() > 0 {
		t.Fatalf("groff: %v\n%s", err, warnings.String())
	}
	for _, want := range []string{"LOCKCHECK-RUN(1)", "--repeat int", "EXIT STATUS"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the man pages do not have %q", want)
		}
	}
}
