"""OTLP/JSON into the protobuf bytes that mean the same.

Source: OpenTelemetry protocol specification, "JSON Protobuf Encoding": enums are integers (names are taken too),
64-bit integers are strings or numbers, trace and span ids are hexadecimal, other bytes base64, unknown fields ignored.
"""

from __future__ import annotations

import base64
import json
from typing import Any

from google.protobuf import json_format
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from fleetpulse.ingest._otlp import DEPTH_MAX, OtlpError, read_request

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_WHITESPACE = b" \t\r\n"
_HEX_FIELDS = ("traceId", "spanId", "trace_id", "span_id")


def looks_like_json(raw: bytes) -> bool:
    """Whether the bytes are meant as JSON. A protobuf request may begin with white space: its first byte is 0x0A."""
    head = raw[:64].removeprefix(BYTE_ORDER_MARK).lstrip(_WHITESPACE)
    if not head:
        head = raw.removeprefix(BYTE_ORDER_MARK).lstrip(_WHITESPACE)[:1]
    if not head.startswith(b"{"):
        return False
    if raw[0] != 0x0A:
        return True
    try:
        read_request(raw)
    except OtlpError:
        return True
    return False


def json_to_proto(raw: bytes) -> bytes:
    """Raises OtlpError: `json` for text that is not an OTLP request, `not_metrics` for one without resource metrics.

    Slow: a walk over Python objects.
    """
    try:
        tree = json.loads(raw.removeprefix(BYTE_ORDER_MARK))
    except json.JSONDecodeError as error:
        raise OtlpError("json", error.msg, error.pos) from None
    except RecursionError:
        raise OtlpError("nesting", "the JSON nests too deep") from None
    except ValueError as error:
        raise OtlpError("json", str(error)) from None
    if not isinstance(tree, dict) or not ("resourceMetrics" in tree or "resource_metrics" in tree):
        raise OtlpError("not_metrics", "the JSON has no resourceMetrics", 0)
    try:
        _hex_to_base64(tree)
        request = json_format.ParseDict(
            tree, ExportMetricsServiceRequest(), ignore_unknown_fields=True, max_recursion_depth=DEPTH_MAX
        )
    except (json_format.ParseError, TypeError, ValueError, AttributeError) as error:
        raise OtlpError("json", str(error)) from None
    except RecursionError:
        raise OtlpError("nesting", "the JSON nests too deep") from None
    return request.SerializeToString()


def _hex_to_base64(tree: Any) -> None:
    """Rewrite the ids of exemplars, which protobuf's reader expects in base64."""
    pending = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, list):
            pending.extend(node)
            continue
        if not isinstance(node, dict):
            continue
        for name, value in node.items():
            if name in _HEX_FIELDS and isinstance(value, str):
                node[name] = base64.b64encode(bytes.fromhex(value)).decode()
            elif isinstance(value, (list, dict)):
                pending.append(value)
