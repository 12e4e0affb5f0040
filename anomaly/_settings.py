"""What can be set about a detector, with the reasons for the defaults."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class DetectorSettings:
    """Times are event time, in seconds. Deviations are in robust standard deviations ("sigmas").

    The defaults keep to one false node event per 100 nodes and day on simulated fleets.
    """

    train_after_s: int = 120
    """Event time observed before the first forest is asked for."""
    retrain_every_s: int = 6 * 3600
    """Longest age of a forest. The first ones are replaced sooner, whenever what was observed has doubled."""
    reservoir_rows: int = 20_000
    rows_min: int = 256
    """A forest of fewer rows than this would know nothing; small pools wait for it."""

    covered_min_s: int = 60
    """A node whose window covers less is not judged."""
    silent_after_s: int = 30
    """A node is silent after this, or after three of its scrape intervals and 5 s when that is longer."""

    peers_min: int = 5
    """Nodes that must report a feature before their median says what is shared. Below, a node has only itself."""
    ready_slides: int = 24
    """Slides of a node's own baseline before it is compared with it, among peers."""
    ready_slides_alone: int = 360
    """The same for a node without peers: half an hour, because nothing else tells load from fault."""
    memory_slides: int = 4320
    """Length of the baseline's memory, 6 h."""

    sigmas: float = 8.0
    """Deviation from baseline and peers that is flagged, once the baseline is old."""
    sigmas_alone: float = 12.0
    sigmas_fleet: float = 6.0
    false_events_per_node_day: float = 0.01
    """The budget that the forest's threshold is set by."""

    open_slides: int = 2
    """Slides in a row that open an event."""
    resolve_slides: int = 6
    resolve_below: float = 0.6
    """Share of the threshold that a node must stay below for resolve_slides before its event ends."""
    update_every_s: int = 300
    """An open event is told again at least this often, and when severity changes or the first reason is a new one (at
    most once every 30 s)."""
    accept_fleet_s: int = 600
    """A shift of the whole pool that lasts is the new normal after this."""
    accept_node_s: int = 24 * 3600
    """A node that stays where it went is compared with its new level after this."""
    forget_s: int = 6 * 3600
    """A node that has been gone this long is forgotten, and its open event resolved."""
