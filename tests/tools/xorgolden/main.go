// xorgolden prints, as JSON, what Prometheus' XOR chunk holds after given samples have been appended to it.
//
//	go run . > ../../data/compression/xor_golden.json
//
// With the argument "speed" it measures the library's appender and iterator instead, on series from standard input.
//
// Every chunk is read back with Prometheus' iterator before it is printed. Values are the hexadecimal bits of a
// float64, because JSON has no NaN. A case with "reopened" was written by several appenders, each taken from the chunk
// as the one before left it: its bytes may differ from those of a single appender, and must still be read.
package main

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"runtime/debug"

	"github.com/prometheus/prometheus/tsdb/chunkenc"
)

type golden struct {
	Name     string   `json:"name"`
	Times    []int64  `json:"times_ms"`
	Values   []string `json:"values"`
	Chunk    string   `json:"chunk"`
	Reopened bool     `json:"reopened,omitempty"`
}

const (
	staleMarker = 0x7ff0000000000002
	quietNaN    = 0x7ff8000000000001
	otherNaN    = 0xfff4deadbeef1234
	negZero     = 1 << 63
)

func bits(values ...float64) []uint64 {
	out := make([]uint64, len(values))
	for i, v := range values {
		out[i] = math.Float64bits(v)
	}
	return out
}

func every(start, step int64, n int) []int64 {
	out := make([]int64, n)
	for i := range out {
		out[i] = start + step*int64(i)
	}
	return out
}

// Times whose deltas of deltas are the given ones.
func withDods(dods ...int64) []int64 {
	out := []int64{1_600_000_000_000, 1_600_000_015_000}
	delta := int64(15_000)
	for _, dod := range dods {
		delta += dod
		out = append(out, out[len(out)-1]+delta)
	}
	return out
}

// splitmix64: the same numbers whatever the Go version.
type random uint64

