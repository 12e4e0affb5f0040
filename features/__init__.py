"""Columns of points in, one feature vector per node out. Pure: no clock, no network, no environment.

Names are imported when they are first used, because FleetState needs Numba and a reader of vectors does not.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fleetpulse.features._catalog import Catalog, Feature
    from fleetpulse.features._catalog_lines import CatalogError
    from fleetpulse.features._points import ExponentialPoints, HistogramPoints, NumberPoints, Points
    from fleetpulse.features._series import NodeId, Series, SeriesTable
    from fleetpulse.features._state import Added, FleetState
    from fleetpulse.features._vector import NodeVector, Status, VectorError

_HOME = {
    "Added": "_state",
    "Catalog": "_catalog",
    "CatalogError": "_catalog_lines",
    "ExponentialPoints": "_points",
    "Feature": "_catalog",
    "FleetState": "_state",
    "HistogramPoints": "_points",
    "NodeId": "_series",
    "NodeVector": "_vector",
    "NumberPoints": "_points",
    "Points": "_points",
    "Series": "_series",
    "SeriesTable": "_series",
    "Status": "_vector",
    "VectorError": "_vector",
}

__all__ = [
    "Added",
    "Catalog",
    "CatalogError",
    "ExponentialPoints",
    "Feature",
    "FleetState",
    "HistogramPoints",
    "NodeId",
    "NodeVector",
    "NumberPoints",
    "Points",
    "Series",
    "SeriesTable",
    "Status",
    "VectorError",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
