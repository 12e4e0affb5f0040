"""`fleetpulse worker`."""

from __future__ import annotations


def worker_command() -> None:
    """Run a stream worker until it is told to stop (Ctrl-C or SIGTERM).

    Reads OTLP metrics from Kafka, writes feature vectors to Kafka and Redis, compressed chunks and anomalies to Kafka.
    Start as many as there are partitions; they share the work and take over from one another. All settings come from
    the environment (`fleetpulse settings`).
    """
    from fleetpulse.ingest._logging import set_up_logging
    from fleetpulse.ingest._settings import load_settings

    settings = load_settings()
    set_up_logging(settings.log_format, settings.log_level)
    from fleetpulse.ingest._worker import Worker

    Worker(settings).run()
