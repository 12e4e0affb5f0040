"""The worker's own metrics, for Prometheus."""

from __future__ import annotations

import errno

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from fleetpulse.ingest._errors import UserError

REFUSAL_KINDS = (
    "accepted",
    "duplicates",
    "out_of_order",
    "late",
)


class WorkerTelemetry:
    """One registry per worker, so that tests can run several in a process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        r = self.registry
        self.records = Counter("fleetpulse_records", "Records read", ["topic"], registry=r)
        self.record_bytes = Counter("fleetpulse_record_bytes", "Bytes of records read", ["topic"], registry=r)
        self.samples = Counter(
            "fleetpulse_samples",
            "Samples by what became of them: accepted, duplicates, late, ...",
            ["outcome"],
            registry=r,
        )
        self.refused = Counter(
            "fleetpulse_refused", "Samples, metrics or resources refused, by reason", ["reason"], registry=r
        )
        self.dead_letters = Counter(
            "fleetpulse_dead_letters", "Records or metrics sent to the dead-letter topic", ["reason"], registry=r
        )
        self.vectors = Counter("fleetpulse_vectors", "Feature vectors published", registry=r)
        self.chunks = Counter("fleetpulse_chunks", "Compressed chunks published", registry=r)
        self.chunk_bytes = Counter("fleetpulse_chunk_bytes", "Bytes of compressed chunks published", registry=r)
        self.chunk_samples = Gauge("fleetpulse_open_chunk_samples", "Samples waiting in open chunks", registry=r)
        self.events = Counter("fleetpulse_anomaly_events", "Anomaly events published", ["state", "scope"], registry=r)
        self.lag = Gauge(
            "fleetpulse_event_time_lag_seconds", "Now minus the newest sample of a partition", ["partition"], registry=r
        )
        self.publication = Histogram(
            "fleetpulse_publication_seconds",
            "From the record's timestamp to its node's vector being in Kafka and Redis",
            buckets=(0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60),
            registry=r,
        )
        self.series = Gauge("fleetpulse_series", "Series known", registry=r)
        self.nodes = Gauge("fleetpulse_nodes", "Nodes known", registry=r)
        self.partitions = Gauge("fleetpulse_partitions", "Partitions assigned", ["topic"], registry=r)
        self.redis_up = Gauge("fleetpulse_redis_up", "1 while Redis takes what is written", registry=r)
        self.redis_pending = Gauge("fleetpulse_redis_pending", "Vectors waiting for Redis to return", registry=r)
        self.training = Gauge("fleetpulse_training_seconds", "Duration of the last training", ["pool"], registry=r)
        self.lost = Counter(
            "fleetpulse_lost_records", "Records deleted by retention before they were read", ["topic"], registry=r
        )

    def serve(self, host: str, port: int) -> None:
        """Raises UserError when the port is taken."""
        try:
            start_http_server(port, host, registry=self.registry)
        except OSError as error:
            what = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be opened ({error.strerror})"
            raise UserError(
                f"Port {port} on {host} {what}: set FLEETPULSE_METRICS_PORT to a free one, or to 0 for none"
            ) from None
