package nemesis_test

import (
	"errors"
	"testing"

	"github.com/lockcheck/lockcheck/nemesis"
)

func TestMakeRefusesParametersThatAKindDoesNotHave(t *testing.T) {
	wrong := errors.New("depth: want a number")
	plain := nemesis.Kind{Name: "plain", New: func(map[string]string) (nemesis.Fault, error) { return nil, nil }}
	deep := nemesis.Kind{
		Name: "deep", Params: map[string]string{"depth": "how deep", "breadth": "how broad"},
		New: func(with map[string]string) (nemesis.Fault, error) {
			if with["depth"] == "much" {
				return nil, wrong
			}
			return nil, nil
		},
	}
	for _, tt := range []struct {
		kind nemesis.Kind
		with map[string]string
		want string // "" for none
	}{
		{plain, nil, ""},
		{plain, map[string]string{"depth": "3"}, `fault plain has no parameter "depth", nor any other`},
		{deep, map[string]string{"depth": "3"}, ""},
		{deep, map[string]string{"depth": "3", "dept": "3"}, `fault deep has no parameter "dept": it has breadth, depth`},
		{deep, map[string]string{"depth": "much"}, wrong.Error()},
	} {
		_, err := tt.kind.Make(tt.with)
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%s with %v: %q, want %q", tt.kind.Name, tt.with, got, tt.want)
		}
	}
}

func TestEveryKindRefusesParametersThatItDoesNotHave(t *testing.T) {
	for _, name := range nemesis.Names() {
		k, err := nemesis.Find(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := k.Make(map[string]string{"no such parameter": "1"}); err == nil {
			t.Errorf("%s accepts any parameter", name)
		}
	}
}
