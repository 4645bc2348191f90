package main

import (
	"slices"
	"testing"
)

// FuzzSplitCommand: what --client is given becomes arguments, or an error, and no
// argument is empty where it is split at blanks.
func FuzzSplitCommand(f *testing.F) {
	for _, s := range []string{"", "./my-lock", "python3 my_lock.py; rm x", `["./my lock", "a b"]`, `[]`, `[1]`, "["} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		args, err := splitCommand(s)
		if err != nil && len(args) > 0 {
			t.Errorf("%q gives both %q and %v", s, args, err)
		}
		if err == nil && (len(s) == 0 || s[0] != '[') && len(args) > 0 && slices.Contains(args, "") && !slices.Contains([]byte(s), '[') {
			t.Errorf("%q has an empty argument: %q", s, args)
		}
	})
}
