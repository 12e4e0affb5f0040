"""The XOR chunk of Prometheus with one Python integer as the stream: slow, and easy to hold against FORMAT.md."""

from __future__ import annotations

MASK = (1 << 64) - 1


class _Stream:
    def __init__(self) -> None:
        self.text: list[str] = []

    def put(self, value: int, width: int) -> None:
        self.text.append(format(value & ((1 << width) - 1), f"0{width}b"))

    def uvarint(self, value: int) -> None:
        while value >= 128:
            self.put(value % 128 + 128, 8)
            value //= 128
        self.put(value, 8)

    def bytes(self) -> bytes:
        text = "".join(self.text)
        text += "0" * (-len(text) % 8)
        return int(text, 2).to_bytes(len(text) // 8, "big")


def encode_slowly(times: list[int], bits: list[int]) -> bytes:
    """What gorilla_encode must return: times as int64, values as the bits of float64."""
    out = _Stream()
    out.put(len(times), 16)
    delta = 0
    window: tuple[int, int] | None = None
    for i, (time, value) in enumerate(zip(times, bits, strict=True)):
        if i == 0:
            out.uvarint(2 * time if time >= 0 else -2 * time - 1)
            out.put(value, 64)
            continue
        step = (time - times[i - 1]) & MASK
        if i == 1:
            out.uvarint(step)
        else:
            _put_dod(out, (step - delta) & MASK)
        delta = step
        window = _put_xor(out, value ^ bits[i - 1], window)
    return out.bytes()


def _put_dod(out: _Stream, dod: int) -> None:
    if dod >> 63:
        dod -= 1 << 64
    if dod == 0:
        out.put(0, 1)
        return
    for ones, width in ((1, 14), (2, 17), (3, 20)):
        if -(2 ** (width - 1)) < dod <= 2 ** (width - 1):
            out.put(2 ** (ones + 1) - 2, ones + 1)
            out.put(dod, width)
            return
    out.put(0b1111, 4)
    out.put(dod, 64)


def _put_xor(out: _Stream, change: int, window: tuple[int, int] | None) -> tuple[int, int] | None:
    if change == 0:
        out.put(0, 1)
        return window
    text = format(change, "064b")
    leading, trailing = min(len(text) - len(text.lstrip("0")), 31), len(text) - len(text.rstrip("0"))
    if window is not None and leading >= window[0] and trailing >= window[1]:
        out.put(0b10, 2)
    else:
        window = (leading, trailing)
        out.put(0b11, 2)
        out.put(leading, 5)
        out.put(64 - leading - trailing, 6)
    out.put(change >> window[1], 64 - sum(window))
    return window
