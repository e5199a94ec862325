"""Converts a log to a dataset file, or to a Minari dataset."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from gtrl.data.checks import check_arrays
from gtrl.data.description import KEY, Description
from gtrl.data.formats import minari, read_log
from gtrl.data.formats.log import Log, Selectors
from gtrl.errors import ConfigError, DataError
from gtrl.io.npz import write_npz
from gtrl.io.scaling import fit_scaling


def convert(
    source: Any,
    out: str | os.PathLike[str],
    *,
    observation: Selectors = None,
    goal: Selectors = None,
    action: Selectors = None,
    episode: str | None = None,
    action_low: Sequence[float] | None = None,
    action_high: Sequence[float] | None = None,
) -> Log:
    """Reads a log and writes it as a dataset file (.npz) or, if `out` is `minari:ID`, as a Minari dataset.

    Args:
        source: As for `read_log`.
        out: The file, or `minari:ID`; it must not exist.
        observation: Selectors of the observation's columns.
        goal: Selectors of the goal's columns.
        action: Selectors of the action's columns.
        episode: The column of a table that names the episode.
        action_low: The lowest action: one number, or one for each column; by default what the format knows.
        action_high: The highest action.
    """
    target = _target(out)
    log = read_log(source, observation=observation, goal=goal, action=action, episode=episode)
    if problems := check_arrays(log.arrays, scaled=True):
        name = source if isinstance(source, (str, os.PathLike)) else "the log"
        raise DataError(f"{name}: {problems[0]}.")
    log = with_bounds(log, action_low, action_high)
    if isinstance(target, Path):
        write_npz(target, {**log.arrays, KEY: description_of(log).to_array()})
        return log
    bounds = {} if log.action_low is None else {"low": log.action_low, "high": log.action_high}
    notes = minari.write_minari(target, log.arrays, **bounds)
    return replace(log, source={**log.source, "notes": [*log.source["notes"], *notes]})


def _target(out: str | os.PathLike[str]) -> Path | str:
    """Checks that the output is new and of a known kind, before a long log is read."""
    text = os.fspath(out)
    if text.startswith(minari.PREFIX):
        minari.check_new(text)
        return text
    path = Path(text).expanduser()
    if path.suffix != ".npz":
        raise ConfigError(f"the output {text} must end in .npz, or begin with {minari.PREFIX}.")
    if path.exists():
        raise ConfigError(f"{text} exists already: remove it or choose another name.")
    return path


def with_bounds(log: Log, low: Sequence[float] | None, high: Sequence[float] | None) -> Log:
    """Replaces the bounds of the actions by given ones, and notes logged actions outside of the bounds."""
    if (low is None) != (high is None):
        raise ConfigError("give both --action-low and --action-high, or neither.")
    if low is not None and high is not None:
        width = log.arrays["actions"].shape[1]
        lowest, highest = (_bound(bound, width) for bound in (low, high))
        if not (lowest < highest).all():
            raise ConfigError("--action-low must be less than --action-high in every column.")
        log = replace(log, action_low=lowest, action_high=highest)
    if log.action_low is None or log.action_high is None:
        return log
    actions = log.arrays["actions"]
    outside = int(((actions < log.action_low) | (actions > log.action_high)).any(1).sum())
    if not outside:
        return log
    note = f"{outside} of {len(actions)} actions lie outside of the bounds"
    return replace(log, source={**log.source, "notes": [*log.source["notes"], note]})


def _bound(values: Sequence[float], width: int) -> np.ndarray:
    found = np.asarray(values, np.float64).reshape(-1)
    if len(found) not in (1, width) or not np.isfinite(found).all():
        raise ConfigError(f"a bound of the actions is one number or {width}, one for each column.")
    return np.broadcast_to(found, width).copy()


def description_of(log: Log) -> Description:
    """Returns the description that is stored with the arrays of a dataset file."""
    arrays = log.arrays
    if not np.isfinite(arrays["actions"]).any():
        raise DataError("the log has no actions.")
    bounds = None if log.action_low is None or log.action_high is None else (log.action_low, log.action_high)
    goals = arrays.get("goals", arrays["observations"])
    scaling = fit_scaling(arrays["observations"], goals, arrays["actions"], bounds)
    return Description(log.columns, bounds, scaling, log.source)
