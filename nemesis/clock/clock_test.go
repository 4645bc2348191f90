package clock

import (
	"errors"
	"math"
	"math/big"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestRateTimesTimeRoundsDown(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := rapid.Int64Range(-int64(MaxJump), int64(MaxJump)).Draw(t, "d")
		f := toFixed(rapid.Float64Range(MinRate, 20).Draw(t, "rate"))
		want := new(big.Int).Mul(big.NewInt(d), big.NewInt(int64(f)))
		want.Rsh(want, 32) // of a negative number too, big.Int rounds down
		if got := f.times(d); got != want.Int64() {
			t.Fatalf("%d at rate %d/2^32: %d, want %d", d, f, got, want)
		}
	})
}

func TestRow(t *testing.T) {
	const s = int64(time.Second)
	for _, tt := range []struct {
		name string
		row  row
		at   int64
		want int64
	}{
		{"untouched", row{}, 7 * s, 7 * s},
		{"jumped", row{base: 5 * s, value: 15 * s, rate: one, active: 1}, 7 * s, 17 * s},
		{"slow", row{base: 5 * s, value: 5 * s, rate: one / 4, active: 1}, 9 * s, 6 * s},
		{"strobe, first period", row{base: 5 * s, value: 5 * s, rate: one, period: s, swing: 60 * s, active: 1}, 5*s + s/2, 5*s + s/2},
		{"strobe, second period", row{base: 5 * s, value: 5 * s, rate: one, period: s, swing: 60 * s, active: 1}, 6*s + s/2, 66*s + s/2},
		{"strobe, third period", row{base: 5 * s, value: 5 * s, rate: one, period: s, swing: 60 * s, active: 1}, 7*s + s/2, 7*s + s/2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.row.at(tt.at); got != tt.want {
				t.Errorf("shows %v, want %v", time.Duration(got), time.Duration(tt.want))
			}
		})
	}
}

func TestRowGoesOnFromWhatItShows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r row
		true0 := rapid.Int64Range(0, 1e15).Draw(t, "start")
		for range 5 {
			true0 += rapid.Int64Range(0, 1e12).Draw(t, "later")
			next := r.from(true0)
			if got, want := next.at(true0), r.at(true0); got != want {
				t.Fatalf("at the change %d, want %d", got, want)
			}
			next.rate = toFixed(rapid.Float64Range(MinRate, MaxRate).Draw(t, "rate"))
			r = next
		}
	})
}

// available is Available, tried once.
var available = sync.OnceValue(Available)

func newControl(t testing.TB) *Control {
	t.Helper()
	if err := available(); err != nil {
		t.Skip("clocks are unavailable: ", err)
	}
	c, err := New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func TestControlRefuses(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(*Control) error
		is   error
	}{
		{"a monotonic step back", func(c *Control) error { return c.Jump(0, -1) }, ErrBackwards},
		{"a monotonic step back of both", func(c *Control) error { return c.Jump(-time.Minute, -time.Minute) }, ErrBackwards},
		{"a jump that is too far", func(c *Control) error { return c.Jump(MaxJump+1, 0) }, nil},
		{"a time before 1970", func(c *Control) error {
			var err error
			for range 6 {
				err = errors.Join(err, c.Jump(-MaxJump, 0))
			}
			return err
		}, nil},
		{"a rate of 0", func(c *Control) error { return c.Rate(0, 1) }, nil},
		{"a negative rate", func(c *Control) error { return c.Rate(1, -1) }, nil},
		{"no number", func(c *Control) error { return c.Rate(math.NaN(), 1) }, nil},
		{"a strobe too fast", func(c *Control) error { return c.Strobe(time.Microsecond, time.Second) }, nil},
		{"a strobe by nothing", func(c *Control) error { return c.Strobe(time.Second, 0) }, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newControl(t)
			err := tt.do(c)
			if err == nil {
				t.Fatal("it is accepted")
			}
			if tt.is != nil && !errors.Is(err, tt.is) {
				t.Errorf("error %v, want %v", err, tt.is)
			}
			if c.page.seq%2 != 0 {
				t.Error("readers spin for ever")
			}
		})
	}
}

