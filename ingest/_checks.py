"""The checks of `fleetpulse doctor`. Each looks at one thing and says what it found and what to do."""

from __future__ import annotations

import importlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Literal

from fleetpulse.ingest._errors import UserError
from fleetpulse.ingest._settings import Settings

State = Literal["ok", "warning", "problem"]

MODULES = (
    ("numba", "numba", "nothing can be decoded or computed"),
    ("crc32c", "crc32c", "checksums of Kafka records are computed in Python, fifteen times slower"),
    ("cramjam", "cramjam", "records compressed with snappy, lz4 or zstd cannot be read"),
    ("zstandard", "zstandard", "recordings compressed with zstd cannot be replayed"),
    ("faust", "faust-streaming", "the worker cannot run"),
    ("sklearn", "scikit-learn", "the anomaly detector cannot train its forest"),
)
REDIS_VERSION_MIN = (6, 2)
SKEW_WARNING_MS = 2_000
SILENT_MS = 180_000
CONNECT_S = 3.0


@dataclass(frozen=True)
class Check:
    """found: what is so. do: what the user can do, empty when there is nothing to be done."""

    name: str
    state: State
    found: str
    do: str = ""


def run_checks(settings: Settings) -> Iterator[Check]:
    """All checks, each when it is done. What depends on a service that does not answer is left out."""
    yield from check_modules()
    yield check_catalog(settings)
    yield from check_kafka(settings)
    yield from check_redis(settings)


def check_modules() -> Iterator[Check]:
    for module, package, consequence in MODULES:
        try:
            importlib.import_module(module)
            found = version(package)
        except (ImportError, PackageNotFoundError) as error:
            yield Check(package, "problem", f"is not usable ({error}): {consequence}", f"pip install {package}")
        else:
            yield Check(package, "ok", found)


def check_catalog(settings: Settings) -> Check:
    from fleetpulse.ingest._open_store import load_catalog

    try:
        catalog = load_catalog(settings)
    except UserError as error:
        return Check("catalog", "problem", str(error), "correct the file, or unset FLEETPULSE_CATALOG")
    return Check("catalog", "ok", f"{len(catalog.features)} features, schema {catalog.schema_hash.hex()}")


def check_kafka(settings: Settings) -> Iterator[Check]:
    """Address, connection, topics, and the broker's clock as far as records show it."""
    from fleetpulse.ingest._topic_reader import listens

    unreachable = [address for address in settings.kafka_bootstrap.split(",") if not listens(address)]
    if len(unreachable) == len(settings.kafka_bootstrap.split(",")):
        yield Check(
            "Kafka broker",
            "problem",
            f"nothing listens at {settings.kafka_bootstrap}",
            "start the broker, or set FLEETPULSE_KAFKA_BOOTSTRAP to host:port of yours",
        )
        return
    from kafka.errors import KafkaError

    from fleetpulse.ingest._topics import connect_admin

    try:
        admin = connect_admin(settings)
    except UserError as error:
        yield Check(
            "Kafka broker",
            "problem",
            str(error),
            "something listens there but does not speak as expected: check FLEETPULSE_KAFKA_SECURITY, user, password "
            "and CA file",
        )
        return
    try:
        state: State = "warning" if unreachable else "ok"
        found = f"answers at {settings.kafka_bootstrap}" + (
            f", but not at {', '.join(unreachable)}" if unreachable else ""
        )
        yield Check("Kafka broker", state, found)
        yield from _check_topics(settings, admin)
        yield from _check_records(settings)
    except (KafkaError, OSError) as error:
        yield Check("Kafka topics", "problem", f"cannot be listed: {error}", "allow this client to describe topics")
    finally:
        admin.close()


def _check_topics(settings: Settings, admin: Any) -> Iterator[Check]:
    from fleetpulse.ingest._topics import topic_specs

    specs = topic_specs(settings)
    described = admin.describe_topics([spec.name for spec in specs])
    partitions = {
        topic["name"]: len(topic["partitions"])
        for topic in described
        if topic.get("error_code", 0) == 0 and topic["partitions"]
    }
    absent = [spec.name for spec in specs if spec.name not in partitions]
    if settings.source_topic in absent:
        yield Check(
            f"topic {settings.source_topic}",
            "warning",
            "is absent",
            "start a worker, which creates it, or set FLEETPULSE_SOURCE_TOPIC to the topic your collectors write to",
        )
    for spec in specs:
        if spec.name not in partitions:
            continue
        found = f"{partitions[spec.name]} partitions"
        if partitions[spec.name] == spec.partitions:
            yield Check(f"topic {spec.name}", "ok", found)
        else:
            yield Check(
                f"topic {spec.name}",
                "warning",
                f"{found}, not {spec.partitions}: it is used as it is",
                f"set FLEETPULSE_PARTITIONS={partitions[spec.name]} if that is meant",
            )
    ours = [name for name in absent if name != settings.source_topic]
    if ours:
        yield Check("our topics", "warning", f"absent: {', '.join(ours)}", "start a worker, which creates them")


