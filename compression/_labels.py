"""The labels of one series, in the form that chunks store and compare."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, Mapping
from itertools import chain

Labels = tuple[tuple[str, str], ...]
"""(name, value) pairs; a name occurs once. The order of names is kept."""

_RESOURCE = "resource."
"""Labels that begin so are alike for many series, and settle their order first."""


class SeriesLabels(Mapping[str, str]):
    """A mapping of label names to values that does not change, and equals any other with the same items.

    What chunks need to know of labels is worked out once: who encodes a series again and again keeps its SeriesLabels.
    stored: the pairs in the order of a chunk. order: what columns are sorted by; different for different labels, but
    for labels that hold NUL.
    """

    __slots__ = ("_by_name", "_hash", "order", "stored")

    def __init__(self, labels: Mapping[str, str]) -> None:
        pairs = sorted(labels.items())
        resource = [pair for pair in pairs if pair[0].startswith(_RESOURCE)]
        if resource:
            pairs = resource + [pair for pair in pairs if not pair[0].startswith(_RESOURCE)]
        self._by_name = dict(pairs)
        self.stored: Labels = tuple(pairs)
        self.order = "\0".join(chain.from_iterable(pairs))
        self._hash = hash(self.stored)

    def __getitem__(self, name: str) -> str:
        return self._by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)

    def items(self) -> ItemsView[str, str]:
        return self._by_name.items()

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if isinstance(other, SeriesLabels):
            return self.stored == other.stored
        return self._by_name == other if isinstance(other, Mapping) else NotImplemented

    def __repr__(self) -> str:
        return f"SeriesLabels({self._by_name!r})"
