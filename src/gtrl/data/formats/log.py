"""A log in memory, and the assembly of its arrays from episodes."""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from gtrl.data.formats.columns import Catalog, Column, commanded, pick
from gtrl.errors import DataError

NO_SUCCESSOR = "the state after the last action of an episode is not logged, so that this action is not a transition"


@dataclass(frozen=True)
class Log:
    """A log that was read from another format, in the layout of a dataset file."""

    arrays: dict[str, np.ndarray]  # observations, actions (NaN where none was logged), terminals; goals if chosen
    columns: dict[str, list[str]]  # observation, goal, action: a name for each column
    choice: dict[str, Any]  # of the observation's columns, as `Data.choice`
    action_low: np.ndarray | None  # bounds that the format knows
    action_high: np.ndarray | None
    source: dict[str, Any]  # format, path or id, and notes: what the format could not carry


class RawEpisode(NamedTuple):
    """An episode as its format holds it."""

    label: str  # for messages
    rows: Mapping[str, np.ndarray]  # by field
    after: Mapping[str, np.ndarray] = {}  # one row: fields of the state after the last action, where logged separately


class Episode(NamedTuple):
    """The chosen columns of an episode."""

    label: str
    observations: np.ndarray  # (L, d), or (L + 1, d) with the state after the last action
    actions: np.ndarray  # (L, a), or as many rows as observations
    goals: np.ndarray | None = None  # as many rows as observations
    final_observation: np.ndarray | None = None  # (1, d), if observations do not include it
    final_goal: np.ndarray | None = None


@dataclass(frozen=True)
class Source:
    """An opened log, before its columns are chosen. Each format has a function that makes one."""

    origin: dict[str, Any]  # format, and path or id
    catalog: Catalog
    episodes: Callable[[Collection[str]], Iterable[RawEpisode]]  # reads only the given fields
    bounds: Mapping[str, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)  # of actions, by field
    notes: Sequence[str] = ()


Selectors = Sequence[str] | str | None


def read_source(source: Source, observation: Selectors, goal: Selectors, action: Selectors) -> Log:
    """Reads the chosen columns of a log."""
    catalog = source.catalog
    observed = catalog.choose(observation, "observation")
    acted = catalog.choose(action, "action")
    goals = catalog.choose(goal, "goal", observed)
    fields = {column.field for column in (*observed, *acted, *goals)}
    notes: list[str] = []
    episodes = [_chosen(each, catalog, observed, acted, goals, notes) for each in source.episodes(fields)]
    notes = [*source.notes, *notes]  # reading may have added some
    notes += [
        f"{name!r} is the commanded goal, which says little about what an action reaches: prefer the achieved one"
        for name in commanded(goals)
    ]
    arrays = assemble(episodes, notes)
    columns = {role: catalog.names(chosen) for role, chosen in (("observation", observed), ("action", acted))}
    columns["goal"] = catalog.names(goals or observed)
    low, high = _bounds(source, acted)
    choice = {} if observation is None else _choice(catalog, observed)
    return Log(arrays, columns, choice, low, high, {**source.origin, "notes": list(dict.fromkeys(notes))})


def _choice(catalog: Catalog, observed: list[Column]) -> dict[str, Any]:
    """Returns where the chosen columns are among all those of the default observation; empty if they are not."""
    try:
        every = catalog.choose(None, "observation")
    except DataError:  # there is no default observation
        return {}
    if not set(observed) <= set(every):
        return {}
    return {
        "observation_indices": [every.index(column) for column in observed],
        "log_observation_dim": len(every),
    }


