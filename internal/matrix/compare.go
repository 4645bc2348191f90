package matrix

import (
	"fmt"
	"slices"
)

// Difference is a row of which two tables say something else.
type Difference struct {
	Row      string
	Old, New Verdict
	Gone     bool // the new table has no such row
	Added    bool // the old one had none
}

// Worse reports whether the new verdict allows less than the old one. That nothing
// was shown this time is no worse, but no proof either.
func (d Difference) Worse() bool {
	return !d.Gone && !d.Added && d.Old != NotShown && d.New != NotShown && d.New.rank() < d.Old.rank()
}

// Lost reports whether what was shown before is shown no more.
func (d Difference) Lost() bool {
	return d.Old != NotShown && !d.Added && (d.Gone || d.New == NotShown)
}

func (d Difference) String() string {
	switch {
	case d.Gone:
		return fmt.Sprintf("%s: was %s, is not in this table", d.Row, d.Old.Words())
	case d.Added:
		return fmt.Sprintf("%s: is %s, was not in the other table", d.Row, d.New.Words())
	case d.Worse():
		return fmt.Sprintf("%s: WORSE: is %s, was %s", d.Row, d.New.Words(), d.Old.Words())
	}
	return fmt.Sprintf("%s: is %s, was %s", d.Row, d.New.Words(), d.Old.Words())
}

// Compare returns the rows whose verdicts differ, in the order of the new table, and
// those of the old one that are gone.
func Compare(old, now *Table) []Difference {
	var all []Difference
	for _, r := range now.Rows {
		o := old.Row(r.Name)
		switch {
		case o == nil:
			all = append(all, Difference{Row: r.Name, New: r.Verdict, Added: true})
		case o.Verdict != r.Verdict:
			all = append(all, Difference{Row: r.Name, Old: o.Verdict, New: r.Verdict})
		}
	}
	for _, o := range old.Rows {
		if !slices.ContainsFunc(now.Rows, func(r *Row) bool { return r.Name == o.Name }) {
			all = append(all, Difference{Row: o.Name, Old: o.Verdict, Gone: true})
		}
	}
	return all
}
