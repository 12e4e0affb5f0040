"""The catalog as a page for people: docs/features.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleetpulse.features._catalog import Catalog, Feature, Measure, SeriesSet

_INTRODUCTION = """# The features of a node

A vector has one value for each of these {n} features, in this order. It is a float32; NaN says that the value is
missing, which never means zero. Each value has a status and an age.

Schema hash of this list: `{schema}`. A vector, a catalog and a model fit together only
when theirs are equal. This page is written from `features/catalog.toml` (`fleetpulse catalog --markdown`).

## What a value rests on

*Window* is a stretch of the node's own event time: `5m` is (t_end - 300 s, t_end], `1m` the last 60 seconds of it,
where t_end is the time of the node's newest sample. *Source* names the series by their canonical metric; `a / b` is a
quotient. A choice is tried from left to right, and what was used is published with the vector.

| aggregate | of levels (gauges) | of counters |
| --- | --- | --- |
| last | newest value of every series that still reports | newest rate |
| increase, rate | - | from the sample before the window to the newest; nothing is extrapolated |
| mean, share_above | weighted by the time since the sample before (1) | of the rate at each scrape, weighted likewise |
| min, max, std, slope, p50 to p999 | of the values at each scrape (2) | of the rates at each scrape |

(1) After a hole a level counts for the usual interval only, a rate for all the time that it was counted over.
(2) Quantiles are exact, between neighbours linear. Those of histograms are of what was observed in the window, all
services of the node merged.

| status | says |
| --- | --- |
| ok | the newest sample is at most 2 usual intervals + 5 s old, and samples speak for at least 95 % of the window |
| partial | samples speak for less: the worker has just begun, or some are missing |
| stale | the newest sample is older |
| missing | nothing in the window to compute it from |

Beside a quantile of a histogram stands a mark where there is something to say: `saturated` (it lies above the last
bound, and the value is that bound), `single bucket`, or why it is missing.

## A feature of your own

Put rows like these in a file and name it in `FLEETPULSE_CATALOG`. Its features follow the default ones; without the
first line they stand alone. A mistake is reported with its line. How to write rows is said at the top of
`features/catalog.toml`.

```toml
extends = "default"

[source.queue]
metrics = ["app.queue.length"]
where = {{ queue = "orders|bills" }}

[[feature]]
name = "queue_p90_1m"
group = "app"
unit = "{{item}}"
window = "1m"
of = "queue"
aggregate = "p90"
doc = "Items that wait."
```
"""

_TABLE_HEAD = "| # | name | unit | window | source | meaning |\n| --- | --- | --- | --- | --- | --- |\n"

_CONTEXT = {
    "time_of_day_sine": "time of the vector",
    "time_of_day_cosine": "time of the vector",
    "pending_pods": "fleet",
    "region_load": "fleet",
}


def render(catalog: Catalog) -> str:
    """Markdown of the whole catalog, one table for each group, in the order of the columns."""
    parts = [_INTRODUCTION.format(n=len(catalog.features), schema=catalog.schema_hash.hex())]
    group = None
    for column, feature in enumerate(catalog.features):
        if feature.group != group:
            group = feature.group
            parts.append(f"\n## {group}\n\n{_TABLE_HEAD}")
        cells = (str(column), f"`{feature.name}`", feature.unit, feature.window, _source(feature), feature.doc)
        parts.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n")
    return "".join(parts)


def _source(feature: Feature) -> str:
    if feature.context is not None:
        return _CONTEXT[feature.context]
    if len(feature.measures) == 1:
        return _measure(feature.measures[0])
    return "; ".join(f"*{measure.name}*: {_measure(measure)}" for measure in feature.measures)


def _measure(measure: Measure) -> str:
    text = _set(measure.of)
    if measure.per is not None:
        text += f" / {_set(measure.per)}"
    if measure.complement:
        text = f"1 - {text}"
    if measure.give != "value":
        return f"{measure.aggregate} ({measure.give}) of {text}"
    return f"{measure.aggregate} of {text}"


def _set(series_set: SeriesSet) -> str:
    labels = ", ".join(f"{label}={expression}" for label, expression in series_set.where)
    text = " + ".join(f"`{metric}`" for metric in series_set.metrics) + (f" {{{labels}}}" if labels else "")
    if series_set.combine == "count":
        return f"count of {text}"
    if series_set.each:
        return f"{series_set.across} by {', '.join(series_set.each)} of {text}"
    return text
