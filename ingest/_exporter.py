"""KafkaMetricExporter: the opentelemetry-sdk's metrics straight into a Kafka topic, as OTLP protobuf.

For a program of one's own:

    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    exporter = KafkaMetricExporter("kafka-1:9092,kafka-2:9092")
    provider = MeterProvider([PeriodicExportingMetricReader(exporter, export_interval_millis=5_000)])
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from opentelemetry.sdk.metrics.export import AggregationTemporality, MetricExporter, MetricExportResult, MetricsData

from fleetpulse.ingest._exporter_request import RequestBatch

if TYPE_CHECKING:
    from kafka import KafkaProducer
    from kafka.producer.future import FutureRecordMetadata
    from opentelemetry.sdk.metrics.view import Aggregation

_log = logging.getLogger(__name__)

# What a record holds beside its value: batch and record headers.
RECORD_OVERHEAD_BYTES = 1_024
RETRY_S = 5.0


class KafkaMetricExporter(MetricExporter):
    """Writes collections as ExportMetricsServiceRequest records: key none, timestamp that of the newest point.

    Thread-safe. Connects at the first export (or `connect`). kafka-python's producer sends from a thread of its own.
    """

    def __init__(
        self,
        bootstrap: str = "127.0.0.1:9092",
        *,
        topic: str = "otlp_metrics",
        batch_collections: int = 1,
        batch_ms: int | None = None,
        record_bytes_max: int = 1_000_000,
        pending_bytes_max: int = 32_000_000,
        wait: bool = True,
        compression: str | None = "zstd",
        delivery_timeout_ms: int = 30_000,
        connect_timeout_ms: int = 5_000,
        starts_ns: Mapping[str, int] | None = None,
        security: Mapping[str, Any] | None = None,
        preferred_temporality: dict[type, AggregationTemporality] | None = None,
        preferred_aggregation: dict[type, Aggregation] | None = None,
    ) -> None:
        """bootstrap: host:port[,host:port...].

        A record is closed when it holds `batch_collections` collections, when its oldest collection is `batch_ms` old
        at the moment of an export (no timer runs: the next export notices), or when another point would make it larger
        than `record_bytes_max`; a larger collection is split between points.

        wait: an export that closes a record returns after its acknowledgement, so that SUCCESS means written. Without
        it, a record that is lost later makes the next export or flush report FAILURE.

        pending_bytes_max: bytes of records that are not acknowledged yet; what would exceed it is dropped, because
        kafka-python itself sets no limit.

        compression: of the records' values; gzip and zstd need nothing beyond our own dependencies.

        starts_ns: see RequestBatch. security: keyword arguments of kafka-python (security_protocol, ssl_cafile, ...).
        preferred_temporality: what the SDK should prefer to its own default, which is cumulative for every instrument.
        """
        super().__init__(preferred_temporality=preferred_temporality, preferred_aggregation=preferred_aggregation)
        self._bootstrap = bootstrap
        self._topic = topic
        self._batch_collections = batch_collections
        self._batch_s = None if batch_ms is None else batch_ms / 1000
        self._pending_bytes_max = pending_bytes_max
        self._wait = wait
        self._connect_timeout_ms = connect_timeout_ms
        self._producer_options = {
            "client_id": "fleetpulse-exporter",
            "acks": "all",
            # Repeats are harmless downstream; an idempotent producer needs rights that a plain writer may lack.
            "enable_idempotence": False,
            "compression_type": compression,
            "batch_size": record_bytes_max + RECORD_OVERHEAD_BYTES,
            "max_request_size": record_bytes_max + RECORD_OVERHEAD_BYTES,
            "request_timeout_ms": min(10_000, delivery_timeout_ms),
            "delivery_timeout_ms": delivery_timeout_ms,
            "reconnect_backoff_max_ms": 2_000,
            "metrics_enabled": False,
            **(security or {}),
        }
        self._batch = RequestBatch(bytes_max=record_bytes_max, starts_ns=starts_ns)
        self._batch_opened_s = 0.0
        self._export_lock = threading.Lock()
        self._producer: KafkaProducer | None = None
        self._try_again_s = 0.0
        self._shut = False
        # Shared with the producer's thread, under _state, which is notified when a record is settled.
        self._state = threading.Condition()
        self._pending_records = 0
        self._pending_bytes = 0
        self._failing = False
        self._unreported = 0
        self.sent_records = 0
        self.sent_bytes = 0
        self.lost_records = 0

    @property
    def refused_points(self) -> int:
        """Points that could not be encoded: larger than a record."""
        return self._batch.refused

    def connect(self, timeout_ms: int | None = None) -> None:
        """Connect now, and make sure that the topic can be written to.

        Raises kafka.errors.KafkaError, OSError or ValueError when no broker answers in time or the topic is unknown.
        """
        with self._export_lock:
            producer = self._connected(self._connect_timeout_ms if timeout_ms is None else timeout_ms)
            producer.partitions_for(self._topic)

    def export(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any) -> MetricExportResult:
        """Add a collection to the record being built; send it when it is due.

        FAILURE: a record was lost since the last call, could not be queued, or (with wait) was not acknowledged within
        timeout_millis. The SDK drops the collection then; nothing raises.
        """
        deadline_s = time.monotonic() + timeout_millis / 1000
        with self._export_lock:
            if self._shut:
                _log.warning("export after shutdown: dropped")
                return MetricExportResult.FAILURE
            if not self._batch.points:
                self._batch_opened_s = time.monotonic()
            try:
                records = self._batch.add(metrics_data)
            except Exception as error:  # An instrument's odd value must not take the program's reader down.
                self._lost(0, error)
                records = []
            if self._due() and (last := self._batch.take()) is not None:
                records.append(last)
            futures = [self._send(value, newest_ns, deadline_s) for value, newest_ns in records]
            if self._wait:
                self._await(futures, deadline_s)
            return MetricExportResult.FAILURE if self._take_unreported() else MetricExportResult.SUCCESS

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        """Send what has been collected and wait for its acknowledgement. False: not all was acknowledged in time, or a
        record was lost since the last report."""
        deadline_s = time.monotonic() + timeout_millis / 1000
        with self._export_lock:
            return self._flush(deadline_s)

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: Any) -> None:
        """Flush and close the connection, within the time-out; a second call does nothing."""
        # PeriodicExportingMetricReader names it `timeout`.
        deadline_s = time.monotonic() + float(kwargs.get("timeout", timeout_millis)) / 1000
        with self._export_lock:
            if self._shut:
                return
            self._flush(deadline_s)
            self._shut = True
            producer, self._producer = self._producer, None
        if producer is not None:
            # Its flush and its thread each get the whole time-out.
            _close(producer, max(0.0, deadline_s - time.monotonic()) / 2)

    def _due(self) -> bool:
        if self._batch.collections >= self._batch_collections:
            return True
        return self._batch_s is not None and time.monotonic() - self._batch_opened_s >= self._batch_s

    def _connected(self, timeout_ms: float) -> KafkaProducer:
        if self._producer is None:
            from kafka import KafkaProducer

            self._producer = KafkaProducer(
                bootstrap_servers=self._bootstrap.split(","),
                bootstrap_timeout_ms=max(1, int(timeout_ms)),
                **self._producer_options,
            )
        # How long a send may look for a topic that is not known yet.
        self._producer.config["max_block_ms"] = max(1, int(timeout_ms))
        return self._producer

    def _send(self, value: bytes, newest_ns: int, deadline_s: float) -> FutureRecordMetadata | None:
        size = len(value)
        with self._state:
            full = self._pending_bytes + size > self._pending_bytes_max
        if full:
            self._lost(1, BufferError(f"{self._pending_bytes} bytes wait for the broker's acknowledgement"))
            return None
        now_s = time.monotonic()
        if now_s < self._try_again_s:
            # Trying may take the whole time-out: not at every export.
            self._lost(1, ConnectionError(f"no connection to {self._bootstrap}"))
            return None
        try:
            left_ms = (deadline_s - now_s) * 1000
            producer = self._connected(min(self._connect_timeout_ms, left_ms))
            future = producer.send(self._topic, value, timestamp_ms=newest_ns // 1_000_000)
        except Exception as error:  # kafka-python raises its own errors, OSError, ValueError and AssertionError here.
            self._try_again_s = time.monotonic() + RETRY_S
            self._lost(1, error)
            return None
        with self._state:
            self._pending_records += 1
            self._pending_bytes += size
        # Either is called at once when the answer is already there, and by the producer's thread otherwise.
        future.add_callback(lambda _: self._acknowledged(size))
        future.add_errback(lambda error: self._failed(size, error))
        return future

    def _await(self, futures: list[FutureRecordMetadata | None], deadline_s: float) -> None:
        for future in futures:
            if future is None:
                continue
            try:
                future.get(timeout=max(0.0, deadline_s - time.monotonic()))
            except Exception as error:
                # A record that failed has been counted; one that is only slow may still arrive.
                if not future.is_done:
                    self._lost(0, error)

    def _flush(self, deadline_s: float) -> bool:
        last = self._batch.take()
        if last is not None:
            self._send(*last, deadline_s)
        # KafkaProducer.flush has its time-out for each partition, one after the other.
        with self._state:
            settled = self._state.wait_for(
                lambda: self._pending_records == 0, timeout=max(0.0, deadline_s - time.monotonic())
            )
        return not self._take_unreported() and settled

    def _acknowledged(self, size: int) -> None:
        with self._state:
            self._settle(size)
            self.sent_records += 1
            self.sent_bytes += size
            resumed, self._failing = self._failing, False
            lost = self.lost_records
        if resumed:
            _log.warning("%s: records are written again; %d lost so far", self._topic, lost)

    def _failed(self, size: int, error: BaseException) -> None:
        self._lost(1, error)
        with self._state:
            self._settle(size)

    def _settle(self, size: int) -> None:
        self._pending_records -= 1
        self._pending_bytes -= size
        self._state.notify_all()

    def _lost(self, records: int, error: BaseException) -> None:
        """Count a failure. Logged once, until a record is written again."""
        with self._state:
            self.lost_records += records
            self._unreported += 1
            first, self._failing = not self._failing, True
        if first:
            _log.error(
                "metrics could not be written to topic %s at %s (%s: %s); more failures are counted, not logged",
                self._topic,
                self._bootstrap,
                type(error).__name__,
                error,
            )

    def _take_unreported(self) -> int:
        with self._state:
            taken, self._unreported = self._unreported, 0
        return taken


def _close(producer: KafkaProducer, timeout_s: float) -> None:
    """Close within the time. KafkaProducer.close gives up with its threads running when its flush runs out of time."""
    try:
        producer.close(timeout=timeout_s)
    except Exception:
        with contextlib.suppress(Exception):
            producer._sender.force_close()
