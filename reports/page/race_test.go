//go:build race

package page_test

const raceEnabled = true
