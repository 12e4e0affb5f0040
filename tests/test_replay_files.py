"""Recordings are read whatever their framing and compression; one that cannot be says where and what to do."""

from __future__ import annotations

import gzip
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import zstandard
from google.protobuf import json_format
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from fleetpulse.ingest import _otlp_files
from fleetpulse.ingest._errors import UserError
from fleetpulse.ingest._otlp_files import read_requests


def request_of(node: str, values: range) -> ExportMetricsServiceRequest:
    request = ExportMetricsServiceRequest()
    resource_metrics = request.resource_metrics.add()
    resource_metrics.resource.attributes.add(key="host.name").value.string_value = node
    metric = resource_metrics.scope_metrics.add().metrics.add(name="m\nline", unit="1")
    for value in values:
        metric.gauge.data_points.add(time_unix_nano=10**18 + value, as_int=value)
    return request


REQUESTS = [request_of(f"node-{i}", range(i * 40, i * 40 + 40)) for i in range(3)]
PROTO = [request.SerializeToString() for request in REQUESTS]
JSON = [json_format.MessageToJson(request, indent=None).encode() for request in REQUESTS]
TRACES = b'{"resourceSpans": [{"resource": {}}]}\n'


def zstd(raw: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(raw)


def framed(messages: list[bytes]) -> bytes:
    return b"".join(len(message).to_bytes(4, "big") + message for message in messages)


LINES = b"".join(line + b"\n" for line in JSON)
SHAPES = {
    "JSON lines": LINES,
    "JSON lines, the last without a line feed": LINES.rstrip(b"\n"),
    "JSON lines, blank ones, carriage returns, a byte-order mark": b"\xef\xbb\xbf" + LINES.replace(b"\n", b"\r\n\n"),
    "JSON lines among traces and logs": TRACES + LINES + TRACES + b'{"resourceLogs": []}\n',
    "length-prefixed protobuf": framed(PROTO),
    "length-prefixed protobuf with an empty message": framed([PROTO[0], b"", *PROTO[1:]]),
    "zstd over length-prefixed protobuf": zstd(framed(PROTO)),
    "zstd frames cut anywhere": zstd(framed(PROTO)[:50]) + zstd(framed(PROTO)[50:51]) + zstd(framed(PROTO)[51:]),
    "zstd over JSON lines": zstd(LINES),
    "each protobuf message compressed": framed([zstd(message) for message in PROTO]),
    "each JSON message compressed": framed([zstd(message) for message in JSON]),
    "length-prefixed JSON": framed(JSON),
    "gzip over JSON lines": gzip.compress(LINES),
    "gzip members and padding": gzip.compress(framed(PROTO)[:99]) + gzip.compress(framed(PROTO)[99:]) + bytes(512),
}


def parsed(path: Path) -> list[ExportMetricsServiceRequest]:
    return [ExportMetricsServiceRequest.FromString(found.request) for found in read_requests(path)]


@pytest.fixture
def recording(tmp_path: Path) -> Iterator[Path]:
    return tmp_path / "recording"


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("read_bytes", [16_384, 7])
def test_every_shape_holds_the_same_requests(
    shape: str, read_bytes: int, recording: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_otlp_files, "_READ_BYTES", read_bytes)
    recording.write_bytes(SHAPES[shape])
    assert parsed(recording) == REQUESTS


@pytest.mark.parametrize(
    "content",
    [PROTO[1], zstd(PROTO[1]), json_format.MessageToJson(REQUESTS[1], indent=2).encode(), b"\n" + JSON[1]],
    ids=["bare protobuf", "bare protobuf in zstd", "JSON over several lines", "JSON behind an empty line"],
)
def test_a_file_of_one_request(content: bytes, recording: Path) -> None:
    recording.write_bytes(content)
    assert parsed(recording) == [REQUESTS[1]]


def test_positions_are_those_of_the_content(recording: Path) -> None:
    recording.write_bytes(zstd(framed(PROTO)))
    at = [found.at for found in read_requests(recording)]
    assert at == [0, len(framed(PROTO[:1])), len(framed(PROTO[:2]))]


TWO = len(framed(PROTO[:2]))
DAMAGED = {
    "empty": (b"", "is empty"),
    "text": (b"hello, world\n" * 9, "byte 0 .* no length"),
    "an executable": (b"\x7fELF" + bytes(99), "byte 0 .* no length"),
    "cut in a length": (framed(PROTO[:2]) + b"\0\0", f"byte {TWO} .*inside the length.*head -c {TWO} "),
    "cut in a message": (framed(PROTO)[:-1], f"byte {TWO} .*1 bytes before the end.*head -c {TWO} "),
    "cut in the first message": (framed(PROTO)[:20], "byte 0 .*copy the file again$"),
    "cut zstd": (zstd(framed(PROTO))[:-5], "inside compressed data"),
    "cut zstd after a frame": (
        zstd(framed(PROTO[:2])) + zstd(PROTO[2])[:-4],
        f"byte {TWO} .*zstd -dc .*head -c {TWO} ",
    ),
    "cut gzip": (gzip.compress(framed(PROTO))[:-9], "inside compressed data"),
    "damaged zstd": (zstd(LINES)[:30] + bytes(50), "damaged"),
    "a message's damaged zstd": (framed([PROTO[0], zstd(PROTO[1])[:30] + bytes(9)]), "damaged|cut off"),
    "a message's cut zstd": (framed([zstd(PROTO[0])[:-3]]), "cut off"),
    "JSON of another program": (b'{"level": "info"}\n', "byte 0 .*no metrics request"),
    "a damaged JSON line": (JSON[0] + b"\n" + JSON[1][:-9] + b"}\n", f"byte {len(JSON[0]) + 1 + len(JSON[1]) - 9} "),
    "a cut JSON line": (JSON[0] + b"\n" + JSON[1][:-9], f"byte {len(JSON[0]) + 1} .*head -c {len(JSON[0]) + 1} "),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_recording_is_one_line_with_the_place(damage: str, recording: Path) -> None:
    content, told = DAMAGED[damage]
    recording.write_bytes(content)
    with pytest.raises(UserError) as caught:
        parsed(recording)
    text = str(caught.value)
    assert "\n" not in text
    assert str(recording) in text
    assert re.search(told, text), text


def test_a_message_longer_than_is_held_is_refused(recording: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_otlp_files, "MESSAGE_BYTES_MAX", 500)
    monkeypatch.setattr(_otlp_files, "_READ_BYTES", 64)
    for content in (framed([bytes(501)]), PROTO[0] * 3, b"{" + b" " * 999, LINES):
        recording.write_bytes(content)
        with pytest.raises(UserError, match="byte 0 of its content"):
            parsed(recording)


@pytest.mark.parametrize(
    ("refusal", "told"),
    [
        (FileNotFoundError(2, "No such file"), "is not there"),
        (PermissionError(13, "Permission denied"), "may not be read"),
        (IsADirectoryError(21, "Is a directory"), "is a directory"),
        (OSError(5, "Input/output error"), "Input/output error"),
    ],
)
def test_a_file_that_cannot_be_opened(
    refusal: OSError, told: str, recording: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise refusal

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(UserError, match=told):
        parsed(recording)


@settings(max_examples=60, deadline=None)
@given(shape=st.sampled_from(["length-prefixed protobuf", "JSON lines", "zstd frames cut anywhere"]), data=st.data())
def test_a_recording_cut_anywhere_gives_what_came_before_and_an_error(shape: str, data: st.DataObject) -> None:
    whole = SHAPES[shape]
    content = whole[: data.draw(st.integers(1, len(whole) - 1))]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "recording"
        path.write_bytes(content)
        got = []
        try:
            for found in read_requests(path):
                got.append(ExportMetricsServiceRequest.FromString(found.request))
        except UserError as error:
            keep = re.search(r"head -c (\d+)", str(error))
            if keep is not None and shape != "zstd frames cut anywhere":
                # The remedy that the error names gives all the whole messages.
                path.write_bytes(content[: int(keep[1])])
                assert parsed(path) == got
        else:
            # Only a cut between two messages, or of the last line feed, goes unnoticed.
            assert content.endswith((b"}\n", b"}")) or len(got) < len(REQUESTS)
        assert got == REQUESTS[: len(got)]
