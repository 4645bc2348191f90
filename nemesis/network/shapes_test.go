package network

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/lockcheck/lockcheck/nemesis/network/proxy"
)

func flowsOf(text string) []Flow {
	var flows []Flow
	for f := range strings.FieldsSeq(text) {
		from, to, _ := strings.Cut(f, ">")
		flows = append(flows, Flow{from, to})
	}
	return flows
}

func TestBetween(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		d    Direction
		want string
	}{
		{"x", "p,q", Both, "p>x q>x x>p x>q"},
		{"x", "p,q", To, "p>x q>x"},
		{"x", "p,q", From, "x>p x>q"},
		{"x", "x,p", Both, "p>x x>p"},
	} {
		got := Between(strings.Split(tc.a, ","), strings.Split(tc.b, ","), tc.d).Sorted()
		if want := flowsOf(tc.want); !reflect.DeepEqual(got, want) {
			t.Errorf("%s | %s %s: %v, want %v", tc.a, tc.b, tc.d, got, want)
		}
	}
}

func TestSplit(t *testing.T) {
	for _, tc := range []struct {
		groups string
		d      Direction
		want   string
	}{
		{"A,n1|n2", Both, "A>n2 n1>n2 n2>A n2>n1"},
		{"A,n1|n2", To, "n2>A n2>n1"},
		{"A|n1|n2", From, "A>n1 A>n2 n1>n2"},
	} {
		groups, err := ParseGroups(tc.groups)
		if err != nil {
			t.Fatal(err)
		}
		if got := Split(groups, tc.d).Sorted(); !reflect.DeepEqual(got, flowsOf(tc.want)) {
			t.Errorf("%s %s: %v, want %s", tc.groups, tc.d, got, tc.want)
		}
	}
}

func names(n int) []string {
	var s []string
	for i := range n {
		s = append(s, fmt.Sprint("n", i+1))
	}
	return s
}

func rng(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }

func TestHalvesAreAMinorityAndAMajority(t *testing.T) {
	for n := 3; n <= 9; n++ {
		seen := map[string]bool{}
		for seed := range uint64(50) {
			minority, majority := Halves(names(n), rng(seed))
			if len(minority) != n/2 || len(majority) != n-n/2 {
				t.Fatalf("%d nodes: %v | %v", n, minority, majority)
			}
			all := slices.Sorted(slices.Values(slices.Concat(minority, majority)))
			if !slices.Equal(all, names(n)) {
				t.Fatalf("%v | %v are not all nodes once", minority, majority)
			}
			seen[fmt.Sprint(slices.Sorted(slices.Values(minority)))] = true
			again, _ := Halves(names(n), rng(seed))
			if !slices.Equal(minority, again) {
				t.Fatalf("seed %d gave %v and %v", seed, minority, again)
			}
		}
		if len(seen) < n {
			t.Errorf("%d nodes: 50 seeds gave only %v", n, seen)
		}
	}
}

func TestBridgeReachesBothSides(t *testing.T) {
	for n := 3; n <= 7; n++ {
		bridge, flows := Bridge(names(n), rng(7))
		side := map[string]int{}
		for f := range flows {
			if f.From == bridge || f.To == bridge {
				t.Errorf("%d nodes: %v is cut, and %s is the bridge", n, f, bridge)
			}
			if _, back := flows[Flow{f.To, f.From}]; !back {
				t.Errorf("%v is cut one way only", f)
			}
			side[f.From]++
		}
		if len(side) != n-1 {
			t.Errorf("%d nodes: only %v are cut off from some", n, side)
		}
	}
}

func TestRingLetsEachNodeHearAMajorityOfItsOwn(t *testing.T) {
	for n := 3; n <= 9; n++ {
		flows := Ring(names(n), rng(3))
		majorities := map[string]bool{}
		for _, node := range names(n) {
			hears := []string{}
			for _, other := range names(n) {
				if _, cut := flows[Flow{other, node}]; !cut {
					hears = append(hears, other)
				}
			}
			if len(hears) != n/2+1 || !slices.Contains(hears, node) {
				t.Errorf("%d nodes: %s hears %v", n, node, hears)
			}
			majorities[fmt.Sprint(hears)] = true
		}
		if len(majorities) != n {
			t.Errorf("%d nodes: some hear the same majority: %v", n, majorities)
		}
	}
}

func TestDirectionsFindTheLinksThatCarryAFlow(t *testing.T) {
	links := []proxy.Link{{Source: "A", Target: "n1"}, {Source: "n1", Target: "n2"}, {Source: "n2", Target: "n1"}, {Source: "A", Target: "n2"}}
	got := directions(Flows{{"n1", "n2"}: {}, {"A", "n1"}: {}, {"n1", "A"}: {}}, links)
	want := []proxy.Cut{
		{Link: links[0], Up: true, Down: true},
		{Link: links[1], Up: true},
		{Link: links[2], Down: true},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func FuzzParseGroups(f *testing.F) {
	for _, s := range []string{"A,n1|B,n2,n3", "a|b", "a", "a|a", "|", "a,|b", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		groups, err := ParseGroups(text)
		if err != nil {
			return
		}
		seen := map[string]bool{}
		for _, g := range groups {
			for _, name := range g {
				if name == "" || seen[name] {
					t.Fatalf("%q: %q in %q", text, name, groups)
				}
				seen[name] = true
			}
		}
		if len(groups) < 2 {
			t.Fatalf("%q: one group", text)
		}
	})
}

func FuzzParams(f *testing.F) {
	for _, s := range []string{"64KB", "1MB", "99999999999MB", "-1", "10ms", "1h", "x", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p := params{fault: "f", of: map[string]string{"p": text}}
		if n := p.bytes("p", 100, 10, 1e6); p.err == nil && (n < 10 || n > 1e6) {
			t.Errorf("%q is %d bytes", text, n)
		}
		p.err = nil
		if n := p.number("p", 1, 0, 9); p.err == nil && (n < 0 || n > 9) {
			t.Errorf("%q is %d", text, n)
		}
		p.err = nil
		if d := p.duration("p", 1, 1); p.err == nil && d < 1 {
			t.Errorf("%q is %v", text, d)
		}
	})
}
