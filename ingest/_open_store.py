"""The store, opened for a command: what is wrong with it becomes one line that says what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from contextlib import contextmanager

from fleetpulse.features import Catalog, CatalogError
from fleetpulse.ingest._errors import UserError
from fleetpulse.ingest._settings import Settings
from fleetpulse.store import (
    FeatureStore,
    SchemaMismatchError,
    StoreAccessError,
    StoreAddressError,
    StoreDataError,
    StoreError,
)

TIMEOUT_S = 3.0


def load_catalog(settings: Settings) -> Catalog:
    """The configured catalog. Raises UserError."""
    try:
        return Catalog.load(settings.catalog)
    except CatalogError as error:
        raise UserError(f"{error} (FLEETPULSE_CATALOG)") from None


@contextmanager
def open_store(settings: Settings) -> Iterator[FeatureStore]:
    """A reader at the configured address; StoreErrors inside the block end as UserErrors too."""
    catalog = load_catalog(settings)
    try:
        url = settings.redis_url.get_secret_value()
        with FeatureStore.connect(url, settings.redis_prefix, catalog=catalog, timeout_s=TIMEOUT_S) as store:
            yield store
    except StoreError as error:
        raise UserError(f"{error}: {advice(error)}") from None


def advice(error: StoreError) -> str:
    if isinstance(error, StoreAddressError):
        return "correct FLEETPULSE_REDIS_URL or FLEETPULSE_REDIS_PREFIX"
    if isinstance(error, StoreAccessError):
        return "put a user and password that may read into FLEETPULSE_REDIS_URL (redis://user:password@host:port/0)"
    if isinstance(error, SchemaMismatchError):
        return "set FLEETPULSE_CATALOG to the file the workers use"
    if isinstance(error, StoreDataError):
        return "something else writes below FLEETPULSE_REDIS_PREFIX; choose another prefix or delete that key"
    return "check that it runs and that FLEETPULSE_REDIS_URL names it"


def find_node(store: FeatureStore, node: str, cluster: str | None) -> tuple[str, str]:
    """Cluster and name of a node that the store has heard of, also when its vector has expired.

    Raises UserError when there is none, or several and no cluster was given.
    """
    clusters = [cluster] if cluster is not None else sorted(store.clusters())
    known = {name: store.cluster(name).ids for name in clusters}
    found = [name for name, ids in known.items() if node in ids]
    if len(found) == 1:
        return found[0], node
    if found:
        raise UserError(f"node {node} exists in clusters {', '.join(found)}: add --cluster NAME")
    every = sorted({name for ids in known.values() for name in ids})
    if not every:
        where = "" if cluster is None else f" of cluster {cluster}"
        raise UserError(f"there are no vectors{where} in Redis yet: `fleetpulse doctor` says what is missing")
    near = difflib.get_close_matches(node, every, 1, 0.6)
    hint = f"did you mean {near[0]}?" if near else "`fleetpulse features` lists the nodes"
    raise UserError(f"there is no node {node}: {hint}")
