"""What schedulers read, and the writer's side of it. The layout of the keys is in KEYS.md beside this file."""

from __future__ import annotations

from fleetpulse.features._vector import Status
from fleetpulse.store._errors import (
    AmbiguousNodeError,
    SchemaMismatchError,
    StoreAccessError,
    StoreAddressError,
    StoreDataError,
    StoreError,
    StoreUnreachableError,
)
from fleetpulse.store._freshness import Freshness
from fleetpulse.store._reader import AsyncFeatureStore, FeatureStore
from fleetpulse.store._reading import ClusterReading, FeatureValue, NodeReading, Verdict
from fleetpulse.store._writer import FeatureWriter, WriterCounts

__all__ = [
    "AmbiguousNodeError",
    "AsyncFeatureStore",
    "ClusterReading",
    "FeatureStore",
    "FeatureValue",
    "FeatureWriter",
    "Freshness",
    "NodeReading",
    "SchemaMismatchError",
    "Status",
    "StoreAccessError",
    "StoreAddressError",
    "StoreDataError",
    "StoreError",
    "StoreUnreachableError",
    "Verdict",
    "WriterCounts",
]
