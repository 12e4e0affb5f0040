"""The topics of the pipeline, what they are for, and how they are created (the page is TOPICS.md)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fleetpulse.ingest._errors import UserError
from fleetpulse.ingest._settings import Settings

if TYPE_CHECKING:
    from kafka import KafkaAdminClient

HOUR_MS = 3_600_000
SETTLE_S_MAX = 20.0
"""How long a cluster may take to agree on who is in it."""
OURS = ("nodes", "features", "chunks", "anomalies", "models", "deadletter")


@dataclass(frozen=True)
class TopicSpec:
    name: str
    partitions: int
    config: dict[str, str] = field(default_factory=dict)


def topic_specs(settings: Settings) -> list[TopicSpec]:
    """Every topic the worker needs, source topic first.

    nodes keeps six hours: a restarted worker reads back window + look-back, so anything over 25 minutes would do;
    six hours let an audit recompute recent vectors. chunks are compressed already.
    """
    n = settings.partitions
    # A record of ours carries a slice of one source record and its headers: room for both.
    room = {"max.message.bytes": str(2 * settings.record_bytes_max)}
    return [
        TopicSpec(settings.source_topic, n, {"retention.ms": str(24 * HOUR_MS)}),
        TopicSpec(settings.topic("nodes"), n, {"retention.ms": str(6 * HOUR_MS), **room}),
        TopicSpec(settings.topic("features"), n, {"retention.ms": str(24 * HOUR_MS)}),
        TopicSpec(
            settings.topic("chunks"),
            n,
            {"retention.ms": str(7 * 24 * HOUR_MS), "compression.type": "uncompressed", **room},
        ),
        TopicSpec(settings.topic("anomalies"), n, {"retention.ms": str(30 * 24 * HOUR_MS)}),
        TopicSpec(settings.topic("models"), 1, {"cleanup.policy": "compact", **room}),
        TopicSpec(settings.topic("deadletter"), 1, {"retention.ms": str(7 * 24 * HOUR_MS), **room}),
    ]


def kafka_security(settings: Settings) -> dict[str, Any]:
    """Keyword arguments that kafka-python and aiokafka share for the configured security."""
    arguments: dict[str, Any] = {"security_protocol": settings.kafka_security}
    if settings.kafka_security.startswith("SASL"):
        if settings.kafka_username is None or settings.kafka_password is None:
            raise UserError(
                f"FLEETPULSE_KAFKA_SECURITY={settings.kafka_security} needs FLEETPULSE_KAFKA_USERNAME and "
                "FLEETPULSE_KAFKA_PASSWORD"
            )
        arguments |= {
            "sasl_mechanism": settings.kafka_sasl_mechanism,
            "sasl_plain_username": settings.kafka_username,
            "sasl_plain_password": settings.kafka_password.get_secret_value(),
        }
    return arguments


def connect_admin(settings: Settings) -> KafkaAdminClient:
    """Raises UserError within about five seconds when no broker answers at the address."""
    from kafka import KafkaAdminClient
    from kafka.errors import KafkaError

    arguments = kafka_security(settings)
    if settings.kafka_ca_file is not None:
        arguments["ssl_cafile"] = settings.kafka_ca_file
    try:
        return KafkaAdminClient(
            bootstrap_servers=settings.kafka_bootstrap.split(","),
            client_id="fleetpulse-admin",
            bootstrap_timeout_ms=5_000,
            request_timeout_ms=15_000,
            **arguments,
        )
    except (KafkaError, OSError, ValueError) as error:
        raise UserError(
            f"No Kafka broker answers at {settings.kafka_bootstrap} ({type(error).__name__}): check that it runs and "
            "that FLEETPULSE_KAFKA_BOOTSTRAP names it"
        ) from None


def ensure_topics(settings: Settings, specs: Sequence[TopicSpec] | None = None) -> list[str]:
    """Create those of the topics that are absent; specs: which, instead of all that a worker needs.

    Returns what a person should know: a line for each that was created, or is there with other partitions than wanted.

    A cluster that has just started can name a controller that it does not know yet, or be between two: that is waited
    out. Raises UserError for what does not mend itself.
    """
    from kafka.errors import KafkaError

    deadline = time.monotonic() + SETTLE_S_MAX
    while True:
        admin = connect_admin(settings)
        try:
            return _ensure(admin, settings, topic_specs(settings) if specs is None else specs)
        except KafkaError as error:
            if not _passes(error) or time.monotonic() > deadline:
                raise UserError(
                    f"The Kafka brokers at {settings.kafka_bootstrap} do not tell or create topics ({error!r}): see "
                    "their logs; fleetpulse doctor checks one thing after the other"
                ) from None
            time.sleep(0.5)
        finally:
            admin.close()


def _passes(error: Exception) -> bool:
    """Whether the cluster mends it by itself. kafka-python does not call a controller of unknown address retriable."""
    from kafka.errors import KafkaError, UnknownBrokerIdError

    return isinstance(error, KafkaError) and (error.retriable or isinstance(error, UnknownBrokerIdError))


def _ensure(admin: KafkaAdminClient, settings: Settings, specs: Sequence[TopicSpec]) -> list[str]:
    from kafka.admin import NewTopic
    from kafka.errors import KafkaError, TopicAlreadyExistsError

    notes: list[str] = []
    existing = {
        topic["name"]: len(topic["partitions"])
        for topic in admin.describe_topics([spec.name for spec in specs])
        if topic.get("error_code", 0) == 0 and topic["partitions"]
    }
    for spec in specs:
        found = existing.get(spec.name)
        if found is not None:
            if found != spec.partitions:
                notes.append(
                    f"topic {spec.name} has {found} partitions, not {spec.partitions} as FLEETPULSE_PARTITIONS "
                    "says: used as it is"
                )
            continue
        topic = NewTopic(spec.name, spec.partitions, settings.replication, topic_configs=spec.config)
        try:
            admin.create_topics([topic], timeout_ms=15_000)
            notes.append(f"created topic {spec.name} with {spec.partitions} partitions")
        except TopicAlreadyExistsError:
            # Another worker was faster.
            continue
        except (KafkaError, ValueError) as error:
            if _passes(error):
                raise
            raise UserError(
                f"Topic {spec.name} is absent and could not be created ({error}): check its name, create "
                f"it with {spec.partitions} partitions, or allow this client to"
            ) from None
    return notes
