"""OTLP from Kafka in, through the other folders, Kafka and Redis out: the only place that knows clock and environment.

KafkaMetricExporter is for applications that export their own metrics; everything else is behind the console command.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fleetpulse.ingest._exporter import KafkaMetricExporter

__all__ = ["KafkaMetricExporter"]


def __getattr__(name: str) -> Any:
    # Imported when first used: the console command should not load the SDK for every subcommand.
    if name == "KafkaMetricExporter":
        from fleetpulse.ingest._exporter import KafkaMetricExporter

        return KafkaMetricExporter
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
