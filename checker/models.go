package checker

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/lockcheck/lockcheck/history"
)

// Linearizable is the name of the property that CheckModel decides: the
// operations of each key, taken one at a time in an order that respects real
// time, are ones that an object of the model would have answered as it did.
const Linearizable = "linearizable"

// Model names a kind of lock or of object.
type Model struct {
	Name    string
	Permits int // of a semaphore; 1 for every other lock, 0 for objects
}

// String returns the model as users write it.
func (m Model) String() string {
	if m.Name == modelSemaphore {
		return m.Name + ":" + strconv.Itoa(m.Permits)
	}
	return m.Name
}

// Lock says whether the model is a lock, not an object.
func (m Model) Lock() bool { return m.Permits > 0 }

const (
	modelMutex           = "mutex"
	modelOwnerMutex      = "owner-mutex"
	modelReentrant       = "reentrant-mutex"
	modelFenced          = "fenced-mutex"
	modelReentrantFenced = "reentrant-fenced-mutex"
	modelLease           = "lease"
	modelSemaphore       = "semaphore"
	modelRWLock          = "rwlock"
	modelRegister        = "register"
	modelCAS             = "cas-register"
	modelKV              = "kv"
	modelCounter         = "counter"
	modelSet             = "set"
	modelList            = "list"
)

// maxPermits bounds the argument of "semaphore:N".
const maxPermits = 1 << 20

// Models lists the models, locks first.
func Models() []Info {
	return []Info{
		{modelMutex, "one holder at a time; anybody may release"},
		{modelOwnerMutex, "one holder at a time; only the holder may release"},
		{modelReentrant, "the holder may acquire again, and releases as often as it acquired"},
		{modelFenced, "an owner-mutex whose grants carry rising fencing tokens"},
		{modelReentrantFenced, "a reentrant-mutex whose nested grants repeat the token of the outermost"},
		{modelLease, "a mutex whose grants expire: the property \"lease\", with --ttl and --drift"},
		{modelSemaphore + ":N", "at most N permits are held at a time"},
		{modelRWLock, "readers share, a writer excludes; an acquire's value is \"read\" or \"write\""},
		{modelRegister, "one value: read, write"},
		{modelCAS, "one value: read, write, compare and set [old, new]"},
		{modelKV, "a value per key: read (get), write (put), append of strings"},
		{modelCounter, "a number: add, read"},
		{modelSet, "a set that only grows: add an element, read all of them"},
		{modelList, "a list that only grows: append an element, read all of them"},
	}
}

// ParseModel reads a model's name; the empty name means "mutex".
func ParseModel(s string) (Model, error) {
	name, arg, hasArg := strings.Cut(s, ":")
	if name == "" && !hasArg {
		return Model{Name: modelMutex, Permits: 1}, nil
	}
	if name == modelSemaphore {
		n, err := strconv.Atoi(arg)
		if err != nil || n < 1 || n > maxPermits {
			return Model{}, fmt.Errorf("model %q: a semaphore needs its number of permits, 1 to %d, as in %q", s, maxPermits, "semaphore:3")
		}
		return Model{Name: name, Permits: n}, nil
	}
	var names []string
	for _, m := range Models() {
		if m.Name == name {
			if hasArg {
				return Model{}, fmt.Errorf("model %q: %s takes no argument", s, name)
			}
			p := 1
			switch name {
			case modelRegister, modelCAS, modelKV, modelCounter, modelSet, modelList:
				p = 0
			}
			return Model{Name: name, Permits: p}, nil
		}
		names = append(names, m.Name)
	}
	return Model{}, fmt.Errorf("unknown model %q; models are %s", s, strings.Join(names, ", "))
}

// CheckModel decides whether a history is one of o.Model. The property's name
// is Linearizable, whatever the model. A model that does not parse, or a
// history that breaks what checking assumes, gives Unknown with the reason.
func CheckModel(h *history.History, o Options) Property {
	p, _ := checkModel(h, o)
	return p
}

// checkModel also returns the class of the violation, which shrinking keeps.
func checkModel(h *history.History, o Options) (Property, string) {
	m, err := ParseModel(o.Model)
	if err != nil {
		return undecided(Linearizable, err.Error()), ""
	}
	switch {
	case m.Name == modelLease:
		return checkLeaseModel(h, o), Lease
	case m.Lock():
		return checkLock(h, o, m)
	default:
		return checkObject(h, o, m)
	}
}

// checkLeaseModel reads the verdict off the property "lease", which is the
// model: grants and renewals promise a time, and nothing is promised after it.
func checkLeaseModel(h *history.History, o Options) Property {
	o.Model = ""
	p := Check(h, o).Property(Lease)
	if p == nil {
		return undecided(Linearizable, "the property lease was not judged")
	}
	q := *p
	q.Name = Linearizable
	return q
}

func undecided(name, why string) Property {
	return Property{Name: name, Verdict: Unknown, Why: why}
}
