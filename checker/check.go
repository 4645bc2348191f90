package checker

import "github.com/lockcheck/lockcheck/history"

// Check judges a history.
func Check(h *history.History, o Options) *Report { return &Report{Operations: len(h.Ops)} }
