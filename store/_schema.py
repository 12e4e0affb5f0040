"""The columns a reader expects: the part of a catalog that readers need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol


class FeatureLike(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def unit(self) -> str: ...


class CatalogLike(Protocol):
    """What the store needs of fleetpulse.features.Catalog."""

    @property
    def schema_hash(self) -> bytes: ...
    @property
    def features(self) -> Sequence[FeatureLike]: ...


@dataclass(frozen=True)
class Schema:
    """Names and units of the columns, in order, and the hash that vectors of the same catalog carry."""

    schema_hash: bytes
    names: tuple[str, ...]
    units: tuple[str, ...]
    columns: dict[str, int] = field(repr=False)

    @classmethod
    def of(cls, catalog: CatalogLike | None) -> Schema:
        """The schema of a catalog; None: of the catalog that comes with fleetpulse."""
        if catalog is None:
            from fleetpulse.features._catalog import Catalog

            catalog = Catalog.load()
        names = tuple(feature.name for feature in catalog.features)
        units = tuple(feature.unit for feature in catalog.features)
        return cls(catalog.schema_hash, names, units, {name: i for i, name in enumerate(names)})
