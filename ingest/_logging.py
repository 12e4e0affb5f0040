"""Structured logs: one line an event, as text for people or JSON for machines."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

_PLAIN = set(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in record.__dict__.items() if name not in _PLAIN}


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            entry["error"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


class TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created).strftime("%H:%M:%S.%f")[:-3]
        text = f"{time} {record.levelname:<7} {record.getMessage()}"
        fields = " ".join(f"{name}={value}" for name, value in _fields(record).items() if name not in ("data", "stack"))
        if fields:
            text += f"  [{fields}]"
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        return text


def set_up_logging(log_format: str, level: str) -> None:
    """Everything to standard error. Faust's and Kafka's own chatter only from warnings up."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("fleetpulse").setLevel(level)
    # kafka-python is used for topics alone, and what it cannot do is told as an error of ours.
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