func (r *random) next() uint64 {
	*r += 0x9e3779b97f4a7c15
	z := uint64(*r)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

func (r *random) below(n int64) int64 { return int64(r.next() % uint64(n)) }

func encode(name string, times []int64, values []uint64, reopenEvery int) golden {
	if len(times) != len(values) {
		panic(name + ": lengths differ")
	}
	chunk := chunkenc.NewXORChunk()
	app, err := chunk.Appender()
	if err != nil {
		panic(err)
	}
	for i := range times {
		if reopenEvery > 0 && i > 0 && i%reopenEvery == 0 {
			if app, err = chunk.Appender(); err != nil {
				panic(err)
			}
		}
		app.Append(0, times[i], math.Float64frombits(values[i]))
	}
	it := chunk.Iterator(nil)
	for i := range times {
		if it.Next() != chunkenc.ValFloat {
			panic(fmt.Sprintf("%s: sample %d is not read back", name, i))
		}
		if t, v := it.At(); t != times[i] || math.Float64bits(v) != values[i] {
			panic(fmt.Sprintf("%s: sample %d is read back as (%d, %x)", name, i, t, math.Float64bits(v)))
		}
	}
	if it.Next() != chunkenc.ValNone || it.Err() != nil {
		panic(name + ": more samples than were appended")
	}
	out := golden{Name: name, Times: append([]int64{}, times...), Values: []string{}, Reopened: reopenEvery > 0}
	for _, v := range values {
		out.Values = append(out.Values, fmt.Sprintf("%016x", v))
	}
	out.Chunk = hex.EncodeToString(chunk.Bytes())
	return out
}

func cases() []golden {
	const lo, hi = math.MinInt64, math.MaxInt64
	now := int64(1_660_000_000_123)
	specials := append(bits(0, math.Inf(1), math.Inf(-1), math.MaxFloat64, -math.MaxFloat64,
		math.SmallestNonzeroFloat64, -math.SmallestNonzeroFloat64, 0x1p-1022, 1, -1, math.Pi),
		staleMarker, quietNaN, otherNaN, negZero, 0, negZero, 0x000fffffffffffff, staleMarker, staleMarker)

	out := []golden{
		encode("no sample", nil, nil, 0),
		encode("one sample", []int64{now}, bits(42.5), 0),
		encode("one sample before the epoch", []int64{-1}, bits(-0.5), 0),
		encode("one sample, earliest time, stale marker", []int64{lo}, []uint64{staleMarker}, 0),
		encode("one sample, latest time, negative zero", []int64{hi}, []uint64{negZero}, 0),
		encode("two samples", []int64{now, now + 15_000}, bits(1, 2), 0),
		encode("two samples at one time", []int64{now, now}, bits(1, 1), 0),
		encode("two samples, the second earlier", []int64{now, now - 1}, bits(1, 1.5), 0),
		encode("constant", every(now, 10_000, 120), make([]uint64, 120), 0),
		encode("special values", every(now, 10_000, len(specials)), specials, 0),
		encode("int64 extremes", []int64{lo, hi, lo, 0, hi, hi, lo, lo, -1, 1}, make([]uint64, 10), 0),
		encode("int64 extremes, other way", []int64{hi, lo, hi, 0, lo, 7, hi - 1}, bits(1, 2, 3, 4, 5, 6, 7), 0),
		encode("backwards", every(now, -60_000, 30), make([]uint64, 30), 0),
		encode("reopened after every sample", every(now, 15_000, 6), bits(1, 2, 2, 3.25, 1e300, 7), 1),
		encode("reopened among equal values", every(now, 15_000, 8), bits(5, 5, 5, 6, 5, 1e-300, 5, 5), 2),
		encode("reopened after four samples", every(now, 15_001, 12), bits(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11), 4),
	}

	// Both ends of every bucket of the delta of deltas, and the first values outside.
	var edges []int64
	for _, n := range []uint{13, 16, 19} {
		top := int64(1) << n
		edges = append(edges, top-1, top, top+1, -top, -top+1, -top+2, -top-1)
	}
	edges = append(edges, 1, -1, 0, 0, 1<<40, -(1 << 40), 1<<62, -(1 << 62))
	times := withDods(edges...)
	out = append(out, encode("edges of the delta-of-delta buckets", times, make([]uint64, len(times)), 0))

	// Windows: every number of leading zeros, every number of trailing ones, and their reuse.
	var windows []uint64
	value := uint64(0)
	for i := range uint(64) {
		value ^= 1 << i
		windows = append(windows, value)
		value ^= ^uint64(0) >> i
		windows = append(windows, value)
		value ^= 0x18 << (i / 2)
		windows = append(windows, value)
	}
	out = append(out, encode("windows", every(now, 1_000, len(windows)), windows, 0))

	for seed := range 24 {
		r := random(seed)
		n := 1 + int(r.below(100))
		t, step, v := now+r.below(1<<40), 1+r.below(60_000), float64(r.below(1<<30))
		times, values := []int64{}, []uint64{}
		for range n {
			switch seed % 4 {
			case 0: // a counter, scraped with a little jitter
				t += step + r.below(7) - 3
				v += float64(r.below(1000))
			case 1: // a gauge of two decimals, scrapes missing
				t += step * (1 + r.below(8)/7)
				v = float64(r.below(10_000)) / 100
			case 2: // any bits at increasing times
				t += r.below(1 << uint(r.below(45)))
				v = math.Float64frombits(r.next())
			case 3: // any bits at any time
				t = int64(r.next())
				v = math.Float64frombits(r.next() >> uint(r.below(64)))
			}
			times, values = append(times, t), append(values, math.Float64bits(v))
		}
		kind := []string{"counter", "gauge", "any bits", "any bits, any time"}[seed%4]
		out = append(out, encode(fmt.Sprintf("random %d: %s", seed, kind), times, values, 0))
	}
	return out
}

func libraryVersion() string {
	info, _ := debug.ReadBuildInfo()
	for _, dep := range info.Deps {
		if dep.Path == "github.com/prometheus/prometheus" {
			return dep.Version
		}
	}
	return "unknown"
}

func marshal(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(raw)
}

func main() {
	if len(os.Args) == 2 && os.Args[1] == "speed" {
		measureSpeed()
		return
	}
	madeBy := "tests/tools/xorgolden, with github.com/prometheus/prometheus " + libraryVersion()
	fmt.Printf("{\"made_by\": %s,\n\"cases\": [\n", marshal(madeBy))
	for i, c := range cases() {
		if i > 0 {
			fmt.Println(",")
		}
		fmt.Print(marshal(c))
	}
	fmt.Println("\n]}")
}
