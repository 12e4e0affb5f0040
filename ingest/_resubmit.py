"""Which dead letters a command is about, and sending them to the source topic again."""

from __future__ import annotations

import heapq
import zlib
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fleetpulse.ingest._dead_letters import KEPT_BYTES_MAX, Letter, Place, read_letter, round_headers
from fleetpulse.ingest._errors import UserError
from fleetpulse.ingest._otlp_json import looks_like_json
from fleetpulse.ingest._settings import Settings
from fleetpulse.ingest._topic_reader import TopicReader, open_topic, read_topic

if TYPE_CHECKING:
    from fleetpulse.ingest._produce import RecordProducer


@dataclass(frozen=True)
class Choice:
    """Which letters are meant. places, reasons: any when empty. limit: of the newest so many."""

    since_ms: int = 0
    reasons: Collection[str] = ()
    places: Collection[Place] = ()
    limit: int = 1_000

    def takes(self, letter: Letter) -> bool:
        return (
            letter.time_ms >= self.since_ms
            and (not self.reasons or letter.reason in self.reasons)
            and (not self.places or letter.place in self.places)
        )


@dataclass
class Letters:
    """chosen: in the order of their records' times, the newest last. left_out: chosen, but more than the limit.

    failed_again: letters that were sent again -> the letter that came of it. unreadable: records that are no letters.
    """

    chosen: list[Letter] = field(default_factory=list)
    left_out: int = 0
    failed_again: dict[str, Place] = field(default_factory=dict)
    unreadable: int = 0


def find_letters(settings: Settings, choice: Choice) -> Letters:
    """Reads the dead-letter topic from choice.since_ms on. Memory: the limit's letters, and 8 bytes for every letter.

    A letter that a killed worker has written twice is one. Raises UserError.
    """
    found = Letters()
    newest: list[tuple[tuple[int, Place], Letter]] = []
    seen: set[int] = set()
    with read_topic(settings, settings.topic("deadletter"), choice.since_ms) as reader:
        for record in reader.records(follow=False):
            if record is None:
                continue
            letter = read_letter(record)
            if letter is None:
                found.unreadable += 1
                continue
            origin = (letter.topic, letter.partition, letter.offset)
            what = hash((*origin, letter.reason, letter.size_bytes, zlib.crc32(record.value or b"")))
            if what in seen:
                continue
            seen.add(what)
            for each in letter.rounds:
                found.failed_again[each.letter] = letter.place
            if not choice.takes(letter):
                continue
            if len(newest) < choice.limit:
                heapq.heappush(newest, (letter.sort_key, letter))
            else:
                found.left_out += 1
                heapq.heappushpop(newest, (letter.sort_key, letter))
    found.chosen = [letter for _, letter in sorted(newest)]
    return found


@dataclass(frozen=True)
class Step:
    """What is done with one letter. obstacle: why it is left where it is; None when it is sent."""

    letter: Letter
    obstacle: str | None


class LetterBytes:
    """Finds what a letter is about, whole: in the letter, or in the record it came from. Use as a context manager."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._readers: dict[str, TopicReader | None] = {}
        self._stack = ExitStack()

    def __enter__(self) -> LetterBytes:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def kept(self, place: Place) -> tuple[Letter, bytes] | None:
        """The letter and what it holds; None when it is not there, or no letter. Raises UserError without its topic."""
        topic = self._settings.topic("deadletter")
        if topic not in self._readers:
            self._readers[topic] = self._stack.enter_context(open_topic(self._settings, topic))
        reader = self._readers[topic]
        assert reader is not None, "it was opened, or an error was raised"
        record = reader.record_at(*place)
        if record is None:
            return None
        letter = read_letter(record)
        return None if letter is None else (letter, record.value or b"")

    def whole(self, letter: Letter) -> bytes | None:
        """All bytes of what was refused; None when they are nowhere any more."""
        kept = self.kept(letter.place)
        if kept is None or kept[0] != letter:
            return None
        if letter.is_whole:
            return kept[1]
        value = self._source(letter)
        # An offset says nothing once the topic was made anew, and what was refused may have been a part of the record.
        is_same = value is not None and len(value) == letter.size_bytes and value.startswith(kept[1])
        return value if is_same else None

    def _source(self, letter: Letter) -> bytes | None:
        if letter.topic not in self._readers:
            try:
                self._readers[letter.topic] = self._stack.enter_context(open_topic(self._settings, letter.topic))
            except UserError:
                self._readers[letter.topic] = None
        reader = self._readers[letter.topic]
        if reader is None:
            return None
        record = reader.record_at(letter.partition, letter.offset)
        value: bytes | None = None if record is None else record.value
        return value


def plan(settings: Settings, found: Letters, held: LetterBytes, *, again: bool) -> list[Step]:
    """What is to be done with each chosen letter. again: also send what has come back before."""
    return [Step(letter, _obstacle(settings, found, held, letter, again)) for letter in found.chosen]


def _obstacle(settings: Settings, found: Letters, held: LetterBytes, letter: Letter, again: bool) -> str | None:
    successor = found.failed_again.get(str(letter.place))
    if successor is not None:
        return f"sent before, and failed again as letter {successor}"
    if letter.rounds and not again:
        times = len(letter.rounds)
        return f"sent {'once' if times == 1 else f'{times} times'} before: --again sends it once more"
    if letter.size_bytes == 0:
        return "empty: there is nothing to send"
    if letter.size_bytes > settings.record_bytes_max:
        return f"larger than FLEETPULSE_RECORD_BYTES_MAX={settings.record_bytes_max}"
    if settings.source_format == "otlp_json" and not looks_like_json(letter.first):
        return "not JSON, and FLEETPULSE_SOURCE_FORMAT is otlp_json"
    if not letter.is_whole and held.whole(letter) is None:
        return f"only its first {KEPT_BYTES_MAX // 1024} KiB were kept, and its record is gone from {letter.topic}"
    return None


def send_again(steps: Sequence[Step], held: LetterBytes, producer: RecordProducer) -> Iterator[tuple[Step, bool]]:
    """Writes the letters without obstacle to the source topic, with the timestamps of their records and a header that
    tells of it. Yields each with whether it was handed over: one may have been deleted since it was planned."""
    for step in steps:
        if step.obstacle is not None:
            continue
        value = held.whole(step.letter)
        if value is not None:
            producer.send(value, timestamp_ms=step.letter.time_ms, headers=round_headers(step.letter))
        yield step, value is not None
