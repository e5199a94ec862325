"""Dataclass fields that declare their valid values.

    gamma: float = checked(0.99, DISCOUNT)

`check_fields`, called in `__post_init__`, rejects invalid values with a one-line error.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from gtrl.errors import ConfigError


class Rule(NamedTuple):
    """Valid values of a field. `requirement` completes the message "<field> is <value> and must ..."."""

    is_valid: Callable[[Any], bool]
    requirement: str
    convert: Callable[[Any], Any] = lambda value: value  # applied to a valid value


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _is_integer(value: Any) -> bool:
    return _is_number(value) and value == int(value)


NUMBER = Rule(_is_number, "be a number")
POSITIVE = Rule(lambda x: _is_number(x) and x > 0, "be a positive number")
NOT_NEGATIVE = Rule(lambda x: _is_number(x) and x >= 0, "be a non-negative number")
COUNT = Rule(lambda x: _is_integer(x) and x >= 1, "be a positive integer", int)
COUNT_OR_ZERO = Rule(lambda x: _is_integer(x) and x >= 0, "be a non-negative integer", int)
COUNT_OR_NONE = Rule(
    lambda x: x is None or COUNT.is_valid(x), COUNT.requirement, lambda x: None if x is None else int(x)
)
SHARE = Rule(lambda x: _is_number(x) and 0 <= x <= 1, "lie in [0, 1]")
FRACTION = Rule(lambda x: _is_number(x) and 0 < x <= 1, "lie in (0, 1]")
EXPECTILE = Rule(lambda x: _is_number(x) and 0.5 <= x < 1, "lie in [0.5, 1)")
# Sampling goals divides by the logarithm of the discount in float32, where a discount close to 1 rounds to 1.
DISCOUNT = Rule(
    lambda x: _is_number(x) and 0 < x < 1 and bool(0 < np.float32(x) < 1),
    "lie in (0, 1), also after rounding to float32",
)
PROBABILITIES = Rule(
    lambda x: len(x) == 3 and all(map(_is_number, x)) and min(x) >= 0 and abs(sum(x) - 1) <= 1e-6,
    "be three probabilities (current, trajectory, random) that sum to 1",
)
WIDTHS = Rule(
    lambda x: len(x) > 0 and all(_is_integer(width) and width >= 1 for width in x),
    "be the widths of one or more layers, such as (64, 64)",
    lambda x: tuple(map(int, x)),
)


def checked(default: Any, rule: Rule) -> Any:
    """Declares a dataclass field with a default and the rule for its values."""
    return dataclasses.field(default=default, metadata={"rule": rule})


def check_fields(config: Any) -> None:
    """Raises `ConfigError` if a field of a dataclass breaks its rule.

    Converts lists and arrays to tuples and NumPy numbers to Python numbers, so that the dataclass can be hashed and
    written as JSON.
    """
    for field in dataclasses.fields(config):
        given = getattr(config, field.name)
        value = _to_python(given)
        rule = field.metadata.get("rule")
        if rule:
            if not _is_valid(rule, value):
                raise ConfigError(f"{field.name.rstrip('_')} is {value!r} and must {rule.requirement}.")
            value = rule.convert(value)
        if value is not given:
            object.__setattr__(config, field.name, value)


def _to_python(value: Any) -> Any:
    """Converts NumPy arrays and numbers, and lists, to tuples and Python numbers."""
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.tolist()
    return tuple(map(_to_python, value)) if isinstance(value, (list, tuple)) else value


def _is_valid(rule: Rule, value: Any) -> bool:
    try:
        return rule.is_valid(value)
    except (TypeError, OverflowError):  # a number instead of a sequence, or an integer too large for a float
        return False
