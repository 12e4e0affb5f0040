"""Node anomalies: feature vectors in, scores, verdicts and events with reasons out. Pure; event time only."""

from __future__ import annotations

from fleetpulse.anomaly._detector import VERDICTS, Detector, Slide
from fleetpulse.anomaly._event import Event, EventError, Reason
from fleetpulse.anomaly._model import Model, ModelError, TrainingData
from fleetpulse.anomaly._settings import DetectorSettings
from fleetpulse.anomaly._train import train

__all__ = [
    "VERDICTS",
    "Detector",
    "DetectorSettings",
    "Event",
    "EventError",
    "Model",
    "ModelError",
    "Reason",
    "Slide",
    "TrainingData",
    "train",
]
