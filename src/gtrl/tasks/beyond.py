"""Variants of GTRL that are not in the paper: which fields each one changes. docs/beyond.md explains them.

`gtrl sweep beyond` compares them; `gtrl-waypoints-x10` is also the preset `waypoints` of the method.
"""

from collections.abc import Mapping
from typing import Any

BEYOND: Mapping[str, Mapping[str, Any]] = {
    "gtrl-waypoints": {"waypoint": "state"},
    "gtrl-bounds": {"waypoint": "state", "selection": "bound", "bound_weight": 10.0},
    "gtrl-waypoints-x10": {"waypoint": "state", "bound_weight": 10.0},
    "gtrl-waypoints-random": {"waypoint": "random"},
    "gtrl-waypoints-target": {"waypoint": "state", "waypoint_product": "target"},
    "gtrl-densities": {"hindsight_reads": "densities"},
}
