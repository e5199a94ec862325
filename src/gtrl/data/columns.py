"""The columns of a dataset of one's own: their scales, and warnings where learning will suffer. Uses NumPy only."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from gtrl.data.task_goals import Arrays
from gtrl.io.scaling import LIMIT, Scaling, center_and_scale, constant_range, is_constant, sample_rows

CHECKED_ROWS = 100_000  # the first rows of the data, in which columns are compared with each other
MAX_LISTED = 4  # columns in a warning
FEW_TRANSITIONS = 1000
LARGE_MAGNITUDE = 100.0  # of a column's centre or scale, above which learning suffers unless it is scaled
# A column is warned about if more than the first share of its rows is clipped, or more than the second one is, and
# typically lies this far outside, in units of the limit.
MANY_CLIPPED, SOME_CLIPPED, FAR_OUTSIDE = 0.02, 5e-4, 10.0
MISSING_GAP = 20.0  # times the range of all other values, by which a value that marks missing readings lies outside
FILLED = 0.2  # of the range of their bounds, which nearly all actions should at least take up
BOUNDS_TOLERANCE = 1e-6  # part of their range by which actions may exceed their bounds without a warning
STILL_SHARE = 0.5  # share of steps at which a goal stays while the state moves, above which it may be commanded
SUDDEN_SHARE = 0.5  # share of such a goal's moves that are sudden, above which it looks commanded
JUMP_SHARE = 0.005  # share of steps at which a goal jumps while the state hardly moves, above which it looks commanded
JUMP, JUMP_RATIO = 0.5, 10.0  # a jump is this large in units of the goal's scale, and this many times the state's move


class ColumnFacts(NamedTuple):
    """What `gtrl data check` shows of a column. Centre and scale are those in use, if the data is scaled."""

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


def _by_role(arrays: Arrays, goals: np.ndarray) -> dict[str, np.ndarray]:
    """Returns observations, goals unless they are whole observations, and the logged actions."""
    rows = {"observation": arrays["observations"]}
    if "goals" in arrays or goals.shape != arrays["observations"].shape:
        rows["goal"] = goals
    return rows | {"action": arrays["actions"][np.isfinite(arrays["actions"]).all(1)]}


def column_facts(
    arrays: Arrays, goals: np.ndarray, columns: Mapping[str, Sequence[str]], scaling: Scaling | None = None
) -> list[ColumnFacts]:
    """Returns the facts of all columns of observations, goals and actions. Rows without an action are ignored."""
    facts = []
    for role, rows in _by_role(arrays, goals).items():
        names = column_names(columns, role, rows.shape[1])
        low, high = rows.min(0).astype(np.float64), rows.max(0).astype(np.float64)
        center, scale = scaling.of(role) if scaling else center_and_scale(rows)
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


def column_warnings(arrays: Arrays, facts: Sequence[ColumnFacts]) -> list[str]:
    """Returns sentences, without the full stop, about the amount of data and columns that say nothing."""
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
        warnings.append(f"columns stand twice ({_listed(repeated)}): this is harmless, but says nothing new")
    return warnings


def learning_warnings(
    arrays: Arrays, goals: np.ndarray, columns: Mapping[str, Sequence[str]], scaling: Scaling | None
) -> list[str]:
    """Returns sentences, without the full stop, about what will make learning hard with the scaling in use."""
    names = {role: column_names(columns, role, rows.shape[1]) for role, rows in _by_role(arrays, goals).items()}
    if scaling is None:
        return unscaled_warnings(column_facts(arrays, goals, names)) + goal_warnings(arrays, goals, names)
    found = []
    for role, rows in _by_role(arrays, goals).items():
        warn = action_warnings if role == "action" else outlier_warnings
        labels = [name if name.startswith(role) else f"{role} {name}" for name in names[role]]
        found += warn(rows, *scaling.of(role), labels)
    return found + goal_warnings(arrays, goals, names)


def unscaled_warnings(facts: Sequence[ColumnFacts]) -> list[str]:
    """Returns sentences, without the full stop, about columns that are too large for networks unless scaled."""
    return [
        f"the {fact.role} {fact.name} is {fact.center:.6g} ± {fact.scale:.3g} and is not scaled: learning will suffer"
        for fact in facts
        if fact.role != "action" and max(abs(fact.center), fact.scale) > LARGE_MAGNITUDE
    ]


def outlier_warnings(rows: np.ndarray, center: np.ndarray, scale: np.ndarray, names: Sequence[str]) -> list[str]:
    """Returns the warning about columns of which much is clipped, or that seem to mark missing readings by a value."""
    sampled = sample_rows(rows)
    clipped = np.abs(sampled - center) > LIMIT * scale
    found = []
    for index, name in enumerate(names):
        column, outside = sampled[:, index], clipped[:, index]
        missing = _missing_reading(column)
        if missing is not None:
            outside = column == missing
        elif not _is_much(column[outside], len(column), center[index], scale[index]):
            continue
        share, typical = 100 * outside.mean(), np.median(column[outside])
        usual = f"scaled as {center[index]:.4g} ± {scale[index]:.3g}"
        found.append(f"{name} ({share:.2g} % of the rows, typically {typical:.4g}; {usual})")
    if not found:
        return []
    advice = "remove missing readings and outliers, or a stored scaling that is of other data"
    return [f"values lie far outside of their column's scale: {_listed(found)}; {advice}"]


def _is_much(outside: np.ndarray, count: int, center: float, scale: float) -> bool:
    """Whether the clipped values of a column, of `count` rows, are many, or some and far outside."""
    share = len(outside) / count
    if share <= SOME_CLIPPED:
        return False
    return share > MANY_CLIPPED or bool(np.median(np.abs(outside - center)) > FAR_OUTSIDE * LIMIT * scale)


def _missing_reading(column: np.ndarray) -> float | None:
    """Returns a value that seems to mark missing readings, such as -999: an extreme that recurs, far from the rest."""
    for extreme in (column.min(), column.max()):
        rest = column[column != extreme]
        if len(rest) == 0 or 1 - len(rest) / len(column) <= SOME_CLIPPED:
            continue
        low, high = np.quantile(rest, [0.001, 0.999])
        if low < high and min(abs(extreme - low), abs(extreme - high)) > MISSING_GAP * (high - low):
            return float(extreme)
    return None


def action_warnings(actions: np.ndarray, center: np.ndarray, scale: np.ndarray, names: Sequence[str]) -> list[str]:
    """Returns the warnings about actions outside of their bounds, or in a small part of them."""
    lower, upper, tolerance = center - scale, center + scale, 2 * BOUNDS_TOLERANCE * scale
    lowest, highest = actions.min(0).astype(np.float64), actions.max(0).astype(np.float64)
    sampled = sample_rows(actions)
    # Without the outermost 0.1 % at each end, which are at least one row.
    low = np.quantile(sampled, 0.001, axis=0, method="higher")
    high = np.quantile(sampled, 0.999, axis=0, method="lower")
    bounds = [f"its bounds {a:.4g} to {b:.4g}" for a, b in zip(lower, upper, strict=True)]
    outside = [
        f"the {names[index]} is logged from {lowest[index]:.4g} to {highest[index]:.4g}, outside of {bounds[index]}"
        for index in np.flatnonzero((lowest < lower - tolerance) | (highest > upper + tolerance)).tolist()
    ]
    small = [
        f"the {names[index]} lies within {low[index]:.4g} to {high[index]:.4g} in 99.8 % of the rows, a small part of "
        f"{bounds[index]}"
        for index in np.flatnonzero((lowest < highest) & (high - low < 2 * FILLED * scale)).tolist()
    ]
    clipped = [f"{_listed(outside)}; it is clipped"] if outside else []
    advice = "remove outliers, or give its bounds with --action-low and --action-high (action_bounds=)"
    return clipped + ([f"{_listed(small)}: {advice}"] if small else [])


def _listed(texts: Sequence[str]) -> str:
    more = f" and {len(texts) - MAX_LISTED} more" if len(texts) > MAX_LISTED else ""
    return ", ".join(texts[:MAX_LISTED]) + more


# --- goals ---


def goal_warnings(arrays: Arrays, goals: np.ndarray, columns: Mapping[str, Sequence[str]] | None = None) -> list[str]:
    """Returns the warning that goals do not look like a function of the state, if they do not.

    A goal must be what the state has achieved. Commanded goals betray themselves: they stay while the state moves and
    then change at once, or they jump while it hardly moves. A goal that stays and else moves bit by bit is an object.
    """
    observations, goals = arrays["observations"][:CHECKED_ROWS], goals[:CHECKED_ROWS]
    copies = _copies(goals, observations)
    others = np.setdiff1d(np.arange(observations.shape[1]), list(copies.values()))
    if len(others) == 0:
        return []  # the goals are the state
    inside = arrays["terminals"][: len(goals) - 1] == 0  # steps within an episode
    moved = np.where(inside[:, None], _changes(observations[:, others]), 0).max(1)
    goal_moved = np.where(inside[:, None], _changes(goals), 0)
    names = column_names(columns or {}, "goal", goals.shape[1])
    suspects: dict[str, list[str]] = {}
    for index, name in enumerate(names):
        values = len(np.unique(goals[:, index]))
        if values == 1 or (values == 2 and index in copies):  # a switch that the state contains
            continue
        if sign := _sign(goal_moved[:, index], moved, index in copies):
            suspects.setdefault(sign, []).append(name)
    advice = (
        "write what the robot achieved at each step, not what it was commanded to reach; harmless only for an object "
        "that stands still until something moves it (docs/own_robot.md)"
    )
    return [
        f"the goals do not look like a function of the state: they {sign} ({_listed(found)}); {advice}"
        for sign, found in suspects.items()
    ]


def _sign(goal_moved: np.ndarray, moved: np.ndarray, is_copy: bool) -> str | None:
    """Returns what a goal's column does that a function of the state does not; None if it looks like one.

    `goal_moved` and `moved` are the changes of the goal and of the other columns, from each row to the next.
    """
    changed = goal_moved > 0
    still = float((~changed & (moved > 0)).sum() / max(1, (moved > 0).sum()))
    if still > STILL_SHARE:
        padded = np.pad(changed, 1)
        sudden = changed & ~padded[:-2] & ~padded[2:] & (goal_moved > JUMP)
        if sudden.sum() > SUDDEN_SHARE * changed.sum() or not changed.any():
            return f"stay the same in {100 * still:.0f} % of the steps, while the state moves, and then change at once"
        return None
    jumps = float(((goal_moved > JUMP) & (goal_moved > JUMP_RATIO * moved)).mean()) if len(moved) else 0.0
    if jumps > JUMP_SHARE and not is_copy:
        return f"jump in {100 * jumps:.1f} % of the steps, while the state hardly moves"
    return None


def _copies(goals: np.ndarray, observations: np.ndarray) -> dict[int, int]:
    """Returns which columns of the goals are columns of the observations, and of them which."""
    known = {np.ascontiguousarray(column, np.float32).tobytes(): index for index, column in enumerate(observations.T)}
    keys = [np.ascontiguousarray(column, np.float32).tobytes() for column in goals.T]
    return {index: known[key] for index, key in enumerate(keys) if key in known}


def _changes(rows: np.ndarray) -> np.ndarray:
    """Returns the absolute change of each column from each row to the next, in units of the column's scale."""
    _, scale = center_and_scale(rows)
    return np.abs(np.diff(rows.astype(np.float64), axis=0)) / scale
