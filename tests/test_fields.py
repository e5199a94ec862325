"""The values each rule accepts, at its limits, and the messages for rejected ones."""

import dataclasses
import json
import math
import re
from typing import Any

import numpy as np
import pytest

from gtrl.algorithms import make
from gtrl.algorithms.gtrl import GTRL
from gtrl.errors import ConfigError
from gtrl.fields import (
    COUNT,
    COUNT_OR_ZERO,
    DISCOUNT,
    EXPECTILE,
    FRACTION,
    NOT_NEGATIVE,
    POSITIVE,
    PROBABILITIES,
    WIDTHS,
    Rule,
    check_fields,
    checked,
)

BELOW_1 = 1 - 2**-24  # the largest float32 below 1
# (rule, valid values, invalid ones)
NUMBERS = [
    (POSITIVE, [1e-300, 1, 2.5], [0, -1e-9]),
    (NOT_NEGATIVE, [0, 0.0, 3], [-1e-300, -1]),
    (COUNT, [1, 7, 1e5], [0, -1, 1.5]),
    (COUNT_OR_ZERO, [0, 1, 0.0], [-1, 0.5]),
    (FRACTION, [1e-9, 1, 1.0], [0, 1 + 1e-9]),
    (EXPECTILE, [0.5, 0.999999], [0.5 - 1e-9, 1, 1.5]),
    (DISCOUNT, [1e-30, 0.5, BELOW_1, 1 - 2**-25 - 1e-9], [0, 1, 1 - 2**-25, 1 - 1e-9, 1.5, 1e300, 1e-60]),
]
NOT_NUMBERS: list[Any] = [math.nan, math.inf, -math.inf, True, False, None, "1", (1,), [0.5], 10**400]
SEVERAL = [
    (PROBABILITIES, [(0, 0.5, 0.5), (1, 0, 0), (0.2, 0.5, 0.3), (1 / 3, 1 / 3, 1 / 3)],
     [(0.5, 0.5), (0, 0, 0), (0.5, 0.5, 0.5), (-0.5, 1, 0.5), (math.nan, 0.5, 0.5), (True, 0, 0), 1, None, "abc",
      (0.25,) * 4]),
    (WIDTHS, [(1,), (64, 64), (512, 512, 512)],
     [(), (0,), (64, -1), (64, 1.5), (True,), 64, None, "64", (math.nan,), ((64,), 64)]),
]  # fmt: skip


def config_with(rule: Rule, value: Any) -> Any:
    kind: Any = dataclasses.make_dataclass(
        "Config", [("size_", Any, checked(None, rule))], frozen=True, namespace={"__post_init__": check_fields}
    )
    return kind(value)


CASES = [
    *((rule, value, True) for rule, valid, _ in NUMBERS + SEVERAL for value in valid),
    *((rule, value, False) for rule, _, invalid in NUMBERS + SEVERAL for value in invalid),
    *((rule, value, False) for rule, *_ in NUMBERS for value in NOT_NUMBERS),
]


@pytest.mark.parametrize(
    ("rule", "value", "valid"), CASES, ids=lambda part: str(getattr(part, "requirement", part))[:40]
)
def test_rules(rule: Rule, value: Any, valid: bool) -> None:
    if valid:
        assert config_with(rule, value).size_ == value
    else:
        with pytest.raises(ConfigError) as caught:
            config_with(rule, value)
        shown = tuple(value) if isinstance(value, list) else value
        assert str(caught.value) == f"size is {shown!r} and must {rule.requirement}."


def test_the_largest_discount_is_that_of_float32() -> None:
    assert np.float32(BELOW_1) < 1
    assert np.nextafter(np.float32(BELOW_1), np.float32(2)) == 1
    with pytest.raises(
        ConfigError, match=r"^gamma is 0\.99999999 and must lie in \(0, 1\), also after rounding to float32\.$"
    ):
        make("gtrl", gamma=0.99999999)
    assert make("gtrl", gamma=BELOW_1).gamma == BELOW_1


def test_single_width_is_rejected_with_the_right_form() -> None:
    with pytest.raises(ConfigError, match=r"^hidden is 64 and must be the widths .* layers, such as \(64, 64\)\.$"):
        make("gtrl", hidden=64)


@pytest.mark.parametrize(
    ("rule", "given", "plain"),
    [
        (COUNT, 1e5, 100_000),
        (COUNT, np.int64(3), 3),
        (POSITIVE, np.float32(0.5), 0.5),
        (WIDTHS, [64, 32.0], (64, 32)),
        (WIDTHS, np.array([64, 32]), (64, 32)),
        (PROBABILITIES, np.array([0, 0.5, 0.5]), (0, 0.5, 0.5)),
    ],
)
def test_fields_become_plain_python_values(rule: Rule, given: Any, plain: Any) -> None:
    """Hashable and of built-in Python types, so that JSON preserves them."""
    config = config_with(rule, given)
    assert config.size_ == plain
    assert type(config.size_) is type(plain)
    hash(config)
    written = json.loads(json.dumps(dataclasses.asdict(config)))
    assert config_with(rule, written["size_"]).size_ == plain


def test_numpy_booleans_are_not_numbers() -> None:
    with pytest.raises(ConfigError, match="size is True and must be a positive number"):
        config_with(POSITIVE, np.bool_(True))


def test_fields_without_a_rule_accept_anything() -> None:
    @dataclasses.dataclass(frozen=True)
    class Config:
        names: Any = ()

        def __post_init__(self) -> None:
            check_fields(self)

    assert Config().names == ()
    assert Config(["a", ["b"]]).names == ("a", ("b",))
    marker = object()
    assert Config(marker).names is marker


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"waypoint_draw": "farthest"}, "waypoint_draw is 'farthest', which has no effect without a waypoint"),
        ({"waypoint": "random", "waypoint_draw": "farthest"}, "without a waypoint of 'state', 'goal' or 'both'"),
        ({"waypoint_product": "target"}, "waypoint_product is 'target', which has no effect without a waypoint."),
        ({"bound_weight": 2.0}, "bound_weight is 2.0, which has no effect without lower bounds"),
        ({"waypoint": "state", "waypoint_product": "target", "bound_weight": 2.0}, "without lower bounds"),
        ({"waypoint": "state", "bound_weight": 0.0}, "waypoint is 'state', which has no effect with bound_weight=0"),
        ({"waypoint": "state", "value_goals": (0.0, 1.0, 0.0)}, "where all value goals are ahead on the trajectory"),
        ({"selection": "bound", "kappa": 0.9}, "kappa is 0.9, which has no effect with selection='bound'"),
        ({"hindsight": False, "hindsight_reads": "densities"}, "has no effect with hindsight=False"),
        ({"density_latent": 8}, "density_latent is 8, which has no effect without hindsight_reads='densities'"),
        ({"hindsight_reads": "densities", "hindsight_divisor": "next"}, "hindsight_divisor is 'next', which has no"),
    ],
)
def test_fields_of_gtrl_without_an_effect(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        make("gtrl", **fields)
    make("gtrl", waypoint="random", bound_weight=2.0)
    make("gtrl", preset="waypoints", waypoint="none")  # a preset's values are not the user's
    make("gtrl", preset="authors", hindsight_reads="densities")
    GTRL(selection="bound", kappa=0.9)  # nor are those of a saved run
    make("gtrl", selection="bound", bound_weight=2.0)
