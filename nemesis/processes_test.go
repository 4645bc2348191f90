package nemesis

import (
	"errors"
	"testing"
)

// lists answers each call of PIDs with the next of its lists.
type lists [][]int

func (l *lists) PIDs() ([]int, error) {
	if len(*l) == 0 {
		return nil, errors.New("no more")
	}
	pids := (*l)[0]
	*l = (*l)[1:]
	return pids, nil
}

func TestEachProcess(t *testing.T) {
	bad := errors.New("bad")
	for _, tt := range []struct {
		name  string
		lists lists
		want  int
		err   string
	}{
		{"all are well", lists{{1, 2, 4}}, 3, ""},
		{"one fails its check", lists{{1, 3}, {1, 3}}, 0, "bad"},
		{"one that failed has ended", lists{{1, 3}, {1}}, 1, ""},
		{"none is left", lists{{3}, {}}, 0, "it has no process"},
		{"there is none", lists{{}}, 0, "it has no process"},
		{"they cannot be listed", lists{}, 0, "list its processes: no more"},
		{"they cannot be listed again", lists{{3}}, 0, "list its processes: no more"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := EachProcess(&tt.lists, func(pid int) error {
				if pid == 3 {
					return bad
				}
				return nil
			})
			said := ""
			if err != nil {
				said = err.Error()
			}
			if got != tt.want || said != tt.err {
				t.Errorf("got %d, %q, want %d, %q", got, said, tt.want, tt.err)
			}
		})
	}
}
