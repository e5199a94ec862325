"""Logs from Python: an iterable of episodes.

An episode is a mapping with `observations` and `actions`, and optionally `next_observations`, `goals` and others; or a
pair (observations, actions). Observations may be a dictionary, whose entries become fields in the order of their names.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from gtrl.data.formats.columns import Catalog
from gtrl.data.formats.flat import NEXT, Layout, fields_of, to_array
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


def belongs(name: str, entry: str) -> bool:
    """Returns whether a field is an entry of an episode, such as `actions`, or a part of it: `actions/gripper`."""
    return name == entry or name.startswith(f"{entry}/")


def short_names(names: Collection[str]) -> dict[str, str]:
    """Returns the names of fields: without `observations/`, unless what is left is the name of another entry."""
    entries = {name.partition("/")[0] for name in names}
    short = {name: name.removeprefix("observations/") for name in names}
    return {name: name if each.partition("/")[0] in entries else each for name, each in short.items()}


def episodes_source(source: Iterable[Any]) -> Source:
    """Reads all episodes of an iterable."""
    parts = [_parts(f"episode {number}", each) for number, each in enumerate(source)]
    if not parts:
        raise DataError("the log has no episodes.")
    short = short_names({name for _, rows, _ in parts for name in rows})
    first = {short[name]: values for name, values in parts[0][1].items()}
    layouts: dict[str, Layout | str] = {name: (values.shape, values.dtype) for name, values in first.items()}
    fields, unusable = fields_of(layouts)
    observed = [short[name] for name in parts[0][1] if belongs(name, "observations")]
    observation, goal = goal_env_defaults([name for name in observed if name in fields] or observed)
    goal = ["goals"] if "goals" in parts[0][1] else goal
    catalog = Catalog(fields, observation, [name for name in first if belongs(name, "actions")], goal, unusable)

    def episodes(wanted: Collection[str]) -> Iterator[RawEpisode]:
        for label, rows, after in parts:
            found = {short[name]: values for name, values in rows.items()}
            missing = [name for name in wanted if name not in found]
            if missing:
                raise DataError(f"{label} has no {missing[0]!r}.")
            final = {short[name]: values for name, values in after.items() if name in short}
            yield RawEpisode(label, {name: found[name] for name in wanted}, final)

    return Source({"format": "python"}, catalog, episodes)


Parts = tuple[str, dict[str, np.ndarray], dict[str, np.ndarray]]


def _parts(label: str, episode: Any) -> Parts:
    """Returns an episode's label, its arrays by name, and the state after its last action."""
    if isinstance(episode, tuple) and len(episode) == 2:
        episode = {"observations": episode[0], "actions": episode[1]}
    if not isinstance(episode, Mapping):
        kind = type(episode).__name__
        raise DataError(f"{label} is of type {kind}, not a mapping or a pair (observations, actions).")
    for key in ("observations", "actions"):
        if episode.get(key) is None:
            raise DataError(f"{label} has no {key!r}; it has {', '.join(map(str, episode)) or 'nothing'}.")
    rows = _arrays(label, {key: value for key, value in episode.items() if key != NEXT})
    after = _arrays(label, {"observations": episode.get(NEXT)})
    return label, rows, {name: values[-1:] for name, values in after.items()}


def _arrays(label: str, entries: Mapping[Any, Any], prefix: str = "") -> dict[str, np.ndarray]:
    """Returns the arrays of a nested dictionary, in the order of their names, which are joined by slashes."""
    found: dict[str, np.ndarray] = {}
    for key in sorted(entries, key=str):
        name, value = f"{prefix}{key}", entries[key]
        inner = _arrays(label, value, f"{name}/") if isinstance(value, Mapping) else _array(label, name, value)
        repeated = found.keys() & inner.keys()
        if repeated:
            raise DataError(f"{label} has two arrays called {min(repeated)!r}.")
        found |= inner
    return found


def _array(label: str, name: str, value: Any) -> dict[str, np.ndarray]:
    if value is None:
        return {}
    array = to_array(label, name, value)
    return {} if array.ndim == 0 else {name: array}  # a number for the whole episode, such as its seed
