"""Requests damaged at random: what a bad disk, a bad client or an attacker would send."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from fleetpulse.ingest._otlp import LENGTH, OtlpError, length_field, read_fields

INTERESTING = bytes.fromhex("000107 08090a0b0c0d 12193a 7f8081feff")
"""Tags, wire types, ends of ranges."""
INSERTED = (b"\xff" * 9 + b"\x01", b"\x80" * 12, b"\x8a\x80\x00", b"\x7b\x7c", b"\xed\xa0\x80")
"""A varint of 64 bits, one that does not end, a long tag, a group, a surrogate in UTF-8."""


def mutations(seeds: Sequence[bytes], chance: random.Random) -> Iterator[bytes]:
    """Without end: one of the seeds after one to four random changes.

    Half of them are made inside a message whose length, and the lengths around it, are put right afterwards: else
    nearly all requests would be refused at their first wrong length, and little of the reader would be reached.
    """
    while True:
        raw = chance.choice(seeds)
        for _ in range(chance.choice((1, 1, 1, 2, 4))):
            raw = _changed_inside(raw, seeds, chance) if chance.random() < 0.5 else _changed(raw, seeds, chance)
        yield raw


def _changed_inside(raw: bytes, seeds: Sequence[bytes], chance: random.Random) -> bytes:
    """The message with a change to it, or to one inside it."""
    try:
        inside = [field for field in read_fields(raw, 0, len(raw)) if field.wire == LENGTH and field.body < field.stop]
    except OtlpError:
        inside = []
    if not inside or chance.random() < 0.15:
        return _changed(raw, seeds, chance)
    field = chance.choice(inside)
    body = _changed_inside(raw[field.body : field.stop], seeds, chance)
    return raw[: field.start] + length_field(field.number, body) + raw[field.stop :]


def _changed(raw: bytes, seeds: Sequence[bytes], chance: random.Random) -> bytes:
    changed = bytearray(raw)
    _change(changed, seeds, chance)
    return bytes(changed)


def _change(raw: bytearray, seeds: Sequence[bytes], chance: random.Random) -> None:
    at = chance.randrange(len(raw) + 1)
    size = chance.choice((1, 1, 2, 8, 30))
    match chance.randrange(9):
        case 0 if at < len(raw):
            raw[at] ^= 1 << chance.randrange(8)
        case 1 if at < len(raw):
            raw[at] = chance.choice(INTERESTING)
        case 2 if at < len(raw):
            raw[at] = (raw[at] + chance.choice((1, -1, 2, -2))) % 256
        case 3:
            del raw[at : at + size]
        case 4:
            raw[at:at] = chance.randbytes(size)
        case 5:
            raw[at:at] = raw[at : at + size]
        case 6:
            other = chance.choice(seeds)
            start = chance.randrange(len(other) + 1)
            raw[at : at + size] = other[start : start + size]
        case 7:
            raw[at:at] = chance.choice(INSERTED)
        case _:
            del raw[at:]
