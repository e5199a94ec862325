"""Dataclass fields that declare which values they take.

    gamma: float = checked(0.99, DISCOUNT)

`check_fields`, called in `__post_init__`, rejects any other value with a one-line error.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from gtrl.errors import ConfigError


class Rule(NamedTuple):
    """Which values are valid, and the end of a sentence that begins with "<field> is <value> and must"."""

    holds: Callable[[Any], bool]
    words: str
    convert: Callable[[Any], Any] = lambda value: value  # applied to a valid value


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _is_whole(value: Any) -> bool:
    return _is_number(value) and value == int(value)


POSITIVE = Rule(lambda x: _is_number(x) and x > 0, "be positive")
NOT_NEGATIVE = Rule(lambda x: _is_number(x) and x >= 0, "be a number from 0 up")
COUNT = Rule(lambda x: _is_whole(x) and x >= 1, "be a whole number from 1 up", int)
COUNT_OR_ZERO = Rule(lambda x: _is_whole(x) and x >= 0, "be a whole number from 0 up", int)
FRACTION = Rule(lambda x: _is_number(x) and 0 < x <= 1, "lie in (0, 1]")
EXPECTILE = Rule(lambda x: _is_number(x) and 0.5 <= x < 1, "lie from 0.5 up to below 1")
# Goal offsets are divided by the discount's logarithm in float32, where one close to 1 rounds to 1.
DISCOUNT = Rule(
    lambda x: _is_number(x) and 0 < x < 1 and bool(0 < np.float32(x) < 1), "lie between 0 and 1, also in float32"
)
PROBABILITIES = Rule(
    lambda x: len(x) == 3 and all(map(_is_number, x)) and min(x) >= 0 and abs(sum(x) - 1) <= 1e-6,
    "be three probabilities (current, trajectory, random) that sum to 1",
)
WIDTHS = Rule(
    lambda x: len(x) > 0 and all(_is_whole(width) and width >= 1 for width in x),
    "be the widths of one or more layers, such as (64, 64)",
    lambda x: tuple(map(int, x)),
)


def checked(default: Any, rule: Rule) -> Any:
    """A dataclass field with a default and a rule."""
    return dataclasses.field(default=default, metadata={"rule": rule})


def check_fields(config: Any) -> None:
    """Raise `ConfigError` if a field of a dataclass breaks its rule.

    Lists and arrays become tuples, NumPy's numbers become Python's: the dataclass can be hashed and written as JSON.
    """
    for field in dataclasses.fields(config):
        given = getattr(config, field.name)
        value = _plain(given)
        rule = field.metadata.get("rule")
        if rule:
            if not _holds(rule, value):
                raise ConfigError(f"{field.name.rstrip('_')} is {value!r} and must {rule.words}.")
            value = rule.convert(value)
        if value is not given:
            object.__setattr__(config, field.name, value)


def _plain(value: Any) -> Any:
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.tolist()
    return tuple(map(_plain, value)) if isinstance(value, (list, tuple)) else value


def _holds(rule: Rule, value: Any) -> bool:
    try:
        return rule.holds(value)
    except (TypeError, OverflowError):  # one number where several are wanted, or a number beyond any float
        return False
