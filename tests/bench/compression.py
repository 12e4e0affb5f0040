"""Compression: bytes a sample and samples a CPU second, on recordings, beside what they are compared to.

The goals are those of the project. Sizes are lossless to the nanosecond and the bit: every chunk that is counted has
been decoded and compared. Raw is 16 bytes a sample.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple

import numpy as np

from bench import _compression_data as data
from bench._compression_data import MS_NS, S_NS, Timed
from fleetpulse.compression import (
    Column,
    chunk_sizes,
    decode_chunk,
    encode_chunk,
    gorilla_decode,
    gorilla_decode_many,
    gorilla_encode,
    gorilla_encode_many,
)
from fleetpulse.compression._identities import forget_identities
from fleetpulse.compression._values import xor_column_bits
from fleetpulse.ingest._recorded import RecordedSpan
from support.go_program import go_program
from support.watched import MissingError

RAW_BYTES = 16
DAY_S = 86_400
BATCH = 120
ROUNDS = 7
ROUND_S = 0.1
XORGOLDEN = Path(__file__).parents[1] / "tools" / "xorgolden"


class Row(NamedTuple):
    """A line of the last table. reached and goal as they are printed; good: whether the one meets the other."""

    what: str
    reached: str
    goal: str
    good: bool


def run() -> None:
    rows: list[Row] = []
    for part in (hipstershop, cloudwatch, floats, host, gorilla_speed, group_speed):
        rows += part()
    print(f"\n  {'':56} {'reached':>12} {'goal':>12}")
    for row in rows:
        print(f"{'' if row.good else '!':1} {row.what:56} {row.reached:>12} {row.goal:>12}")


# Sizes.


class Size(NamedTuple):
    samples: int
    series: int
    time_columns: int
    ours: float
    """Bytes a sample without the identities of series."""
    identities: float
    gorilla_ms: float
    gorilla_ns: float


def measure(spans: Sequence[RecordedSpan], span_s: int) -> Size:
    """Bytes a sample of the chunks of these columns, each read back; Gorilla's of each column by itself."""
    samples = series = time_columns = 0
    ours = identities = in_ms = in_ns = 0.0
    for span in spans:
        raw = encode_chunk(span.node.cluster, span.node.node, span.span_start_ns, span_s * S_NS, span.columns)
        compare(span.columns, raw)
        sizes = chunk_sizes(raw)
        ours += len(raw) - sizes.identities / 8
        identities += sizes.identities / 8
        series += len(span.columns)
        time_columns += len({column.times_ns.tobytes() for column in span.columns})
        for column in span.columns:
            values = column.values.astype(np.float64)
            samples += len(values)
            in_ms += len(gorilla_encode(column.times_ns // MS_NS, values))
            in_ns += len(gorilla_encode(column.times_ns, values))
    return Size(samples, series, time_columns, *(size / samples for size in (ours, identities, in_ms, in_ns)))


def compare(columns: Sequence[Column], raw: bytes) -> None:
    """Every label, time and bit of the columns is in the chunk, and nothing else."""

    def contents(every: Sequence[Column]) -> list[Any]:
        return sorted(
            (sorted(one.labels.items()), one.times_ns.tobytes(), one.values.dtype.kind, one.values.tobytes())
            for one in every
        )

    assert contents(columns) == contents(decode_chunk(raw).columns), "a chunk holds something else than went in"


def hipstershop() -> Iterator[Row]:
    span_s = 900
    spans = data.capture(data.HIPSTERSHOP, span_s)
    if not spans:
        print("hipstershop: left out, the recording is not there")
        return
    size = measure(spans, span_s)
    print(
        f"hipstershop, chunks of {span_s // 60} min: {size.samples:,} samples of {size.series:,} series with "
        f"{size.time_columns} time columns in {len(spans)} chunks\n"
        f"  Gorilla a series, ms {size.gorilla_ms:.2f}, ns {size.gorilla_ns:.2f}; ours in ns {size.ours:.2f}, and "
        f"{size.identities:.2f} for the identities of series, which Gorilla's chunks do not hold"
    )
    yield row_at_most("hipstershop, lossless ns, bytes a sample", size.ours, 1.1)


def host() -> Iterator[Row]:
    span_s = 600
    spans = data.capture(data.HOST, span_s)
    if not spans:
        print("host metrics: left out, the recording is not there")
        return
    size = measure(spans, span_s)
    print(
        f"host metrics every 5 s, chunks of {span_s // 60} min: {size.samples:,} samples of {size.series:,} series in "
        f"{len(spans)} chunks\n"
        f"  Gorilla a series, ms {size.gorilla_ms:.2f}, ns {size.gorilla_ns:.2f}; ours in ns {size.ours:.2f}, and "
        f"{size.identities:.2f} for the identities"
    )
    yield row_at_most("host metrics at 5 s, lossless ns, bytes a sample", size.ours, 0.45)


def cloudwatch() -> Iterator[Row]:
    """Files of few series, a row every five minutes: chunks of a day, so that they hold some samples."""
    files = [*data.cloudwatch(), *data.bitbrains()]
    if not files:
        print("NAB and bitbrains: left out, the recordings are not there")
        return
    print(
        "NAB's CloudWatch and bitbrains, chunks of a day, whole with header\n"
        f"  {'':40} {'Gorilla':>8} {'ours':>6} below"
    )
    least = 100.0
    for file in files:
        samples = len(file.times_ns) * len(file.values)
        ours = sum(len(raw) for raw in _chunks_of(file, DAY_S * S_NS)) / samples
        batches = data.batches_of([file], BATCH)
        in_ms = sum(len(gorilla_encode(*batch)) for batch in batches) / (BATCH * len(batches))
        below = 100 * (1 - ours / RAW_BYTES)
        least = min(least, below)
        print(f"  {file.name:40} {in_ms:8.2f} {ours:6.2f} {below:4.0f} %")
    yield row_at_least("NAB and bitbrains, % below raw, least of all files", least, 70)


def _chunks_of(file: Timed, span_ns: int) -> Iterator[bytes]:
    spans = file.times_ns // span_ns
    for span in np.unique(spans):
        of_span = spans == span
        times = file.times_ns[of_span]
        columns = [Column({"column": str(i)}, times, values[of_span]) for i, values in enumerate(file.values)]
        raw = encode_chunk("", file.name, int(span) * span_ns, span_ns, columns)
        compare(columns, raw)
        yield raw


def floats() -> Iterator[Row]:
    columns = data.float_columns()
    if not columns:
        print("floats: left out, the columns are not there")
        return
    pcodec = _pcodec()
    print(f"values of the columns of floats/samples, bytes\n  {'':40} {'XOR':>8} {'ours':>8} {'pcodec':>8}")
    totals = np.zeros(3)
    larger = []
    for name, values in columns:
        columns_of_one = [Column({}, np.arange(len(values), dtype=np.int64), values)]
        raw = encode_chunk("", "", 0, 0, columns_of_one)
        compare(columns_of_one, raw)
        sizes = np.array([xor_column_bits(values.view(np.uint64)) / 8, chunk_sizes(raw).values / 8, pcodec(values)])
        totals += sizes
        if sizes[1] >= sizes[0]:
            larger.append(name)
        print(f"  {name:40} {sizes[0]:8.0f} {sizes[1]:8.0f} {sizes[2]:8.0f}")
    print(f"  {'all':40} {totals[0]:8.0f} {totals[1]:8.0f} {totals[2]:8.0f}")
    yield Row("floats, columns not smaller than XOR", ", ".join(larger) or "0", "0", not larger)
    if np.isfinite(totals[2]):
        yield row_at_most("floats, total beside pcodec's", totals[1] / totals[2], 1.15)


def _pcodec() -> Callable[[Any], float]:
    try:
        from pcodec import ChunkConfig, standalone
    except ImportError:
        print("pcodec is not installed, so there is nothing strong to compare with: pip install pcodec")
        return lambda values: float("nan")
    return lambda values: float(len(standalone.simple_compress(values, ChunkConfig())))


# Speed.


def gorilla_speed() -> Iterator[Row]:
    """Chunks of 120 samples, as Prometheus cuts them, of the same recordings for both sides."""
    batches = data.batches_of([*data.cloudwatch(), *data.bitbrains()], BATCH)
    if not batches:
        print("speed of XOR chunks: left out, the recordings are not there")
        return
    times, values = (np.concatenate(parts) for parts in zip(*batches, strict=True))
    starts = np.arange(len(batches) + 1) * BATCH
    chunks = gorilla_encode_many(times, values, starts)
    assert chunks == [gorilla_encode(*batch) for batch in batches]
    encode = len(times) / cpu_s(lambda: gorilla_encode_many(times, values, starts)) / 1e6
    decode = len(times) / cpu_s(lambda: gorilla_decode_many(chunks)) / 1e6
    encode_each = len(times) / cpu_s(lambda: [gorilla_encode(*batch) for batch in batches]) / 1e6
    decode_each = len(times) / cpu_s(lambda: [gorilla_decode(chunk) for chunk in chunks]) / 1e6
    print(
        f"XOR chunks of {BATCH} samples of NAB and bitbrains, {len(times):,} samples, million a CPU second\n"
        f"  ours, all series at once: encode {encode:.0f}, decode {decode:.0f}; "
        f"a call for each chunk: encode {encode_each:.0f}, decode {decode_each:.0f}"
    )
    go_encode, go_decode = 0.0, 0.0
    try:
        theirs = prometheus_speed(batches)
    except MissingError as missing:
        print(f"  Prometheus' own: left out, {missing}")
    else:
        assert theirs["bytes"] == sum(map(len, chunks)), "the library writes other chunks"
        go_encode, go_decode = theirs["encode_per_s"] / 1e6, theirs["decode_per_s"] / 1e6
        print(f"  Prometheus' appender {go_encode:.0f}, iterator {go_decode:.0f}, in Go, on the same samples")
    yield row_at_least("XOR chunks, encode, million samples a CPU second", encode, max(30.0, go_encode))
    yield row_at_least("XOR chunks, decode, million samples a CPU second", decode, max(60.0, go_decode))


def prometheus_speed(batches: Sequence[tuple[Any, Any]]) -> dict[str, float]:
    """What the Go program prints; MissingError without Go."""
    program = go_program(XORGOLDEN, "xorgolden")
    stream = b"".join(np.int64(len(times)).tobytes() + times.tobytes() + values.tobytes() for times, values in batches)
    environment = {**os.environ, "GOMAXPROCS": "1"}
    done = subprocess.run([str(program), "speed"], input=stream, env=environment, capture_output=True, check=True)
    measured: dict[str, float] = json.loads(done.stdout)
    return measured


def group_speed() -> Iterator[Row]:
    """Whole chunks with their identities, of the recording whose chunks are full: 120 scrapes."""
    for name, path, span_s, goals in (
        ("host metrics", data.HOST, 600, True),
        ("hipstershop", data.HIPSTERSHOP, 900, False),
    ):
        spans = data.capture(path, span_s)
        if not spans:
            print(f"speed of group chunks, {name}: left out, the recording is not there")
            continue
        samples = sum(len(column.values) for span in spans for column in span.columns)
        chunks = [_encoded(span, span_s) for span in spans]
        encode = samples / cpu_s(lambda spans=spans, span_s=span_s: [_encoded(span, span_s) for span in spans]) / 1e6
        decode = samples / cpu_s(lambda chunks=chunks: [decode_chunk(raw) for raw in chunks]) / 1e6
        new_encode = samples / cpu_s(
            lambda spans=spans, span_s=span_s: [_new(_encoded, span, span_s) for span in spans]
        )
        new_decode = samples / cpu_s(lambda chunks=chunks: [_new(decode_chunk, raw) for raw in chunks])
        series = sum(len(span.columns) for span in spans)
        print(
            f"group chunks of {name}, {samples / series:.0f} samples a series, {series / len(spans):.0f} a chunk,\n"
            f"  million samples a CPU second: encode {encode:.1f}, decode {decode:.1f}; "
            f"in a process that has not seen these series yet {new_encode / 1e6:.1f}, {new_decode / 1e6:.1f}"
        )
        if goals:
            yield row_at_least("group chunks, encode, million samples a CPU second", encode, 15)
            yield row_at_least("group chunks, decode, million samples a CPU second", decode, 60)


def _new(work: Callable[..., object], *arguments: object) -> object:
    forget_identities()
    return work(*arguments)


def _encoded(span: RecordedSpan, span_s: int) -> bytes:
    return encode_chunk(span.node.cluster, span.node.node, span.span_start_ns, span_s * S_NS, span.columns)


def cpu_s(work: Callable[[], object]) -> float:
    """Least CPU time of a call, of some rounds of at least a tenth of a second: as the Go program measures."""
    work()
    least = float("inf")
    for _ in range(ROUNDS):
        calls, begin = 0, process_time()
        while process_time() - begin < ROUND_S:
            work()
            calls += 1
        least = min(least, (process_time() - begin) / calls)
    return least


def row_at_most(what: str, reached: float, goal: float) -> Row:
    return Row(what, f"{reached:.2f}", f"<= {goal:.2f}", reached <= goal)


def row_at_least(what: str, reached: float, goal: float) -> Row:
    return Row(what, f"{reached:.1f}", f">= {goal:.0f}", reached >= goal)
