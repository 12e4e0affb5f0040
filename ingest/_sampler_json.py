"""Collections as OTLP/JSON lines, the form that the Collector's file exporter writes and `fleetpulse replay` reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TextIO

from google.protobuf.json_format import MessageToJson
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult, MetricsData

from fleetpulse.ingest._exporter_request import RequestBatch

# A line may be as long as it likes.
REQUEST_BYTES_MAX = 1 << 30


class JsonLinesExporter(MetricExporter):
    """Writes each collection as one line."""

    def __init__(self, out: TextIO, starts_ns: Mapping[str, int]) -> None:
        super().__init__()
        self._out = out
        self._batch = RequestBatch(bytes_max=REQUEST_BYTES_MAX, starts_ns=starts_ns)

    def export(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any) -> MetricExportResult:
        self._batch.add(metrics_data)
        taken = self._batch.take()
        if taken is not None:
            message = ExportMetricsServiceRequest.FromString(taken[0])
            # Exemplars' trace ids would come out in base64 where OTLP wants hexadecimal; the sampler has no exemplars.
            self._out.write(MessageToJson(message, indent=None, use_integers_for_enums=True) + "\n")
            self._out.flush()
        return MetricExportResult.SUCCESS

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        self._out.flush()
        return True

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: Any) -> None:
        self._out.flush()
