"""Compiling the loops before the first slide needs them."""

from __future__ import annotations

import numpy as np

from fleetpulse.anomaly._detector import Detector
from fleetpulse.anomaly._forest import LEAF, Forest
from fleetpulse.anomaly._load import SharedLoad
from fleetpulse.anomaly._model import Model, library_versions
from fleetpulse.anomaly._summary import summary_width
from fleetpulse.features._catalog import Catalog
from fleetpulse.features._vector import NodeVector, Status

_NODES = 8
_SLIDES = 26
"""More than a baseline needs to be ready, so that the forest is asked too."""
_SLIDE_NS = 5_000_000_000


def warm_up(catalog: Catalog) -> None:
    """Judges a few made-up slides with a made-up forest. About 0.1 s when the cache is warm; scikit-learn stays out."""
    detector = Detector(catalog, pool="", seed=0)
    detector.adopt(_stump(detector))
    columns = len(catalog.names)
    for slide in range(1, _SLIDES + 1):
        t_ns = slide * _SLIDE_NS
        detector.slide(t_ns, [_vector(str(node), catalog.schema_hash, columns, t_ns) for node in range(_NODES)])


def _vector(node: str, schema_hash: bytes, columns: int, t_ns: int) -> NodeVector:
    return NodeVector(
        node=node,
        cluster="",
        pool="",
        schema_hash=schema_hash,
        t_end_ns=t_ns,
        partition=0,
        offset=0,
        window_covered_ms=300_000,
        scrape_interval_ms=5_000,
        values=np.full(columns, 100.0, np.float32),
        status=np.full(columns, Status.OK, np.uint8),
        age_ms=np.zeros(columns, np.uint32),
        sources={},
    )


def _stump(detector: Detector) -> Model:
    """A forest of one leaf."""
    group = detector.columns.group
    columns = len(group)
    forest = Forest(
        roots=np.zeros(1, np.int32),
        feature=np.full(1, LEAF, np.int16),
        threshold=np.zeros(1),
        left=np.zeros(1, np.int32),
        right=np.zeros(1, np.int32),
        path=np.ones(1),
        norm=1.0,
        columns=summary_width(group),
    )
    return Model(
        schema_hash=detector.schema_hash,
        pool="",
        group=group,
        known=np.ones(columns, np.bool_),
        load=SharedLoad(np.zeros((1, columns), np.float32), np.ones(columns, np.float32)),
        forest=forest,
        typical=0.4,
        threshold=0.7,
        rows=0,
        from_ns=0,
        to_ns=1,
        versions=library_versions(),
    )
