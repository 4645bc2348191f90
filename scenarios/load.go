package scenarios

import (
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

//go:embed *.yaml
var files embed.FS

// ErrNotFound says that there is neither a scenario or suite of that name nor
// a file.
var ErrNotFound = errors.New("not found")

// source is the text of a scenario or suite file.
type source struct {
	file     string
	text     []byte
	embedded bool
}

// Load returns the scenario that comes with lockcheck under the given name, or
// else the one in the given file. What contains a slash or ends in .yaml, .yml
// or .json is a file.
func Load(nameOrFile string) (*Scenario, error) {
	src, err := read(nameOrFile)
	if err != nil {
		return nil, err
	}
	return src.scenario()
}

// LoadSuite returns the suite of the given name or in the given file.
func LoadSuite(nameOrFile string) (*Suite, error) {
	src, err := read(nameOrFile)
	if err != nil {
		return nil, err
	}
	return src.suite()
}

func (s source) scenario() (*Scenario, error) {
	if isSuite(s.file, s.text) {
		return nil, Error{File: s.file, Msg: "is a suite, a list of scenarios: name a scenario"}
	}
	sc, err := Parse(s.file, s.text)
	if err != nil {
		return nil, err
	}
	sc.Embedded = s.embedded
	return sc, nil
}

func (s source) suite() (*Suite, error) {
	if !isSuite(s.file, s.text) {
		return nil, Error{File: s.file, Msg: "is no suite: it has no field \"scenarios\""}
	}
	return ParseSuite(s.file, s.text)
}

// LoadAll returns the scenarios that the names and files stand for, a suite's
// in its order. A scenario that is named more than once is returned once. The
// error, if any, holds all that is wrong.
func LoadAll(namesOrFiles ...string) ([]*Scenario, error) {
	type id struct {
		file     string
		embedded bool
	}
	var all []*Scenario
	var errs []error
	seen := map[id]bool{}
	add := func(src source) {
		s, err := src.scenario()
		if err != nil {
			errs = append(errs, err)
		} else if !seen[id{src.file, src.embedded}] {
			seen[id{src.file, src.embedded}] = true
			all = append(all, s)
		}
	}
	for _, name := range namesOrFiles {
		src, err := read(name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if !isSuite(src.file, src.text) {
			add(src)
			continue
		}
		members, err := src.members()
		errs = append(errs, err)
		for _, m := range members {
			add(m)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return all, nil
}

// members returns the files of a suite's scenarios, those that there are.
func (s source) members() ([]source, error) {
	suite, err := s.suite()
	if err != nil {
		return nil, err
	}
	var all []source
	var errs []error
	for i, name := range suite.Scenarios {
		find := read
		if isFile(name) {
			find = readFile
			if !filepath.IsAbs(name) {
				name = filepath.Join(filepath.Dir(s.file), name)
			}
		}
		src, err := find(name)
		if err != nil {
			errs = append(errs, Error{File: s.file, Line: suite.lines[i], Msg: err.Error()})
			continue
		}
		all = append(all, src)
	}
	return all, errors.Join(errs...)
}

// List returns the scenarios that come with lockcheck, by name.
func List() ([]*Scenario, error) {
	return each(func(s source) bool { return !isSuite(s.file, s.text) }, source.scenario)
}

// ListSuites returns the suites that come with lockcheck, by name.
func ListSuites() ([]*Suite, error) {
	return each(func(s source) bool { return isSuite(s.file, s.text) }, source.suite)
}

// each parses the embedded files that are wanted, in the order of their names.
func each[T any](want func(source) bool, parse func(source) (T, error)) ([]T, error) {
	var all []T
	for _, name := range embedded() {
		src, err := read(name)
		if err != nil {
			return nil, err
		}
		if !want(src) {
			continue
		}
		one, err := parse(src)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

func isFile(name string) bool {
	ext := filepath.Ext(name)
	return strings.ContainsAny(name, `/\`) || ext == ".yaml" || ext == ".yml" || ext == ".json"
}

// read finds an embedded file by its name without extension, or a file on disk.
func read(nameOrFile string) (source, error) {
	if isFile(nameOrFile) {
		return readFile(nameOrFile)
	}
	file := nameOrFile + ".yaml"
	text, err := files.ReadFile(file)
	if err != nil {
		return source{}, fmt.Errorf("scenario or suite %s %w%s", quote(nameOrFile), ErrNotFound, suggest(nameOrFile, embedded()))
	}
	return source{file, text, true}, nil
}

func readFile(name string) (source, error) {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return source{}, fmt.Errorf("scenario file %s %w", name, ErrNotFound)
	}
	if err != nil {
		return source{}, fmt.Errorf("scenario file: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	if err != nil {
		return source{}, fmt.Errorf("scenario file: %w", err)
	}
	return source{file: name, text: text}, nil
}

// Names returns the names of the scenarios and suites that come with lockcheck,
// sorted.
func Names() []string { return embedded() }

func embedded() []string {
	var all []string
	entries, _ := fs.ReadDir(files, ".") // an embedded directory can be read
	for _, e := range entries {
		all = append(all, strings.TrimSuffix(e.Name(), ".yaml"))
	}
	return all
}