def _chosen(
    episode: RawEpisode,
    catalog: Catalog,
    observed: list[Column],
    acted: list[Column],
    goals: list[Column],
    notes: list[str],
) -> Episode:
    """Picks the chosen columns, and the state after the last action if all of its columns are there."""
    if any(len(episode.rows[column.field]) == 0 for column in observed):
        raise DataError(f"{episode.label} is empty: leave it out.")
    for name, values in (*episode.rows.items(), *episode.after.items()):
        if values.dtype.kind not in "biuf":
            raise DataError(f"{name!r} does not hold real numbers in {episode.label}.")
        width, expected = math.prod(values.shape[1:]), len(catalog.fields.get(name, ()))
        if width != expected:
            raise DataError(f"{name!r} has {width} columns in {episode.label}, where it has {expected} in others.")
    missing = {column.field for column in (*observed, *goals)} - set(episode.after)
    if missing and episode.after:
        notes.append(f"{min(missing)!r} is not logged after the last action, so the state after it is left out")
    actions = pick(episode.rows, acted)
    has_final = bool(episode.after) and not missing and not np.isnan(actions[-1:]).all()  # else no action leads to it
    return Episode(
        episode.label,
        pick(episode.rows, observed),
        actions,
        pick(episode.rows, goals) if goals else None,
        pick(episode.after, observed) if has_final else None,
        pick(episode.after, goals) if has_final and goals else None,
    )


def _bounds(source: Source, acted: list[Column]) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Returns the bounds of the chosen actions, if the format has finite ones for all of them."""
    if any(column.field not in source.bounds for column in acted):
        return None, None
    low, high = (
        np.array([source.bounds[name][side].reshape(-1)[index] for name, index in acted], np.float64) for side in (0, 1)
    )
    if not (np.isfinite(low) & np.isfinite(high) & (low <= high)).all():
        return None, None
    return low, high


def assemble(episodes: Sequence[Episode], notes: list[str]) -> dict[str, np.ndarray]:
    """Concatenates episodes to the arrays of a dataset file, and appends to `notes` what is not in them.

    An episode with L transitions gets L + 1 rows; its last row of actions is NaN where no action was logged.
    """
    if not episodes:
        raise DataError("the log has no episodes.")
    parts = [_rows(episode) for episode in episodes]
    observations, actions = (np.concatenate([part[index] for part in parts]) for index in (0, 1))
    last = np.cumsum([len(part[0]) for part in parts]) - 1
    terminals = np.zeros(len(observations), bool)
    terminals[last] = True
    arrays = {"observations": observations, "actions": actions, "terminals": terminals}
    if episodes[0].goals is not None:
        arrays["goals"] = np.concatenate([part[2] for part in parts])
    unlogged = terminals & np.isnan(actions).all(1)
    for key in ("observations", "goals", "actions"):
        bad = ~np.isfinite(arrays[key]).all(1) if key in arrays else np.zeros(0, bool)
        if key == "actions":
            bad &= ~unlogged
        if bad.any():
            row = int(np.argmax(bad))
            number = int(np.searchsorted(last, row))
            step = row - (last[number - 1] + 1 if number else 0)
            raise DataError(f"the {key} hold NaN or infinity, first in {episodes[number].label}, step {step}.")
    if not unlogged[last].all():
        notes.append(NO_SUCCESSOR)
    return arrays


def _rows(episode: Episode) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the rows of an episode: as many actions and goals as observations."""
    observations, actions, goals = episode.observations, episode.actions, episode.goals
    goals = np.zeros((len(observations), 0)) if goals is None else goals
    for what, found in (("actions", actions), ("goals", goals)):
        longest = len(observations) - (what == "actions" and episode.final_observation is None)
        if len(found) not in (len(observations), longest):
            lengths = f"{len(observations)} observations and {len(found)} {what}"
            raise DataError(f"{episode.label} has {lengths}: there must be as many, or one observation more.")
    if episode.final_observation is not None:
        observations = np.concatenate([observations, episode.final_observation])
        goals = np.concatenate([goals, goals[:1, :0] if episode.final_goal is None else episode.final_goal])
    if len(observations) < 2:
        raise DataError(f"{episode.label} has a single state and therefore no transition: leave it out.")
    missing = np.full((len(observations) - len(actions), actions.shape[1]), np.nan, actions.dtype)
    return observations, np.concatenate([actions, missing]), goals
