package history

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
)

// lockHistory returns n operations of a fenced lock as Recorder writes them:
// clients take turns to acquire, write and release, each on its own key.
func lockHistory(n, clients int) []byte {
	var b []byte
	var index, time, token int64
	put := func(e Event) {
		e.Index, e.Time = index, time
		index++
		time += 1000 + index%777
		b, _ = appendEvent(b, &e)
	}
	put(Event{Process: Harness, Type: Info, F: Run, Value: []byte(`{"scenario":"bench"}`)})
	for i := 0; i < n; {
		for c := 0; c < clients && i < n; c++ {
			p, key := strconv.Itoa(c), "lock-"+strconv.Itoa(c%10)
			token++
			t := token
			value := []byte(strconv.Itoa(i % 1000))
			for _, f := range []string{Acquire, Write, Release} {
				if i++; i > n {
					break
				}
				call := Event{Process: p, Type: Invoke, F: f, Key: key}
				ret := Event{Process: p, Type: OK, F: f, Key: key}
				switch f {
				case Acquire:
					ret.Token, ret.TTL, ret.Until = &t, 200e6, time+200e6
				case Write:
					call.Token, call.Value = &t, value
				}
				if i%100 == 0 {
					ret.Type, ret.Error = Info, "i/o timeout"
				}
				put(call)
				put(ret)
			}
		}
	}
	return b
}

func BenchmarkDecode(b *testing.B) {
	const ops = 200_000
	data := lockHistory(ops, 50)
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = z.Write(data)
	_ = z.Close()
	for _, c := range []struct {
		name string
		data []byte
	}{{"plain", data}, {"gzip", packed.Bytes()}} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				h, err := Decode(bytes.NewReader(c.data), ReadOptions{Size: int64(len(c.data))})
				if err != nil || len(h.Ops) != ops {
					b.Fatal(len(h.Ops), err)
				}
			}
			b.ReportMetric(float64(b.N)*ops/b.Elapsed().Seconds(), "op/s")
		})
	}
}

// BenchmarkParse is decoding without pairing, on one core.
func BenchmarkParse(b *testing.B) {
	data := lockHistory(200_000, 50)
	for _, slow := range []bool{false, true} {
		b.Run(fmt.Sprintf("slow=%v", slow), func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				d := jsonlDecoder{lines: newLines(&blocks{r: bytes.NewReader(data), max: 1 << 20}), slow: slow}
				var r record
				for {
					if err := d.next(&r); err == io.EOF {
						break
					} else if err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}

func BenchmarkRecord(b *testing.B) {
	for _, writers := range []int{1, 20} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			r, err := Create(filepath.Join(b.TempDir(), "history.jsonl"))
			if err != nil {
				b.Fatal(err)
			}
			token := int64(17)
			b.ReportAllocs()
			b.SetParallelism(max(1, writers/runtime.GOMAXPROCS(0)))
			e := Event{Process: "A", Type: OK, F: Acquire, Key: "lock-1", Token: &token, TTL: 200e6}
			if writers == 1 {
				for b.Loop() {
					r.Record(e)
				}
			} else {
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						r.Record(e)
					}
				})
			}
			if err := r.Close(); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
		})
	}
}

// BenchmarkDecodeOpen is a hostile history: nothing is ever answered, and no process
// occurs twice.
func BenchmarkDecodeOpen(b *testing.B) {
	const ops = 1_000_000
	var data []byte
	for i := range int64(ops) {
		e := Event{Index: i, Time: i, Process: "p" + strconv.FormatInt(i, 10), Type: Invoke, F: Acquire, Key: "k"}
		data, _ = appendEvent(data, &e)
	}
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		h, err := Decode(bytes.NewReader(data), ReadOptions{Size: int64(len(data))})
		if err != nil || len(h.Ops) != ops {
			b.Fatal(len(h.Ops), err)
		}
	}
}
