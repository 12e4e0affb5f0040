"""The Faust app: how it connects, and the settings that matter."""

from __future__ import annotations

import os
import tempfile
from typing import Any

import faust

from fleetpulse.ingest._errors import UserError
from fleetpulse.ingest._settings import Settings
from fleetpulse.ingest._topics import kafka_security
from fleetpulse.ingest._transport import ReplayContext, ReplayingTransport, StateKeeper, ssl_context


def make_app(settings: Settings, keeper: StateKeeper, topics: frozenset[str]) -> Any:
    """An app without agents. keeper is asked on every assignment; records of topics come in batches."""
    s = settings
    security = kafka_security(s)
    credentials = None
    if s.kafka_security != "PLAINTEXT":
        tls = ssl_context(s.kafka_ca_file) if s.kafka_security.endswith("SSL") else None
        security["ssl_context"] = tls
        credentials = _credentials(s, tls)
    app = faust.App(
        s.consumer_group,
        broker=[f"kafka://{address.strip()}" for address in s.kafka_bootstrap.split(",")],
        broker_credentials=credentials,
        broker_client_id=f"fleetpulse-{os.getpid()}",
        # With these a worker joins or is missed in seconds; Faust's own take half a minute.
        broker_session_timeout=float(s.session_timeout_s),
        broker_rebalance_timeout=float(s.session_timeout_s),
        broker_heartbeat_interval=s.session_timeout_s / 10,
        # A poll's worth is handled without a pause for the other partitions: small enough to take them in turn.
        broker_max_poll_records=500,
        consumer_max_fetch_size=4 * 2**20,
        consumer_auto_offset_reset="earliest",
        stream_buffer_maxsize=16,
        stream_recovery_delay=0.0,
        stream_wait_empty=False,
        topic_disable_leader=True,
        topic_allow_declare=False,
        producer_acks=-1,
        producer_linger=0.005,
        producer_compression_type="zstd",
        producer_max_batch_size=262_144,
        producer_max_request_size=2 * s.record_bytes_max,
        web_enabled=False,
        store="memory://",
        autodiscover=False,
        # Faust keeps nothing on disk here, but makes its folder at start-up.
        datadir=os.path.join(tempfile.gettempdir(), f"fleetpulse-faust-{os.getuid()}"),
    )
    context = ReplayContext(keeper, topics, tuple(s.kafka_bootstrap.split(",")), security)
    app.transport = ReplayingTransport(app.conf.broker_consumer, app, context)
    return app


def group_refusal(settings: Settings, error: BaseException) -> UserError:
    """What to do when the consumer group does not take this worker."""
    group = settings.consumer_group
    said = repr(error)
    if "InvalidSessionTimeout" in said:
        return UserError(
            f"the brokers refuse a session time-out of {settings.session_timeout_s} s: set "
            "FLEETPULSE_SESSION_TIMEOUT_S between their group.min.session.timeout.ms and group.max.session.timeout.ms "
            "(6 s and 30 min unless configured)"
        )
    if "Authorization" in said:
        return UserError(
            f"the brokers do not let this client consume as group {group} ({said}): allow it to read the group and "
            "the topics, or set FLEETPULSE_CONSUMER_GROUP"
        )
    return UserError(
        f"the worker cannot be a member of group {group} ({said}): see the brokers' logs; if other programs use the "
        "group, set FLEETPULSE_CONSUMER_GROUP to a name of its own"
    )


def _credentials(settings: Settings, context: Any) -> Any:
    if settings.kafka_security == "SSL":
        return faust.SSLCredentials(context)
    assert settings.kafka_password is not None, "kafka_security() has checked it"
    return faust.SASLCredentials(
        username=settings.kafka_username,
        password=settings.kafka_password.get_secret_value(),
        mechanism=settings.kafka_sasl_mechanism,
        ssl_context=context,
    )
