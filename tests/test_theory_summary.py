"""Output and pictures of `gtrl theory`: checks that can fail, counterexamples by hand."""

import inspect
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from gtrl.cli import main, theory_command
from gtrl.report import style
from gtrl.theory import checks, counterexamples, curves, examples, pictures, summary

pytestmark = pytest.mark.usefixtures("optimized_file")

GAMMA = 0.99


# --- the command ---


def test_theory_prints_example_1_and_one_line_per_check(capsys: pytest.CaptureFixture[str]):
    assert main(["theory", "--processes", "3"]) == 0
    message = capsys.readouterr().out
    by_name = {
        line.split("│")[1].strip(): line.split("│")[2:-1] for line in message.splitlines() if line.startswith("│")
    }
    assert [cell.strip() for cell in by_name["V_DC"]] == ["0.980", "2.0", "0.990"]
    assert [cell.strip() for cell in by_name["V*, and Q^β (there is one action)"]] == ["0.938", "6.4", "0.495"]
    lines = [line for line in message.splitlines() if "✓" in line]
    assert len(lines) == 11
    assert all("processes, largest deviation" in line for line in lines)
    assert "FAILS" not in message
    # Three random ones, three deterministic ones, Example 1 and two mazes.
    assert "(9 processes" in next(line for line in lines if "Proposition 1 (i):" in line)


@pytest.mark.parametrize(
    ("flags", "message"),
    [(["--processes", "0"], "at least one random process"), (["--seed", "-1"], "the seed must be 0 or more")],
)
def test_bad_flags_get_a_one_line_error(flags: list[str], message: str, capsys: pytest.CaptureFixture[str]):
    assert main(["theory", *flags]) == 2
    assert message in capsys.readouterr().err


def test_flag_and_checks_have_the_same_default():
    assert inspect.signature(theory_command).parameters["processes"].default == checks.DEFAULT_PROCESSES


def test_seed_determines_the_processes():
    same, again, other = (checks.random_cases(4, seed) for seed in (0, 0, 1))
    for a, b in zip(same, again, strict=True):
        np.testing.assert_array_equal(a.process.dense, b.process.dense)
    assert any(
        a.process.dense.shape == b.process.dense.shape and (a.process.dense != b.process.dense).any()
        for a, b in zip(same, other, strict=True)
    )


# --- every check can fail ---


def spoiled(of: Any, how: Any) -> Any:
    return lambda *args, **kwargs: how(of(*args, **kwargs))


def a_little_more(v: np.ndarray) -> np.ndarray:
    return v + 1e-6


def not_a_number(v: Any) -> Any:
    return tuple(map(not_a_number, v)) if isinstance(v, tuple) else v * np.nan


WRONG = [
    ("Proposition 1 (i)", "transitive", a_little_more),
    ("Proposition 1 (i)", "transitive", not_a_number),
    ("Proposition 1 (ii)", "surely_shortest", np.logical_not),
    ("Proposition 1 (ii)", "divide_and_conquer_values", lambda v: v - 1e-6),
    ("Proposition 1 (ii)", "optimal_values", not_a_number),
    ("Proposition 1 (iii)", "divide_and_conquer_values", a_little_more),
    ("Proposition 1 (iii)", "optimal_values", not_a_number),
    ("Proposition 1, remark", "forced", np.logical_not),
    ("Proposition 2", "dataset_draws", lambda d: replace(d, g=np.roll(d.g, 1))),
    ("Proposition 3", "behaviour_values", lambda v: np.where(v > 0, v + 1e-6, 0)),
    ("Proposition 3", "divide_and_conquer_values", lambda v: v - 1e-6),
    ("Proposition 3", "optimal_values", lambda v: v * (1 - 1e-6)),
    ("Proposition 3", "behaviour_values", not_a_number),
    ("equation 9, identity", "arrival_values", lambda vq: (vq[0] + 1e-6, vq[1])),
    ("equation 9, identity", "occupancy", not_a_number),
    ("equation 9, three forms", "occupancy", lambda mu: mu + 1e-6 * np.eye(len(mu))),
    ("equation 9, three forms", "arrival_values", lambda vq: (vq[0], vq[1] * (1 + 1e-6))),
    ("equation 9, three forms", "arrival_values", not_a_number),
    ("equation 9, deterministic", "hindsight_ratio", lambda h: 1.001 * h),
    ("equation 9, deterministic", "hindsight_ratio", not_a_number),
    (
        "equation 9, purpose",
        "model_draws",
        lambda d: replace(d, probability=d.probability * (1 + 0.1 * (d.s_next == 0))),
    ),
    (
        "equation 9, purpose",
        "model_draws",
        lambda d: replace(d, probability=d.probability * (1 + 0.1 * (d.a_next == 0))),
    ),
    ("unreachable goals", "divide_and_conquer_values", a_little_more),
    ("unreachable goals", "hindsight_ratio", np.nan_to_num),
]


