"""Connections to Redis: what a URL means, and what each failure means. redis is imported when used: it is slow."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

from fleetpulse.store._errors import (
    StoreAccessError,
    StoreAddressError,
    StoreError,
    StoreUnreachableError,
)

Command = tuple[str | bytes | int, ...]
Reply = Any
"""What Redis answered to a command, or the exception it answered with."""

_PLAIN = ("redis", "rediss", "unix")
_SCHEMES = (*_PLAIN, "redis+cluster", "rediss+cluster", "redis+sentinel", "rediss+sentinel")
_READ_BYTES = 1 << 18
# Replies that end by themselves: the server is loading, out of memory, read-only during a failover, ...
_PASSING = ("OOM", "READONLY", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "NOREPLICAS", "MISCONF", "BUSY")
_DENIED = ("NOAUTH", "WRONGPASS", "NOPERM")


def shown(url: str) -> str:
    """The URL without its password."""
    head, at, rest = url.rpartition("@")
    if not at:
        return url
    scheme, _, login = head.partition("://")
    user, colon, _ = login.partition(":")
    return f"{scheme}://{user}{':***' if colon else ''}@{rest}"


def check_url(url: str) -> str:
    """The URL's scheme. Raises StoreAddressError for what cannot be an address of Redis."""
    try:
        parts = urlsplit(url)
        scheme, path = parts.scheme, parts.path
        if scheme not in _SCHEMES:
            raise ValueError(
                f"it must begin with {', '.join(s + '://' for s in _PLAIN)}, redis+cluster:// or redis+sentinel://"
            )
        if scheme == "unix":
            if not path:
                raise ValueError("the path of the socket is missing")
            return scheme
        if not parts.netloc.rpartition("@")[2]:
            raise ValueError("the host is missing")
        if not scheme.endswith("+sentinel"):
            _ = parts.port
            if path.strip("/") and not path.strip("/").isdigit():
                raise ValueError(f"{path.strip('/')!r} is not the number of a database")
    except ValueError as error:
        raise StoreAddressError(f"{shown(url)!r} is not an address of Redis: {error}") from None
    return scheme


def failure(error: BaseException, url: str) -> StoreError:
    """What an exception or error reply of redis-py means to us."""
    import redis.exceptions as known

    text = str(error).strip().rstrip(".") or type(error).__name__
    where = shown(url)
    if isinstance(error, StoreError):
        return error
    if isinstance(
        error, known.AuthenticationError | known.AuthorizationError | known.NoPermissionError
    ) or text.startswith(_DENIED):
        return StoreAccessError(f"Redis at {where} refuses the user or password: {text}")
    if isinstance(
        error, known.ConnectionError | known.TimeoutError | known.RedisClusterException | OSError | asyncio.TimeoutError
    ) or text.startswith(_PASSING):
        return StoreUnreachableError(f"Redis at {where} does not answer: {text}")
    if "DB index" in text or "invalid DB" in text:
        return StoreAddressError(f"Redis at {where} has no such database: {text}")
    return StoreError(f"Redis at {where} answers: {text}")


def _sentinel(url: str) -> tuple[list[tuple[str, int]], str, dict[str, Any]]:
    """Addresses, name of the master and options of `redis+sentinel://user:password@host:port,host:port/name/db`."""
    parts = urlsplit(url)
    login, _, hosts = parts.netloc.rpartition("@")
    words = parts.path.strip("/").split("/")
    if not words[0]:
        raise StoreAddressError(
            f"{shown(url)!r}: the name of the master is missing, as in redis+sentinel://host:26379/mymaster"
        )
    options: dict[str, Any] = {"db": int(words[1]) if len(words) > 1 else 0}
    if login:
        user, _, password = login.partition(":")
        options |= {"username": unquote(user) or None, "password": unquote(password) or None}
    if parts.scheme.startswith("rediss"):
        options["ssl"] = True
    addresses = []
    for host in hosts.split(","):
        name, _, port = host.partition(":")
        addresses.append((name, int(port or 26379)))
    return addresses, words[0], options


class Link:
    """A synchronous connection pool. timeout_s bounds connecting and every answer."""

    def __init__(self, url: str, *, timeout_s: float) -> None:
        self.url = url
        self._client = _client(url, timeout_s, asynchronous=False)

    def run(self, commands: Sequence[Command]) -> list[Reply]:
        """All commands in one round trip (one per server of a Redis Cluster). Error replies stand in the list.

        Raises StoreUnreachableError, StoreAccessError, StoreAddressError.
        """
        try:
            pipe = self._client.pipeline(transaction=False)
            for command in commands:
                pipe.execute_command(*command)
            return list(pipe.execute(raise_on_error=False))
        except _raised() as error:
            raise failure(error, self.url) from None

    def close(self) -> None:
        self._client.close()


class AsyncLink:
    """The same for asyncio."""

    def __init__(self, url: str, *, timeout_s: float) -> None:
        self.url = url
        self._client = _client(url, timeout_s, asynchronous=True)

    async def run(self, commands: Sequence[Command]) -> list[Reply]:
        try:
            pipe = self._client.pipeline(transaction=False)
            for command in commands:
                pipe.execute_command(*command)
            return list(await pipe.execute(raise_on_error=False))
        except _raised() as error:
            raise failure(error, self.url) from None

    async def close(self) -> None:
        await self._client.aclose()


def _client(url: str, timeout_s: float, *, asynchronous: bool) -> Any:
    """A client that connects when it is first used. Raises StoreAddressError."""
    scheme = check_url(url)
    import redis
    import redis.asyncio
    from redis.backoff import NoBackoff

    library: Any = redis.asyncio if asynchronous else redis
    retry_type: Any = library.retry.Retry if asynchronous else redis.retry.Retry
    options: dict[str, Any] = {
        "socket_timeout": timeout_s,
        "socket_connect_timeout": min(timeout_s, 2.0),
        "socket_read_size": _READ_BYTES,
        "protocol": 2,
        # One more try at once: a pooled connection may have died unnoticed. Waiting is left to our callers.
        "retry": retry_type(NoBackoff(), 1),
    }
    try:
        if scheme.endswith("+cluster"):
            cluster_type: Any = library.cluster.RedisCluster
            return cluster_type.from_url(url.replace("+cluster", "", 1), **options)
        if scheme.endswith("+sentinel"):
            addresses, name, more = _sentinel(url)
            sentinel: Any = library.sentinel.Sentinel(addresses, sentinel_kwargs=dict(options), **options, **more)
            return sentinel.master_for(name)
        client = library.Redis.from_url(url, **options)
        # An unknown option in the query shows only when a connection is made; made here, it is not yet opened.
        client.connection_pool.connection_class(**client.connection_pool.connection_kwargs)
    except StoreError:
        raise
    except (TypeError, ValueError) as error:
        raise StoreAddressError(f"{shown(url)!r} is not an address of Redis: {error}") from None
    except _raised() as error:
        raise failure(error, url) from None
    return client


def _raised() -> tuple[type[BaseException], ...]:
    """What redis-py raises for anything that Redis or the network does; its cluster errors stand apart."""
    import redis.exceptions as known

    return known.RedisError, known.RedisClusterException, OSError, asyncio.TimeoutError
