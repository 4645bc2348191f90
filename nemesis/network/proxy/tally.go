package proxy

import (
	"bytes"
	"fmt"
	"sync"
	"unicode"
	"unicode/utf8"
)

// A Tally counts how many nodes have answered one node, and holds the last answer
// that was wanted and those of further nodes back, so that something can be done at
// just that moment. Nothing is counted nor held before Start.
type Tally struct {
	trouble *Trouble
	want    int
	reached chan struct{}

	mu       sync.Mutex
	word     []byte          // that requests are about
	started  bool            // and not ended
	answered map[string]bool // targets
}

// Tally readies a tally of want answers to source by targets. End must be called
// also when there was an error.
func (m *Mesh) Tally(source string, targets []string, want int) (*Tally, error) {
	t := &Tally{trouble: &Trouble{mesh: m}, want: want, reached: make(chan struct{}), answered: map[string]bool{}}
	if want < 1 || want > len(targets) {
		return t, fmt.Errorf("%d answers to %s: it asks %d servers", want, source, len(targets))
	}
	links := make([]Link, len(targets))
	for i, target := range targets {
		links[i] = Link{source, target}
	}
	var err error
	t.trouble, err = m.trouble("count answers", links, func(id, _ int, l *link) { l.tallies[id] = t })
	return t, err
}

// Start begins to count: one for each target that answers a request, sent from now
// on, which has the word in it, not as a part of another. An answer is whatever
// comes back next on the same connection.
func (t *Tally) Start(word string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.word, t.started = []byte(word), true
}

// Reached returns a channel that is closed when the last answer that was wanted is
// on its way to the source. It is held until End.
func (t *Tally) Reached() <-chan struct{} { return t.reached }

// Answered returns how many targets have answered.
func (t *Tally) Answered() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.answered)
}

// End lets what is held go on, and counts no more. It may be called repeatedly.
func (t *Tally) End() error {
	t.mu.Lock()
	t.started = false
	t.mu.Unlock()
	return t.trouble.Heal()
}

// rules are those of one connection to a target: the one of requests lets
// everything pass.
func (t *Tally) rules(id int, target string) (up, down rule) {
	asked := false // under t.mu
	up = rule{id: id, mode: Pass, match: func(chunk []byte) bool {
		t.mu.Lock()
		defer t.mu.Unlock()
		asked = asked || t.started && containsWord(chunk, t.word)
		return asked
	}}
	down = rule{id: id, mode: Hold, match: func([]byte) bool {
		t.mu.Lock()
		defer t.mu.Unlock()
		switch {
		case !t.started || !asked || t.answered[target]:
			return false
		case len(t.answered) == t.want:
			return true
		}
		t.answered[target] = true
		if len(t.answered) < t.want {
			return false
		}
		close(t.reached)
		return true
	}}
	return up, down
}

// containsWord reports whether text has the word in it, with no letter and no
// digit next to it.
func containsWord(text, word []byte) bool {
	for len(word) > 0 {
		at := bytes.Index(text, word)
		if at < 0 {
			return false
		}
		before, _ := utf8.DecodeLastRune(text[:at])
		after, _ := utf8.DecodeRune(text[at+len(word):])
		if !alphanumeric(before) && !alphanumeric(after) {
			return true
		}
		text = text[at+1:]
	}
	return false
}

func alphanumeric(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }
