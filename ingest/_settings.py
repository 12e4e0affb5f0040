"""Every setting, from the environment (`FLEETPULSE_*`). The only reader of the environment.

The README's table is generated from these fields.
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Literal

from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from fleetpulse.ingest._errors import UserError

PREFIX = "FLEETPULSE_"
WINDOW_S = 300


class Settings(BaseSettings):
    """All settings. Times are whole seconds or milliseconds as their names say."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="forbid", frozen=True)

    kafka_bootstrap: str = Field("127.0.0.1:9092", description="Kafka brokers, host:port[,host:port...]")
    kafka_security: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = Field(
        "PLAINTEXT", description="Security protocol towards Kafka"
    )
    kafka_sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = Field(
        "SCRAM-SHA-512", description="SASL mechanism, when the protocol has SASL"
    )
    kafka_username: str | None = Field(None, description="SASL user")
    kafka_password: SecretStr | None = Field(None, description="SASL password")
    kafka_ca_file: str | None = Field(
        None, description="PEM file of the authority that signed the brokers' certificates"
    )
    redis_url: SecretStr = Field(
        SecretStr("redis://127.0.0.1:6379/0"),
        description="Redis, as redis://, rediss:// or unix:// with user and password",
    )
    redis_prefix: str = Field("fp", description="First part of every Redis key")

    source_topic: str = Field("otlp_metrics", description="Topic that collectors write OTLP metrics to")
    source_format: Literal["auto", "otlp_proto", "otlp_json"] = Field(
        "auto", description="Encoding of the source topic; auto looks at each record"
    )
    topic_prefix: str = Field("fleetpulse", description="First part of the names of our own topics")
    partitions: int = Field(8, ge=1, le=1024, description="Partitions of topics that the worker creates")
    replication: int = Field(1, ge=1, le=9, description="Replication factor of topics that the worker creates")
    consumer_group: str = Field("fleetpulse", description="Kafka consumer group of the workers")
    session_timeout_s: int = Field(
        10,
        ge=3,
        le=300,
        description="A worker that is silent for this long is given up by the group, and its work moved",
    )
    record_bytes_max: int = Field(1_000_000, ge=10_000, description="Largest record that is written to Kafka")

    cluster: str = Field("default", description="Cluster of nodes whose resource has no k8s.cluster.name")
    identity: str = Field(
        "k8s.node.name,host.name,host.id", description="Resource attributes that name a node, the first present wins"
    )
    pool_by: str = Field(
        "host.type,cloud.region", description="Resource attributes whose values together name a node's pool of peers"
    )
    catalog: str | None = Field(None, description="A catalog file of your own, instead of the default 127 features")

    max_skew_s: int = Field(60, ge=1, description="A sample further ahead of its record's time than this is refused")
    series_per_node: int = Field(50_000, ge=1, description="Series kept for one node; more are refused and counted")
    nodes_per_shard: int = Field(20_000, ge=1, description="Nodes kept for one partition; more are refused and counted")
    chunk_span_s: int = Field(600, ge=10, le=900, description="Event time covered by one compressed chunk")
    open_chunk_s: int = Field(
        15, ge=0, description="How often a node's unfinished chunk is put into Redis for `fleetpulse series`; 0: never"
    )
    look_back_s: int = Field(1_200, ge=600, description="A series silent for longer than this is forgotten")
    publish_ms: int = Field(500, ge=10, le=1_000, description="Longest wait from a sample's arrival to its vector")
    train_after_s: int = Field(120, ge=10, description="Event time observed before the first forest is trained")
    seed: int = Field(1, description="Seed of everything random in training")

    metrics_host: str = Field("127.0.0.1", description="Address of the worker's Prometheus endpoint")
    metrics_port: int = Field(9464, ge=0, le=65535, description="Port of the Prometheus endpoint; 0 turns it off")
    log_format: Literal["text", "json"] = Field("text", description="Form of the worker's logs")
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(
        "INFO", description="Least severe level that is logged"
    )

    @field_validator("kafka_bootstrap")
    @classmethod
    def _bootstrap_has_ports(cls, value: str) -> str:
        for address in value.split(","):
            host, _, port = address.strip().rpartition(":")
            if not host or not port.isdigit():
                raise ValueError(f"{address!r} is not host:port")
        return value

    @model_validator(mode="after")
    def _chunks_fit_the_look_back(self) -> Settings:
        # A rebuilt shard must have seen an open span whole, or it would write other bytes under the same key.
        if self.chunk_span_s > self.look_back_s - WINDOW_S:
            raise ValueError(
                f"FLEETPULSE_CHUNK_SPAN_S={self.chunk_span_s} does not fit FLEETPULSE_LOOK_BACK_S={self.look_back_s}: "
                f"it may be {self.look_back_s - WINDOW_S} at most"
            )
        return self

    def topic(self, name: str) -> str:
        """Full name of one of our topics: nodes, features, chunks, anomalies, models, deadletter."""
        return f"{self.topic_prefix}.{name}"


def setting_names() -> list[str]:
    return [PREFIX + name.upper() for name in Settings.model_fields]


@lru_cache(maxsize=1)
def load_settings() -> Settings:
    """Settings from the environment. Raises UserError that names the variable; an unknown FLEETPULSE_* is refused."""
    known = set(setting_names())
    unknown = sorted(name for name in os.environ if name.upper().startswith(PREFIX) and name.upper() not in known)
    if unknown:
        raise UserError(f"{unknown[0]} is not a setting of fleetpulse: unset or rename it; README, Settings, has all")
    try:
        return Settings()
    except ValidationError as error:
        first = error.errors()[0]
        name = PREFIX + str(first["loc"][0]).upper() if first["loc"] else "settings"
        message = first["msg"].removeprefix("Value error, ")
        raise UserError(f"{name}: {message} (see `fleetpulse settings`)") from None
