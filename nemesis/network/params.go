package network

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// params reads a fault's parameters, and keeps the first error.
type params struct {
	fault string
	of    map[string]string
	err   error
}

func (p *params) fail(name, want string) {
	if p.err == nil {
		p.err = fmt.Errorf("%s: %s is %q, want %s", p.fault, name, p.of[name], want)
	}
}

// oneOf returns a parameter that must be one of a few words, the first by default.
func (p *params) oneOf(name string, words ...string) string {
	v, ok := p.of[name]
	if !ok {
		return words[0]
	}
	if !slices.Contains(words, v) {
		p.fail(name, strings.Join(words, ", ")+" or nothing")
	}
	return v
}

func (p *params) duration(name string, byDefault, least time.Duration) time.Duration {
	v, ok := p.of[name]
	if !ok {
		return byDefault
	}
	d, err := time.ParseDuration(v)
	if err != nil || d < least || d > time.Minute {
		p.fail(name, fmt.Sprintf("a time from %v to 1m, such as 50ms", least))
	}
	return d
}

func (p *params) number(name string, byDefault, least, most int64) int64 {
	v, ok := p.of[name]
	if !ok {
		return byDefault
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || n < least || n > most {
		p.fail(name, fmt.Sprintf("a number from %d to %d", least, most))
	}
	return n
}

// bytes reads a number of bytes such as 500, 64KB or 10MB (of 1000).
func (p *params) bytes(name string, byDefault, least, most int64) int64 {
	v, ok := p.of[name]
	if !ok {
		return byDefault
	}
	unit := int64(1)
	for suffix, u := range map[string]int64{"KB": 1e3, "MB": 1e6} {
		if number, found := strings.CutSuffix(strings.ToUpper(v), suffix); found {
			v, unit = number, u
			break
		}
	}
	n, err := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
	if err != nil || n < 0 || n > most/unit || n*unit < least {
		p.fail(name, fmt.Sprintf("bytes from %d to %d, such as 64KB", least, most))
		return byDefault
	}
	return n * unit
}
