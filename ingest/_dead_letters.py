"""Dead letters as records of their topic: how one is laid out, read, and sent to the source topic again.

The page is TOPICS.md. A letter is named by its place in its topic: `17`, or `2:17` outside partition 0.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

KEPT_BYTES_MAX = 65_536
"""Of what could not be read, so much is kept in its letter."""
FIRST_BYTES = 64
RESUBMITTED = "fleetpulse-resubmitted"
"""Header of a record that is a letter sent again: one for every time, oldest first. Its value is a Round as JSON. The
worker passes it on, so that a letter that comes back has it too."""

Headers = Sequence[tuple[str, bytes]]


class Place(NamedTuple):
    """Where a letter stands in the dead-letter topic."""

    partition: int
    offset: int

    def __str__(self) -> str:
        return str(self.offset) if self.partition == 0 else f"{self.partition}:{self.offset}"

    @classmethod
    def parse(cls, text: str) -> Place:
        """Raises ValueError."""
        partition, colon, offset = text.rpartition(":")
        if colon and not partition:
            raise ValueError(text)
        place = cls(int(partition or "0"), int(offset))
        if min(place) < 0:
            raise ValueError(text)
        return place


class Round(NamedTuple):
    """One time that a letter was sent again: which letter, and what it had been."""

    letter: str
    topic: str
    partition: int
    offset: int
    reason: str


@dataclass(frozen=True)
class Letter:
    """What is known of one letter without its bytes.

    topic, partition, offset: the record that could not be read, or of which a part could not. time_ms: that record's
    timestamp. size_bytes: of what was refused; kept_bytes: of it in the letter; first: at most FIRST_BYTES of them.
    rounds: how often it has been sent again before it failed this time.
    """

    place: Place
    time_ms: int
    topic: str
    partition: int
    offset: int
    reason: str
    detail: str
    size_bytes: int
    kept_bytes: int
    first: bytes
    rounds: tuple[Round, ...]

    @property
    def is_whole(self) -> bool:
        return self.kept_bytes == self.size_bytes

    @property
    def sort_key(self) -> tuple[int, Place]:
        return (self.time_ms, self.place)


def letter_value(raw: bytes) -> bytes:
    return raw[:KEPT_BYTES_MAX]


def letter_headers(
    topic: str, partition: int, offset: int, reason: str, detail: str, size_bytes: int, came_with: Headers
) -> list[tuple[str, bytes]]:
    """came_with: headers of the record that was refused, of which those of earlier rounds go on."""
    return [
        ("topic", topic.encode()),
        ("partition", str(partition).encode()),
        ("offset", str(offset).encode()),
        ("reason", reason.encode()),
        ("detail", detail.encode()),
        ("bytes", str(size_bytes).encode()),
        *rounds_of(came_with),
    ]


def rounds_of(headers: Iterable[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
    """Those of a record's headers that tell that it was sent again."""
    return [header for header in headers if header[0] == RESUBMITTED]


def round_headers(letter: Letter) -> list[tuple[str, bytes]]:
    """Headers of the record that this letter becomes when it is sent again."""
    rounds = (*letter.rounds, Round(str(letter.place), letter.topic, letter.partition, letter.offset, letter.reason))
    return [(RESUBMITTED, json.dumps(each._asdict()).encode()) for each in rounds]


def read_letter(record: Any) -> Letter | None:
    """A letter from a record as kafka-python returns it; None when it is none."""
    headers = dict(record.headers)
    value = record.value or b""
    try:
        return Letter(
            place=Place(record.partition, record.offset),
            time_ms=record.timestamp,
            topic=headers["topic"].decode(),
            partition=int(headers["partition"]),
            offset=int(headers["offset"]),
            reason=headers["reason"].decode(),
            detail=headers["detail"].decode(),
            size_bytes=int(headers["bytes"]),
            kept_bytes=len(value),
            first=value[:FIRST_BYTES],
            rounds=tuple(_rounds(record.headers)),
        )
    except (KeyError, ValueError):
        return None


def _rounds(headers: Headers) -> Iterator[Round]:
    """What another program has put under our header's name is passed over."""
    for _, raw in rounds_of(headers):
        with contextlib.suppress(ValueError, TypeError):
            yield Round(**json.loads(raw))


def letter_object(letter: Letter) -> dict[str, Any]:
    """As `fleetpulse deadletter --json` prints it."""
    return {
        "letter": str(letter.place),
        "time_ms": letter.time_ms,
        "topic": letter.topic,
        "partition": letter.partition,
        "offset": letter.offset,
        "reason": letter.reason,
        "detail": letter.detail,
        "size_bytes": letter.size_bytes,
        "kept_bytes": letter.kept_bytes,
        "first_bytes": letter.first.hex(),
        "resubmitted": [each._asdict() for each in letter.rounds],
    }


def hex_and_text(raw: bytes, count: int) -> tuple[str, str]:
    """The first `count` bytes in hexadecimal, and as the text they may be: what is no printable ASCII is a dot."""
    return raw[:count].hex(" "), "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in raw[:count])