def _check_records(settings: Settings) -> Iterator[Check]:
    """The newest metrics in the source topic: whether any come, and whether their clock agrees with this machine's."""
    from fleetpulse.ingest._terminal import age_text
    from fleetpulse.ingest._topic_reader import newest_record_ms

    name = f"records in {settings.source_topic}"
    try:
        newest_ms = newest_record_ms(settings, settings.source_topic)
    except UserError:
        # The topic is absent, which has been said.
        return
    age_ms = time.time_ns() // 1_000_000 - (newest_ms or 0)
    if newest_ms is None:
        do = "point a Collector at the topic, or try `fleetpulse sampler`"
        yield Check(name, "warning", "there are none", do)
    elif age_ms < -SKEW_WARNING_MS:
        do = "let all machines use NTP (chrony or systemd-timesyncd)"
        yield Check(name, "problem", f"the newest is {age_text(-age_ms)} ahead of this machine's clock", do)
    elif age_ms > SILENT_MS:
        do = "look at the Collector's exporter, or at what else writes to the topic"
        yield Check(name, "warning", f"the newest is {age_text(age_ms)} old", do)
    else:
        yield Check(name, "ok", f"the newest is {age_text(age_ms)} old")


def check_redis(settings: Settings) -> Iterator[Check]:
    """Address, access, version, memory policy, clock, and what is in it."""
    from fleetpulse.ingest._open_store import advice
    from fleetpulse.store import StoreError
    from fleetpulse.store._keys import Keys
    from fleetpulse.store._link import Link, failure

    url = settings.redis_url.get_secret_value()
    try:
        keys = Keys(settings.redis_prefix)
        link = Link(url, timeout_s=CONNECT_S)
        try:
            before_ms = time.time_ns() // 1_000_000
            pong, server, memory, moment, clusters = link.run(
                [("PING",), ("INFO", "server"), ("INFO", "memory"), ("TIME",), ("ZRANGE", keys.clusters, 0, -1)]
            )
            after_ms = time.time_ns() // 1_000_000
        finally:
            link.close()
        if isinstance(pong, Exception):
            raise failure(pong, url)
    except StoreError as error:
        yield Check("Redis", "problem", str(error), advice(error))
        return
    yield _redis_version(server)
    policy = _info(memory, "maxmemory_policy")
    if policy not in ("noeviction", ""):
        yield Check(
            "Redis memory",
            "warning",
            f"maxmemory-policy is {policy}: when memory is short, vectors vanish before their time",
            "set maxmemory-policy noeviction, or give it enough memory",
        )
    if not isinstance(moment, Exception):
        yield _redis_clock(moment, before_ms, after_ms)
    if isinstance(clusters, Exception):
        wrong = failure(clusters, url)
        do = f"let this user read keys below {settings.redis_prefix}, or choose another FLEETPULSE_REDIS_PREFIX"
        yield Check("vectors", "problem", str(wrong), do)
    elif clusters:
        names = ", ".join(name.decode(errors="replace") for name in clusters)
        yield Check("vectors", "ok", f"of clusters {names}")
    else:
        do = "start a worker and a source of metrics (`fleetpulse sampler` sends this machine's)"
        yield Check("vectors", "warning", f"there are none under the prefix {settings.redis_prefix!r}", do)


def _redis_version(info: Any) -> Check:
    if isinstance(info, Exception):
        return Check(
            "Redis", "warning", "answers, but does not tell its version to this user", "allow INFO, or ignore this"
        )
    text = _info(info, "redis_version")
    parts = tuple(int(part) for part in text.split(".")[:2] if part.isdigit())
    if parts and parts < REDIS_VERSION_MIN:
        return Check("Redis", "problem", f"is version {text}", "use Redis 6.2 or newer")
    return Check("Redis", "ok", f"answers, version {text or 'unknown'}")


def _redis_clock(reply: Any, before_ms: int, after_ms: int) -> Check:
    """Redis' clock against ours, at most off by the time the answer took."""
    seconds, micros = int(reply[0]), int(reply[1])
    redis_ms = seconds * 1000 + micros // 1000
    skew_ms = redis_ms - min(max(redis_ms, before_ms), after_ms)
    if abs(skew_ms) <= SKEW_WARNING_MS:
        return Check("clock", "ok", f"within {abs(skew_ms)} ms of Redis' clock")
    ahead = "ahead of" if skew_ms > 0 else "behind"
    return Check(
        "clock",
        "problem",
        f"Redis' clock is {abs(skew_ms) / 1000:.1f} s {ahead} this machine's: ages of vectors are judged wrongly",
        "let both machines use NTP (chrony or systemd-timesyncd)",
    )


def _info(info: Any, name: str) -> str:
    """A field of INFO, which redis-py hands out parsed or as text."""
    if isinstance(info, dict):
        return str(info.get(name, ""))
    if isinstance(info, Exception):
        return ""
    text = info.decode() if isinstance(info, bytes) else str(info)
    return next((line.partition(":")[2].strip() for line in text.splitlines() if line.startswith(f"{name}:")), "")
