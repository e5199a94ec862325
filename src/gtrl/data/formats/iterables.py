"""Logs from Python: an iterable of episodes.

An episode is a mapping with `observations` and `actions`, and optionally `next_observations`, `goals` and others; or a
pair (observations, actions). Observations may be a dictionary, whose entries become fields in the order of their names.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from gtrl.data.formats.columns import Catalog
from gtrl.data.formats.flat import NEXT, Layout, fields_of
from gtrl.data.formats.log import RawEpisode, Source
from gtrl.errors import DataError


def goal_env_defaults(names: Collection[str]) -> tuple[list[str], list[str]]:
    """Returns the default fields of observation and goal among the entries of a dictionary observation.

    A goal environment of Gymnasium logs `observation`, `achieved_goal` and `desired_goal`; the achieved goal is the
    one that says where a state is. Other dictionaries are flattened in the order of their names.
    """
    if "observation" in names and "achieved_goal" in names:
        return ["observation"], ["achieved_goal"]
    return sorted(names), []


def episodes_source(source: Iterable[Any]) -> Source:
    """Reads all episodes of an iterable."""
    parts = [_parts(f"episode {number}", each) for number, each in enumerate(source)]
    if not parts:
        raise DataError("the log has no episodes.")
    _, observed, others, _ = parts[0]
    layouts: dict[str, Layout | str] = {
        name: (values.shape, values.dtype) for name, values in {**others, **observed}.items()
    }
    fields, unusable = fields_of(layouts)
    observation, goal = goal_env_defaults([name for name in observed if name in fields] or list(observed))
    goal = ["goals"] if "goals" in others else goal
    catalog = Catalog(fields, observation, ["actions"], goal, unusable)

    def episodes(wanted: Collection[str]) -> Iterator[RawEpisode]:
        for label, observed, others, after in parts:
            rows = {**others, **observed}
            missing = [name for name in wanted if name not in rows]
            if missing:
                raise DataError(f"{label} has no {missing[0]!r}.")
            yield RawEpisode(label, {name: rows[name] for name in wanted}, after)

    return Source({"format": "python"}, catalog, episodes)


Parts = tuple[str, dict[str, np.ndarray], dict[str, np.ndarray], dict[str, np.ndarray]]


def _parts(label: str, episode: Any) -> Parts:
    """Returns an episode's label, observations by name, other arrays, and the state after its last action."""
    if isinstance(episode, tuple) and len(episode) == 2:
        episode = {"observations": episode[0], "actions": episode[1]}
    if not isinstance(episode, Mapping):
        kind = type(episode).__name__
        raise DataError(f"{label} is of type {kind}, not a mapping or a pair (observations, actions).")
    for key in ("observations", "actions"):
        if episode.get(key) is None:
            raise DataError(f"{label} has no {key!r}; it has {', '.join(map(str, episode)) or 'nothing'}.")
    observed = dict(_arrays(label, "observations", episode["observations"]))
    following = episode.get(NEXT)
    after = {} if following is None else dict(_arrays(label, "observations", following))
    others = {str(key): value for key, value in episode.items() if key not in ("observations", NEXT)}
    kept = {name: array for key, value in others.items() for name, array in _arrays(label, key, value, key)}
    return label, observed, kept, {name: values[-1:] for name, values in after.items()}


def _arrays(label: str, name: str, value: Any, prefix: str = "") -> Iterator[tuple[str, np.ndarray]]:
    """Yields the arrays of a nested dictionary with their names, which are joined by slashes."""
    if isinstance(value, Mapping):
        for key in sorted(value, key=str):
            yield from _arrays(label, joined := f"{prefix}/{key}".lstrip("/"), value[key], joined)
        return
    if value is None:
        return
    try:
        array = np.asarray(value)
    except ValueError as cause:
        raise DataError(f"{label}: the rows of {name!r} differ in length.") from cause
    if array.ndim == 0:
        return  # a number for the whole episode, such as its seed
    yield name, array
