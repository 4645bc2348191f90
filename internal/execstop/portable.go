package execstop

import (
	"fmt"
	"os"
)

// Portable is a Patch that another process of this program can apply, one that may
// trace what this one may not: inside of a container, where the server is its child.
// That process is given the files and makes a patch of the same kind of them.
type Portable interface {
	Patch
	// Kind returns the name under which the kind is registered, and an option.
	Kind() (name, option string)
	// Applied is called here after it was applied there.
	Applied() error
}

var kinds = map[string]func(files []*os.File, option string) Patch{}

// RegisterKind adds a kind of Portable patches: what makes one of the files and the
// option of another process. It is called from init functions, and panics if the name
// is taken.
func RegisterKind(name string, make func(files []*os.File, option string) Patch) {
	if _, taken := kinds[name]; taken {
		panic("patch " + name + " is registered twice")
	}
	kinds[name] = make
}

// Unpack makes a patch of what a Portable of another process has.
func Unpack(name, option string, files []*os.File) (Patch, error) {
	unpack, ok := kinds[name]
	if !ok {
		return nil, fmt.Errorf("this program has no patch %q", name)
	}
	return unpack(files, option), nil
}