func TestResetKeepsWhatTheMonotonicClockGained(t *testing.T) {
	c := newControl(t)
	if err := c.Jump(time.Hour, time.Hour); err != nil {
		t.Fatal(err)
	}
	_, gained, err := c.Now()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Reset(); err != nil {
		t.Fatal(err)
	}
	wall, mono, err := c.Now()
	if err != nil {
		t.Fatal(err)
	}
	if off := time.Since(wall); off.Abs() > time.Minute {
		t.Errorf("after Reset the wall clock is %v off", off)
	}
	if mono < gained || mono > gained+time.Minute {
		t.Errorf("monotonic clock at %v before Reset, %v after", gained, mono)
	}
}

func TestCloseTwice(t *testing.T) {
	c := newControl(t)
	for range 2 {
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Jump(time.Second, 0); err == nil {
		t.Error("a closed control accepts a jump")
	}
}

func TestParse(t *testing.T) {
	for _, tt := range []struct {
		name    string
		params  map[string]string
		want    spec
		refused bool
	}{
		{"jump", map[string]string{"jump": "10s"}, spec{jump: 10 * time.Second, rate: 1, family: Wall}, false},
		{"jump back", map[string]string{"jump": "-60s"}, spec{jump: -time.Minute, rate: 1, family: Wall}, false},
		{"monotonic rate", map[string]string{"rate": "0.1", "family": "monotonic"}, spec{rate: .1, family: Monotonic}, false},
		{"jump and drift of both", map[string]string{"jump": "+1s", "rate": "2", "family": "both"}, spec{jump: time.Second, rate: 2, family: Both}, false},
		{"strobe", map[string]string{"strobe": "100ms, -5s"}, spec{rate: 1, period: 100 * time.Millisecond, swing: -5 * time.Second, family: Wall}, false},

		{"nothing", nil, spec{}, true},
		{"only a family", map[string]string{"family": "both"}, spec{}, true},
		{"unknown family", map[string]string{"jump": "1s", "family": "tai"}, spec{}, true},
		{"jump without unit", map[string]string{"jump": "10"}, spec{}, true},
		{"jump by 0", map[string]string{"jump": "0s"}, spec{}, true},
		{"monotonic jump back", map[string]string{"jump": "-1s", "family": "both"}, spec{}, true},
		{"monotonic strobe", map[string]string{"strobe": "100ms,1s", "family": "both"}, spec{}, true},
		{"strobe without distance", map[string]string{"strobe": "100ms"}, spec{}, true},
		{"strobe too slow", map[string]string{"strobe": "1h,1s"}, spec{}, true},
		{"true rate", map[string]string{"rate": "1"}, spec{}, true},
		{"no rate", map[string]string{"rate": "NaN"}, spec{}, true},
		{"negative rate", map[string]string{"rate": "-1"}, spec{}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parse(tt.params)
			if (err != nil) != tt.refused {
				t.Fatalf("error %v", err)
			}
			if err == nil && got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

// What parse accepts, a control accepts.
func FuzzParse(f *testing.F) {
	f.Add("10s", "1.1", "100ms,5s", "wall")
	f.Add("-60s", "", "", "")
	f.Add("1h", "0.5", "", "both")
	f.Fuzz(func(t *testing.T, jump, rate, strobe, family string) {
		params := map[string]string{}
		for k, v := range map[string]string{"jump": jump, "rate": rate, "strobe": strobe, "family": family} {
			if v != "" {
				params[k] = v
			}
		}
		s, err := parse(params)
		if err != nil {
			return
		}
		if err := s.apply(newControl(t)); err != nil {
			t.Errorf("parsed %+v, but: %v", s, err)
		}
	})
}
