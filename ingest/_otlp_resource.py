"""Which node a resource belongs to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from google.protobuf.message import DecodeError
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from fleetpulse.features._series import NodeId
from fleetpulse.ingest._otlp import OtlpError

CLUSTER_ATTRIBUTE = "k8s.cluster.name"


def parse_resource(raw: bytes, at: int) -> Resource:
    """at: where the resource begins in its request, for the error. Raises OtlpError."""
    try:
        return Resource.FromString(raw)
    except DecodeError:
        raise OtlpError("resource", "a resource cannot be read", at) from None


def plain_texts(attributes: Iterable[KeyValue]) -> dict[str, str]:
    """Attributes whose value is a string that is not empty, or an integer, as text.

    Of a repeated name the greatest value counts, so that the order of attributes does not matter.
    """
    texts: dict[str, str] = {}
    for attribute in attributes:
        which = attribute.value.WhichOneof("value")
        if which == "string_value":
            text = attribute.value.string_value
        elif which == "int_value":
            text = str(attribute.value.int_value)
        else:
            continue
        if text:
            texts[attribute.key] = max(text, texts.get(attribute.key, ""))
    return texts


def node_of(texts: dict[str, str], identity: Sequence[str], default_cluster: str) -> NodeId | None:
    """The node by the first attribute of `identity` that is present; None for an unattributed resource."""
    for name in identity:
        if name in texts:
            return NodeId(texts.get(CLUSTER_ATTRIBUTE, default_cluster), texts[name])
    return None
