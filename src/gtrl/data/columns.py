"""The columns of a dataset of one's own: their scales, and warnings where learning will suffer. Uses NumPy only."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from gtrl.data.task_goals import Arrays
from gtrl.io.scaling import center_and_scale, constant_range, is_constant

CHECKED_ROWS = 100_000  # the first rows of the data, in which columns are compared with each other
FEW_TRANSITIONS = 1000
LARGE_MAGNITUDE = 100.0  # of a column's centre or scale, above which learning suffers unless it is scaled
STILL_SHARE = 0.5  # share of steps at which a goal stays while the state moves, above which it looks commanded
JUMP_SHARE = 0.005  # share of steps at which a goal jumps while the state hardly moves, above which it looks commanded
JUMP, JUMP_RATIO = 0.5, 10.0  # a jump is this large in units of the goal's scale, and this many times the state's move


class ColumnFacts(NamedTuple):
    """What `gtrl data check` shows of a column."""

    role: str  # observation, goal or action
    name: str
    low: float
    high: float
    center: float
    scale: float
    note: str = ""


def column_names(columns: Mapping[str, Sequence[str]], role: str, width: int) -> list[str]:
    """Returns the names of the columns, or `observation[0]`, ... where they are unknown."""
    names = list(columns.get(role, ()))
    return names if len(names) == width else [f"{role}[{index}]" for index in range(width)]


def column_facts(arrays: Arrays, goals: np.ndarray, columns: Mapping[str, Sequence[str]]) -> list[ColumnFacts]:
    """Returns the facts of all columns of observations, goals and actions. Rows without an action are ignored."""
    facts = []
    for role, rows in (("observation", arrays["observations"]), ("goal", goals), ("action", arrays["actions"])):
        if role == "goal" and "goals" not in arrays and goals.shape == arrays["observations"].shape:
            continue  # goals are whole observations
        rows = rows[np.isfinite(rows).all(1)]
        names = column_names(columns, role, rows.shape[1])
        low, high = rows.min(0).astype(np.float64), rows.max(0).astype(np.float64)
        center, scale = center_and_scale(rows)
        constant = is_constant(low, high, constant_range(rows))
        twins = _duplicates(rows[:CHECKED_ROWS], constant)
        for index, name in enumerate(names):
            twin = twins.get(index)
            note = "constant" if constant[index] else "" if twin is None else f"equals {names[twin]}"
            numbers = {
                key: float(values[index])
                for key, values in (("low", low), ("high", high), ("center", center), ("scale", scale))
            }
            facts.append(ColumnFacts(role, name, **numbers, note=note))
    return facts


def _duplicates(rows: np.ndarray, constant: np.ndarray) -> dict[int, int]:
    """Returns the first equal column for each column that stands twice."""
    first: dict[bytes, int] = {}
    found = {}
    for index in np.flatnonzero(~constant):
        key = np.ascontiguousarray(rows[:, index]).tobytes()
        if key in first:
            found[int(index)] = first[key]
        first.setdefault(key, int(index))
    return found


def column_warnings(arrays: Arrays, goals: np.ndarray, facts: Sequence[ColumnFacts]) -> list[str]:
    """Returns sentences, without the full stop, about what will make learning hard even if the data is scaled."""
    warnings = []
    transitions = int((arrays["terminals"] == 0).sum())
    if transitions < FEW_TRANSITIONS:
        warnings.append(f"there are only {transitions:,} transitions: a policy can hardly be learned from them")
    warnings += [
        f"the {fact.role} {fact.name} never changes ({fact.low:.4g}): nothing can be learned of it"
        for fact in facts
        if fact.note == "constant" and fact.role != "observation"
    ]
    repeated = [fact.name for fact in facts if fact.note.startswith("equals")]
    if repeated:
        warnings.append(f"columns stand twice ({', '.join(repeated[:4])}): this is harmless, but says nothing new")
    return warnings + goal_warnings(arrays, goals)


def unscaled_warnings(facts: Sequence[ColumnFacts]) -> list[str]:
    """Returns sentences, without the full stop, about columns that are too large for networks unless scaled."""
    return [
        f"the {fact.role} {fact.name} is {fact.center:.6g} ± {fact.scale:.3g} and is not scaled: learning will suffer"
        for fact in facts
        if fact.role != "action" and max(abs(fact.center), fact.scale) > LARGE_MAGNITUDE
    ]


def goal_warnings(arrays: Arrays, goals: np.ndarray) -> list[str]:
    """Returns the warning that goals do not look like a function of the state, if they do not.

    A goal must be what the state has achieved. Commanded goals betray themselves: they stay while the state moves, or
    they jump while it hardly moves. Goals that are columns of the observation are always a function of the state.
    """
    observations, goals = arrays["observations"][:CHECKED_ROWS], goals[:CHECKED_ROWS]
    if "goals" not in arrays or _are_columns(goals, observations):
        return []
    inside = arrays["terminals"][: len(goals) - 1] == 0  # steps within an episode
    moved = _largest_change(observations)[inside]
    goal_moved = _largest_change(goals)[inside]
    moving = moved > 0
    still = float(((goal_moved == 0) & moving).sum() / max(1, moving.sum()))
    jumps = float(((goal_moved > JUMP) & (goal_moved > JUMP_RATIO * moved)).mean()) if len(moved) else 0.0
    if still > STILL_SHARE:
        sign = f"they stay the same in {100 * still:.0f} % of the steps, while the state moves"
    elif jumps > JUMP_SHARE:
        sign = f"they jump in {100 * jumps:.1f} % of the steps, while the state hardly moves"
    else:
        return []
    advice = "write what the robot achieved at each step, not what it was commanded to reach"
    return [f"the goals do not look like a function of the state: {sign}; {advice} (docs/own_robot.md)"]


def _are_columns(goals: np.ndarray, observations: np.ndarray) -> bool:
    """Whether every column of the goals is a column of the observations."""
    known = {np.ascontiguousarray(column, np.float32).tobytes() for column in observations.T}
    return all(np.ascontiguousarray(column, np.float32).tobytes() in known for column in goals.T)


def _largest_change(rows: np.ndarray) -> np.ndarray:
    """Returns the largest change of any column from each row to the next, in units of the column's scale."""
    _, scale = center_and_scale(rows)
    return (np.abs(np.diff(rows.astype(np.float64), axis=0)) / scale).max(1)
