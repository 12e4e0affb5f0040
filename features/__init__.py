"""Columns of points in, one feature vector per node out. Pure: no clock, no network, no environment.

Names are imported when they are first used, because FleetState needs Numba and a reader of vectors does not.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fleetpulse.features._catalog import Catalog, Feature
    from fleetpulse.features._catalog_lines import CatalogError
    from fleetpulse.features._series import NodeId
    from fleetpulse.features._state import Added, FleetState
    from fleetpulse.features._vector import NodeVector, Status, VectorError

__all__ = ["Added", "Catalog", "CatalogError", "Feature", "FleetState", "NodeId", "NodeVector", "Status", "VectorError"]

_HOME = {
    "Added": "_state",
    "Catalog": "_catalog",
    "CatalogError": "_catalog_lines",
    "Feature": "_catalog",
    "FleetState": "_state",
    "NodeId": "_series",
    "NodeVector": "_vector",
    "Status": "_vector",
    "VectorError": "_vector",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
