"""Wrong addresses, passwords and values: each a typed error, nothing returned as data."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Iterator

import pytest
import redis

from fleetpulse.store import (
    FeatureStore,
    FeatureWriter,
    StoreAccessError,
    StoreAddressError,
    StoreDataError,
    StoreError,
    StoreUnreachableError,
)
from fleetpulse.store._keys import Keys, bucket_of
from fleetpulse.store._link import shown
from support.vectors import CATALOG, NOW_MS, vector

BUCKET = bucket_of("a")


@pytest.mark.parametrize(
    ("url", "what"),
    [
        ("http://127.0.0.1:6379", "must begin with"),
        ("127.0.0.1:6379", "must begin with"),
        ("", "must begin with"),
        ("redis://", "host is missing"),
        ("redis://127.0.0.1:port/0", "ort"),
        ("redis://127.0.0.1:99999/0", "ort"),
        ("redis://127.0.0.1:6379/main", "'main' is not the number"),
        ("redis://127.0.0.1:6379/0?no_such_option=1", "no_such_option"),
        ("unix://", "socket"),
        ("redis+sentinel://127.0.0.1:26379", "name of the master"),
    ],
)
def test_what_is_no_address_is_refused_before_anything_is_sent(url: str, what: str) -> None:
    with pytest.raises(StoreAddressError, match=what):
        FeatureStore.connect(url, catalog=CATALOG)
    with pytest.raises(StoreAddressError, match=what):
        asyncio.run(FeatureWriter.connect(url))


def test_passwords_are_never_shown() -> None:
    assert shown("redis://me:se@cret@host:1/0") == "redis://me:***@host:1/0"
    assert shown("redis://:secret@host/0") == "redis://:***@host/0"
    assert shown("redis://host/0") == "redis://host/0"
    with pytest.raises(StoreError) as caught:
        FeatureStore.connect("redis://:secret@127.0.0.1:1/0", catalog=CATALOG)
    assert "secret" not in str(caught.value)


def test_no_server_at_the_address_is_said_at_once() -> None:
    start = time.monotonic()
    with pytest.raises(StoreUnreachableError, match=r"127\.0\.0\.1:1/0"):
        FeatureStore.connect("redis://127.0.0.1:1/0", catalog=CATALOG)
    assert time.monotonic() - start < 2


def test_a_server_that_says_nothing_is_given_up() -> None:
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen(8)
        url = f"redis://127.0.0.1:{mute.getsockname()[1]}/0"
        with pytest.raises(StoreUnreachableError):
            FeatureStore.connect(url, catalog=CATALOG, timeout_s=0.2)


@pytest.fixture
def user(redis_url: str, redis_prefix: str) -> Iterator[str]:
    """A user of the server with the password `right` who may PING and nothing else."""
    with redis.Redis.from_url(redis_url) as client:
        client.execute_command("ACL", "SETUSER", redis_prefix, "on", ">right", "~*", "-@all", "+ping")
        yield redis_prefix
        client.execute_command("ACL", "DELUSER", redis_prefix)


def test_a_wrong_password_is_an_access_error(redis_url: str, user: str) -> None:
    url = redis_url.replace("redis://", f"redis://{user}:wrong@")
    with pytest.raises(StoreAccessError, match="refuses the user or password"):
        FeatureStore.connect(url, catalog=CATALOG)
    with pytest.raises(StoreAccessError):
        asyncio.run(FeatureWriter.connect(url))


def test_a_user_without_rights_is_an_access_error(redis_url: str, user: str) -> None:
    with FeatureStore.connect(redis_url.replace("redis://", f"redis://{user}:right@"), catalog=CATALOG) as store:
        for read in (lambda: store.node("a", "c1"), lambda: store.cluster("c1"), store.clusters):
            with pytest.raises(StoreAccessError):
                read()


def test_a_database_that_does_not_exist_is_an_address_error(redis_url: str) -> None:
    with pytest.raises(StoreAddressError, match="database"):
        FeatureStore.connect(redis_url.rsplit("/", 1)[0] + "/9999", catalog=CATALOG)


@pytest.fixture
def client(redis_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(redis_url) as client:
        yield client


@pytest.fixture
def store(redis_url: str, redis_prefix: str) -> Iterator[FeatureStore]:
    async def fill() -> None:
        writer = await FeatureWriter.connect(redis_url, redis_prefix, now_ms=lambda: NOW_MS)
        await writer.write_vectors([vector("a")])
        await writer.close()

    asyncio.run(fill())
    with FeatureStore.connect(redis_url, redis_prefix, catalog=CATALOG, now_ms=lambda: NOW_MS) as store:
        yield store


READS: dict[str, tuple[Callable[[Keys], str], Callable[[FeatureStore], object]]] = {
    "node": (lambda keys: keys.node("c1", "a"), lambda store: store.node("a", "c1")),
    "node, any cluster": (lambda keys: keys.node("c1", "a"), lambda store: store.node("a")),
    "bulk": (lambda keys: keys.bulk("c1", BUCKET, CATALOG.schema_hash), lambda store: store.cluster("c1")),
    "ids": (lambda keys: keys.ids("c1", BUCKET, CATALOG.schema_hash), lambda store: store.cluster("c1")),
    "verdict": (lambda keys: keys.verdicts("c1", BUCKET), lambda store: store.node("a", "c1")),
    "verdicts": (lambda keys: keys.verdicts("c1", BUCKET), lambda store: store.verdicts("c1")),
    "event": (lambda keys: keys.events("c1", BUCKET), lambda store: store.node("a", "c1")),
    "events": (lambda keys: keys.events("c1", BUCKET), lambda store: store.events("c1")),
    "chunks": (lambda keys: keys.chunks("c1", "a"), lambda store: store.chunks("a", "c1")),
    "clusters": (lambda keys: keys.clusters, lambda store: store.clusters()),
}


@pytest.mark.parametrize("read", READS)
def test_a_value_of_the_wrong_type_names_its_key(
    store: FeatureStore, client: redis.Redis, redis_prefix: str, read: str
) -> None:
    name_key, ask = READS[read]
    key = name_key(Keys(redis_prefix))
    client.delete(key)
    client.rpush(key, "a list")
    with pytest.raises(StoreDataError) as caught:
        ask(store)
    assert caught.value.key == key
    assert key in str(caught.value)


@pytest.mark.parametrize("read", ["node", "bulk"])
@pytest.mark.parametrize("cut", [1, 4, 30, "all but 10", "foreign", "grown"])
def test_cut_and_foreign_values_name_their_key(
    store: FeatureStore, client: redis.Redis, redis_prefix: str, read: str, cut: int | str
) -> None:
    name_key, ask = READS[read]
    key = name_key(Keys(redis_prefix))
    raw = client.get(key)
    assert isinstance(raw, bytes)
    if isinstance(cut, int):
        raw = raw[:-cut]
    else:
        raw = {"all but 10": raw[:10], "foreign": b'{"cpu": 0.5}' * 60, "grown": raw + b"x"}[cut]
    client.set(key, raw)
    with pytest.raises(StoreDataError) as caught:
        ask(store)
    assert caught.value.key == key


@pytest.mark.parametrize("read", ["verdict", "verdicts", "event", "events"])
@pytest.mark.parametrize("raw", [b"", b"nonsense", b"1 ", b"\xff\xfe", b"1 [1]"])
def test_a_field_that_is_not_ours_names_its_key(
    store: FeatureStore, client: redis.Redis, redis_prefix: str, read: str, raw: bytes
) -> None:
    name_key, ask = READS[read]
    key = name_key(Keys(redis_prefix))
    client.hset(key, "a", raw)
    with pytest.raises(StoreDataError) as caught:
        ask(store)
    assert caught.value.key == key


def test_another_nodes_vector_at_a_key_is_refused(store: FeatureStore, client: redis.Redis, redis_prefix: str) -> None:
    key = Keys(redis_prefix).node("c1", "b")
    client.set(key, vector("a").to_bytes())
    with pytest.raises(StoreDataError, match="vector of c1/a") as caught:
        store.node("b", "c1")
    assert caught.value.key == key


@pytest.mark.parametrize("place", ["node", "node of another type", "bulk", "bulk of another type"])
def test_a_writer_leaves_another_programs_value_alone_and_says_so(
    redis_url: str, redis_prefix: str, client: redis.Redis, place: str
) -> None:
    keys = Keys(redis_prefix)
    key = keys.node("c1", "a") if place.startswith("node") else keys.bulk("c1", BUCKET, CATALOG.schema_hash)
    if place.endswith("type"):
        client.rpush(key, "theirs")
    else:
        client.set(key, "theirs")
    before = client.dump(key)

    async def work() -> FeatureWriter:
        writer = await FeatureWriter.connect(redis_url, redis_prefix, now_ms=lambda: NOW_MS)
        other = next(f"n{i}" for i in range(99) if bucket_of(f"n{i}") != BUCKET)
        await writer.write_vectors([vector("a"), vector(other)])
        await writer.close()
        return writer

    writer = asyncio.run(work())
    assert client.dump(key) == before
    assert (writer.counts.refused, writer.counts.accepted, writer.pending) == (1, 1, 0)
    assert writer.healthy
    assert isinstance(writer.last_error, StoreDataError)
    assert writer.last_error.key == key
