package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"syscall"

	"github.com/prometheus/prometheus/tsdb/chunkenc"
)

// series are the samples of one chunk.
type series struct {
	times  []int64
	values []float64
}

// readSeries reads, until the end of the stream, per series a count and then so many times and so many values, all as
// little-endian 64-bit numbers.
func readSeries(in io.Reader) ([]series, error) {
	var all []series
	for {
		var n int64
		if err := binary.Read(in, binary.LittleEndian, &n); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		one := series{make([]int64, n), make([]float64, n)}
		if err := binary.Read(in, binary.LittleEndian, one.times); err != nil {
			return nil, err
		}
		if err := binary.Read(in, binary.LittleEndian, one.values); err != nil {
			return nil, err
		}
		all = append(all, one)
	}
}

// cpuSeconds is what this process has used so far, all its threads together.
func cpuSeconds() float64 {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		panic(err)
	}
	return float64(used.Utime.Nano()+used.Stime.Nano()) / 1e9
}

// best is the least CPU time of one call of work, of seven rounds of at least a tenth of a second.
func best(work func()) float64 {
	least := math.Inf(1)
	for range 7 {
		calls, begin := 0, cpuSeconds()
		for calls == 0 || cpuSeconds()-begin < 0.1 {
			work()
			calls++
		}
		least = min(least, (cpuSeconds()-begin)/float64(calls))
	}
	return least
}

// measureSpeed prints samples per CPU second of the library's appender and iterator on the series of standard input.
func measureSpeed() {
	all, err := readSeries(bufio.NewReader(os.Stdin))
	if err != nil {
		panic(err)
	}
	samples := 0
	chunks := make([]*chunkenc.XORChunk, len(all))
	for _, one := range all {
		samples += len(one.times)
	}
	size := 0
	encode := best(func() {
		size = 0
		for i, one := range all {
			chunk := chunkenc.NewXORChunk()
			app, err := chunk.Appender()
			if err != nil {
				panic(err)
			}
			for k, t := range one.times {
				app.Append(0, t, one.values[k])
			}
			chunks[i] = chunk
			size += len(chunk.Bytes())
		}
	})
	var it chunkenc.Iterator
	times, values := make([]int64, samples), make([]float64, samples)
	decode := best(func() {
		at := 0
		for _, chunk := range chunks {
			it = chunk.Iterator(it)
			for it.Next() == chunkenc.ValFloat {
				times[at], values[at] = it.At()
				at++
			}
		}
		if at != samples {
			panic("samples are missing")
		}
	})
	fmt.Printf("{\"samples\": %d, \"bytes\": %d, \"encode_per_s\": %.0f, \"decode_per_s\": %.0f}\n",
		samples, size, float64(samples)/encode, float64(samples)/decode)
}
