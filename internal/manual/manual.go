// Package manual writes the reference manual from the program itself: its
// commands, the fields of scenario files, and all that is registered. What it
// writes depends on nothing of the machine, so that a test can compare it with
// what was committed.
package manual

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// Page is a file of the manual.
type Page struct {
	Name string // "commands.md"
	Text []byte
}

// Status is an exit status, and what it means.
type Status struct {
	Code    int
	Meaning string
}

// Markdown returns the pages of docs/reference.
func Markdown(root *cobra.Command) ([]Page, error) {
	root.InitDefaultCompletionCmd() // which is only there once a command is executed
	pages := []Page{
		{"commands.md", commands(root)},
		{"faults.md", faults()},
		{"verdicts.md", verdicts()},
		{"figures.md", figures()},
	}
	for _, p := range []struct {
		name string
		make func() ([]byte, error)
	}{{"scenario.md", scenario}, {"scenarios.md", builtIn}, {"backends.md", lockSystems}} {
		text, err := p.make()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.name, err)
		}
		pages = append(pages, Page{p.name, text})
	}
	return pages, nil
}

// document is Markdown that is being written.
type document struct{ bytes.Buffer }

// newDocument begins a page.
func newDocument(title string, about ...string) *document {
	d := &document{}
	fmt.Fprintf(d, "<!-- Made by `make docs` from the program: change it there. -->\n\n# %s\n", title)
	for _, a := range about {
		d.paragraph(a)
	}
	return d
}

func (d *document) heading(level int, text string) {
	fmt.Fprintf(d, "\n%s %s\n", strings.Repeat("#", level), text)
}

func (d *document) paragraph(text string) { fmt.Fprintf(d, "\n%s\n", strings.TrimSpace(text)) }

func (d *document) code(text string) {
	fmt.Fprintf(d, "\n```\n%s\n```\n", strings.TrimRight(text, "\n "))
}

// table writes rows under their heads.
func (d *document) table(heads []string, rows [][]string) {
	d.WriteByte('\n')
	d.row(heads)
	d.row(strings.Split(strings.Repeat("---,", len(heads)-1)+"---", ","))
	for _, r := range rows {
		d.row(r)
	}
}

func (d *document) row(cells []string) {
	for _, c := range cells {
		c = strings.ReplaceAll(strings.ReplaceAll(c, "\n", " "), "|", `\|`)
		fmt.Fprintf(d, "| %s ", c)
	}
	d.WriteString("|\n")
}

// code marks a word as one to be typed; nothing stays nothing.
func code(word string) string {
	if word == "" {
		return ""
	}
	return "`" + word + "`"
}
