"""Vectors and a catalog made up for tests of the store and of commands."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from fleetpulse.features._vector import AGE_UNKNOWN_MS, NodeVector, Status

NOW_MS = 1_790_000_000_000
FEATURES = 127


@dataclass(frozen=True)
class MadeUpFeature:
    name: str
    unit: str


class MadeUpCatalog:
    """A catalog of features f0, f1, ...; another `salt` is another schema."""

    def __init__(self, features: int = FEATURES, salt: str = "") -> None:
        self.features = tuple(MadeUpFeature(f"f{i}", "1" if i % 2 else "s") for i in range(features))
        self.schema_hash = hashlib.blake2b(f"{features}{salt}".encode(), digest_size=16).digest()


CATALOG = MadeUpCatalog()


def vector(
    node: str,
    *,
    t_ms: int = NOW_MS,
    value: float = 1.0,
    cluster: str = "c1",
    partition: int = 0,
    offset: int = 1,
    interval_ms: int = 10_000,
    covered_ms: int = 300_000,
    catalog: MadeUpCatalog = CATALOG,
) -> NodeVector:
    """All values equal but the last, which is missing. Ages 500 ms."""
    n = len(catalog.features)
    values = np.full(n, value, np.float32)
    status = np.full(n, Status.OK, np.uint8)
    age_ms = np.full(n, 500, np.uint32)
    values[-1], status[-1], age_ms[-1] = np.nan, Status.MISSING, AGE_UNKNOWN_MS
    return NodeVector(
        node=node,
        cluster=cluster,
        pool="default",
        schema_hash=catalog.schema_hash,
        t_end_ns=t_ms * 1_000_000,
        partition=partition,
        offset=offset,
        window_covered_ms=covered_ms,
        scrape_interval_ms=interval_ms,
        values=values,
        status=status,
        age_ms=age_ms,
        sources={"f0": "made up"},
    )
