package checker

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/lockcheck/lockcheck/history"
)

// TestEveryWordIsDescribed: whoever adds a property or a code describes it.
func TestEveryWordIsDescribed(t *testing.T) {
	names := func(all []Info) []string {
		var ns []string
		for _, i := range all {
			if i.Description == "" {
				t.Errorf("%s has no description", i.Name)
			}
			ns = append(ns, i.Name)
		}
		return ns
	}
	var judged []string
	for _, p := range Check(&history.History{}, Options{}).Properties {
		judged = append(judged, p.Name)
	}
	if got := names(Properties()); !slices.Equal(got, judged) {
		t.Errorf("Properties are %v, and Check judges %v", got, judged)
	}
	codes := names(Codes())
	for _, c := range constants(t, "report.go", "Codes of findings") {
		if !slices.Contains(codes, c) {
			t.Errorf("code %q is not described", c)
		}
	}
	if len(names(Verdicts())) != 4 {
		t.Error("a verdict is not described")
	}
}

// constants returns the strings of the block of constants under a comment.
func constants(t *testing.T, file, comment string) []string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, d := range f.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || !strings.HasPrefix(g.Doc.Text(), comment) {
			continue
		}
		for _, s := range g.Specs {
			for _, v := range s.(*ast.ValueSpec).Values {
				word, err := strconv.Unquote(v.(*ast.BasicLit).Value)
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, word)
			}
		}
	}
	if len(all) == 0 {
		t.Fatalf("%s has no constants under %q", file, comment)
	}
	return all
}
