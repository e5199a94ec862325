"""Fields of a configuration that say themselves which values they take.

    gamma: float = checked(0.99, BETWEEN_0_AND_1)  # discount

`check_fields`, called in `__post_init__`, then refuses any other with a sentence.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from gtrl.errors import ConfigError


class Rule(NamedTuple):
    """Which values hold, and how a sentence goes on after "<field> is <value> and must"."""

    holds: Callable[[Any], bool]
    words: str


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _is_whole(value: Any) -> bool:
    return _is_number(value) and value == int(value)


POSITIVE = Rule(lambda x: _is_number(x) and x > 0, "be positive")
NOT_NEGATIVE = Rule(lambda x: _is_number(x) and x >= 0, "be a number from 0 up")
COUNT = Rule(lambda x: _is_whole(x) and x >= 1, "be a whole number from 1 up")
COUNT_OR_ZERO = Rule(lambda x: _is_whole(x) and x >= 0, "be a whole number from 0 up")
SHARE = Rule(lambda x: _is_number(x) and 0 < x <= 1, "lie in (0, 1]")
EXPECTILE = Rule(lambda x: _is_number(x) and 0.5 <= x < 1, "lie from 0.5 up to below 1")
# A discount that float32 rounds to 1 would divide by its logarithm, 0.
DISCOUNT = Rule(lambda x: _is_number(x) and x > 0 and float(np.float32(x)) < 1, "lie between 0 and 1, also in float32")
PROBABILITIES = Rule(
    lambda x: len(x) == 3 and all(map(_is_number, x)) and min(x) >= 0 and abs(sum(x) - 1) <= 1e-6,
    "be three probabilities (current, trajectory, random) that sum to 1",
)
WIDTHS = Rule(
    lambda x: len(x) > 0 and all(_is_whole(width) and width >= 1 for width in x),
    "be the widths of one or more layers, such as (64, 64)",
)


def checked(default: Any, rule: Rule) -> Any:
    """A dataclass field with a default and a rule."""
    return dataclasses.field(default=default, metadata={"rule": rule})


def check_fields(config: Any) -> None:
    """Refuse a dataclass with a field that breaks its rule; lists become tuples, so that it can be hashed."""
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if isinstance(value, list):
            value = tuple(value)
            object.__setattr__(config, field.name, value)
        rule = field.metadata.get("rule")
        if rule and not _holds(rule, value):
            raise ConfigError(f"{field.name.strip('_')} is {value!r} and must {rule.words}.")


def _holds(rule: Rule, value: Any) -> bool:
    try:
        return rule.holds(value)
    except TypeError:  # a number where several are wanted
        return False