# The function of each check.
FUNCTIONS = {
    "Proposition 1 (i)": "convergence",
    "Proposition 1 (ii)": "optimism",
    "Proposition 1 (iii)": "certainty",
    "Proposition 1, remark": "base_case",
    "Proposition 2": "coverage",
    "Proposition 3": "bracket",
    "equation 9, identity": "identity",
    "equation 9, three forms": "three_forms",
    "equation 9, deterministic": "no_correction",
    "equation 9, purpose": "weight_restores_model",
    "unreachable goals": "unreachable",
}


def holds(name: str, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether one check holds; the others, which would only take time, are left out."""
    for other in FUNCTIONS.keys() - {name}:
        monkeypatch.setattr(checks, FUNCTIONS[other], lambda _: 0.0)
    return next(check for check in checks.run(3) if check.name == name).holds


@pytest.mark.parametrize("name", FUNCTIONS)
def test_check_alone_holds(name: str, monkeypatch: pytest.MonkeyPatch):
    """So it is the wrong values that make it fail below."""
    assert holds(name, monkeypatch)


@pytest.mark.parametrize(("name", "wrong", "how"), WRONG)
def test_check_fails_on_wrong_values(name: str, wrong: str, how: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(checks, wrong, spoiled(getattr(checks, wrong), how))
    assert not holds(name, monkeypatch)


def test_check_fails_on_decreasing_fits(monkeypatch: pytest.MonkeyPatch):
    class Overshoots(checks.Anchored):
        """Converges to the right values, but the first fit from 0 is too high."""

        def __call__(self, q: np.ndarray, d: Any) -> np.ndarray:
            return np.where(q.any(), super().__call__(q, d), 1.0)

    monkeypatch.setattr(checks, "Anchored", Overshoots)
    assert not holds("Proposition 3", monkeypatch)


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 12))])
def test_checks_hold_for_any_seed(seed: int):
    assert all(check.holds for check in checks.run(12, seed))


def test_failing_check_is_reported_with_exit_status_1(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    failing = checks.Check("Proposition 9", "pigs fly", 7, 0.5)
    monkeypatch.setattr(checks, "run", lambda *_: [failing])
    assert main(["theory"]) == 1
    assert "✗ FAILS: Proposition 9: pigs fly (7 processes, largest deviation 5e-01)" in capsys.readouterr().out


def test_a_check_without_cases_does_not_hold():
    assert not checks.Check("nothing", "", 0, 0.0).holds


# --- counterexamples ---


def test_every_counterexample_holds():
    found = list(counterexamples.run())
    assert all(example.differs for example in found)
    assert len({example.assumption for example in found}) == len(found) == 14


def test_counterexamples_by_hand():
    pairs = {
        counterexamples.every_edge: (GAMMA**11, GAMMA**2),
        counterexamples.subgoal_is_not_the_state: (GAMMA**2, GAMMA**6),
        counterexamples.actions_are_covered_too: (0.5, GAMMA**6),
        counterexamples.successors_are_in_the_data: (0.0, GAMMA**2),
        counterexamples.every_outcome_reaches_the_goal: (0.0, 0.5),
    }
    for example, (found, expected) in pairs.items():
        assert (example().found, example().expected) == pytest.approx((found, expected), abs=1e-9)


def test_next_action_in_hindsight_by_hand():
    """From 1, action 0 is at goal 2 at once and every three steps again; action 1 passes it only every other round.

    A round is three steps long and passes 2 with probability 1/2, whatever was before.
    """
    gamma = 0.8
    rounds = sum(gamma ** (3 * k) / 2 for k in range(1, 200))  # later visits, from one step before 2 or 3
    at_once, later = gamma * (1 + rounds), gamma * rounds
    assert counterexamples.next_action_is_not_hindsight().found == pytest.approx(at_once / (at_once + later))


def test_a_wide_clip_restores_the_outcomes():
    """The weight itself is right: without a clip the lucky outcome has its half, and with less clipping more of it."""
    shares = [counterexamples.weight_is_not_clipped(clip).found for clip in (0.0, 1.0, 3.0, 1e9)]
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] == pytest.approx(0.5)


def test_long_trajectories_restore_the_outcomes():
    shares = [counterexamples.trajectories_do_not_end(length).found for length in (8, 80, 300)]
    assert shares[0] > shares[1] > shares[2] == pytest.approx(0.5, abs=1e-6)


# --- pictures ---


@pytest.fixture(scope="module", autouse=True)
def _cached_curves() -> Iterator[None]:
    """Computes each curve once, for its picture and for its test."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("growing_mazes", "growing_trajectories", "teleporter_errors", "maze_errors"):
            patch.setattr(curves, name, cache(getattr(curves, name)))
        yield


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("pictures")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(style.RC, "savefig.dpi", 100)  # fewer pixels take less time
        return {path.stem: path for path in pictures.draw(folder / "of" / "theory")}


def test_every_picture_is_drawn_in_both_formats(drawn: dict[str, Any]):
    assert list(drawn) == ["concept", "method", "values", "iterations", "expectile", "data"]
    for path in drawn.values():
        assert path.with_suffix(".svg").read_text().rstrip().endswith("</svg>")
        grey = np.asarray(Image.open(path).convert("L"), float)
        assert grey.shape[1] == round(100 * style.WIDTH)
        assert grey.std() > 20  # not blank


def test_updates_are_logarithmic_and_backups_linear():
    sizes, halving, single = curves.growing_mazes()
    assert list(halving) == [math.ceil(math.log2(size)) for size in sizes]
    assert list(single) == list(sizes)
    assert sizes[-1] > 100


def test_composition_stays_logarithmic_when_it_is_fitted():
    """Fits along a trajectory of T steps: T by one-step targets; by composition a few more for every doubling."""
    fits = curves.growing_trajectories()
    assert fits["one step"] == list(curves.LENGTHS)
    for name in ("TRL", "GTRL"):
        more = np.diff(fits[name])
        assert (more >= 1).all()
        assert (more <= 3).all()


def test_scene_values_by_hand():
    here = pictures.scene()
    s, goal = here.maze.names["s"], here.goal
    # By hand: two steps into the teleporter, then 1 step from A; or from B right, down, left, down, right and up.
    distance = 6 + 2 + 4 + 2 + 6 + 1
    assert here.v_dc[s, goal] == pytest.approx(0.95**3)
    assert here.v_star[here.maze.names["B"], goal] == pytest.approx(0.95**distance)
    assert here.v_star[s, goal] == pytest.approx((0.95**3 + 0.95 ** (2 + distance)) / 2)
    untrained = ~here.drawn_trl[:, :, goal].any(1)
    assert untrained.any()
    assert not (here.best(here.q_trl)[untrained]).any()
    assert here.drawn_gtrl[:, :, goal].any(1).all()
    assert (here.best(here.q_gtrl) > 0).all()
    logged = here.drawn_gtrl
    assert (here.q_gtrl <= here.v_dc[:, None] + 1e-9)[logged].all()
    # Less optimistic than TRL at the teleporter.
    assert here.v_star[s, goal] < here.best(here.q_gtrl)[s] < here.best(here.q_trl)[s]


def test_errors_fall_with_data():
    for errors in (curves.teleporter_errors, curves.maze_errors):
        for name in ("TRL", "GTRL"):
            mean = errors(name).mean(1)
            assert (np.diff(mean) < 0).all()


def test_example_values_are_those_of_the_processes():
    values = summary.example_values()
    s, a, g = (examples.TELEPORTER[name] for name in "sAg")
    shown = {name: (round(q[s, g], 3), round(q[s, a], 3)) for name, q in values.items()}
    assert shown["TRL, κ = 0.7"] == (0.945, 0.990)
    assert shown["GTRL"] == (0.955, 0.447)
    assert shown["GTRL, h = 1"] == (0.957, 0.611)
    assert shown["MC"] == (0.940, 0.990)


# --- the docs ---


def test_docs_example_runs(capsys: pytest.CaptureFixture[str]):
    page = Path(__file__).parents[1] / "docs" / "theory.md"
    (example,) = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    exec(compile(example, str(page), "exec"), {})
    first, second = capsys.readouterr().out.splitlines()
    # 0.9 (1 + 0.9 V) / 2 = V for the best policy, which tries again from 1.
    assert [float(number) for number in first.split()] == pytest.approx([0.45 / (1 - 0.405), 0.9])
    assert second


def test_docs_numbers_match_the_command():
    """The table of Example 1, and what happens without each assumption, in the order of the page."""
    page = (Path(__file__).parents[1] / "docs" / "theory.md").read_text()
    values = summary.example_values()
    s, a, g = (examples.TELEPORTER[name] for name in "sAg")
    rows = [line for line in page.splitlines() if re.match(r"\| (V\\\*|V_DC|TRL|GTRL|MC)", line)]
    for line, q in zip(rows, values.values(), strict=True):
        assert [cell.strip() for cell in line.split("|")[2:5:2]] == [f"{q[s, g]:.3f}", f"{q[s, a]:.3f}"]
    assumptions = page.split("## Which assumptions")[1].split("## How do I compute")[0]
    lines = [line for line in assumptions.splitlines() if line.startswith("| ")][1:]
    for line, example in zip(lines, counterexamples.run(), strict=True):
        number = f"{abs(example.found):.3f}".removeprefix("0").replace(".000", "0").replace(".500", ".5")
        assert f" {number}" in line.split("|")[3]
