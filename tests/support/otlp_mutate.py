"""Requests damaged at random: what a bad disk, a bad client or an attacker would send."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

INTERESTING = bytes.fromhex("000107 08090a0b0c0d 12193a 7f8081feff")
"""Tags, wire types, ends of ranges."""
INSERTED = (b"\xff" * 9 + b"\x01", b"\x80" * 12, b"\x8a\x80\x00", b"\x7b\x7c", b"\xed\xa0\x80")
"""A varint of 64 bits, one that does not end, a long tag, a group, a surrogate in UTF-8."""


def mutations(seeds: Sequence[bytes], chance: random.Random) -> Iterator[bytes]:
    """Without end: one of the seeds after one to four random changes."""
    while True:
        raw = bytearray(chance.choice(seeds))
        for _ in range(chance.choice((1, 1, 1, 2, 4))):
            _change(raw, seeds, chance)
        yield bytes(raw)


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
