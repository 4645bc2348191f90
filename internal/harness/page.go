package harness

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/lockcheck/lockcheck/history"
	"github.com/lockcheck/lockcheck/reports"
	"github.com/lockcheck/lockcheck/reports/page"
)

// PageFile is the name of the page in a run's folder.
const PageFile = "page.html"

// Told is a run with what pictures of it are made from.
type Told struct {
	Run     *reports.Run
	History *history.History
	Events  []history.Event // those that a sequence diagram tells, see reports.Diagram
}

// Tell reads and judges a run's folder, as CheckRun does, for a picture of it.
func Tell(dir string, o CheckOptions) (*Told, error) {
	r, err := CheckRun(dir, o)
	if err != nil {
		return nil, err
	}
	return tell(r, o.Read)
}

func tell(r *reports.Run, o history.ReadOptions) (*Told, error) {
	path := filepath.Join(r.Dir, HistoryFile)
	h, err := history.Open(path, o)
	if err != nil {
		return nil, err
	}
	events, err := eventsFor(r.Report(), h, path, o)
	return &Told{r, h, events}, err
}

// writePage writes the page of a run that was judged into its folder.
func writePage(r *reports.Run) error {
	t, err := tell(r, history.ReadOptions{})
	if err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(r.Dir, PageFile), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("write page: %w", err)
	}
	err = page.Write(f, t.Run, t.History, t.Events)
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return fmt.Errorf("write page: %w", err)
	}
	return nil
}
