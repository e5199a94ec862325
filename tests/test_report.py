"""Reports: tables, statistics and figures of synthetic runs against separate computations; the paper's own numbers."""

import csv
import itertools
import re
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic_runs import write_run

from gtrl import cli
from gtrl.errors import RunError
from gtrl.report import charts, formats
from gtrl.report.cells import Cell, find_cells
from gtrl.report.paper import METHODS_OF_GROUP, PRINTED_AVERAGES, paper_score
from gtrl.report.report import write_report
from gtrl.report.result_tables import (
    Entry,
    Row,
    Table,
    ablation_table,
    aggregate_table,
    all_tables,
    completeness_table,
    goals_table,
    other_tasks_table,
    rank,
    success_table,
    tasks_of,
)
from gtrl.report.statistics import interquartile_mean, probability_of_improvement, propagated_deviation
from gtrl.runs.run import Run

pytestmark = pytest.mark.usefixtures("few_pixels")

SCORED = (800_000, 900_000, 1_000_000)
TELEPORT = ("pointmaze-teleport-navigate", "pointmaze-teleport-stitch", "antmaze-teleport-navigate",
            "antmaze-teleport-stitch")  # fmt: skip
METHODS = ("bc", "iql", "trl", "gtrl")
# Base rates of the synthetic successes: GTRL is best on every task, IQL second except on the first task.
RATES = {"bc": 0.1, "iql": 0.4, "trl": 0.3, "gtrl": 0.7}


def successes_of(rng: np.random.Generator, rate: float, seeds: int = 4, steps: Sequence[int] = SCORED) -> Any:
    return {(seed, step): rng.binomial(50, rate, 5).tolist() for seed in range(seeds) for step in steps}


@pytest.fixture(scope="module")
def counts(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[tuple[str, str], Any]]:
    """Runs of four methods on the teleport tasks, and their successes; BC was not run on the last task."""
    folder = tmp_path_factory.mktemp("runs")
    rng = np.random.default_rng(5)
    known = {}
    for task, method in itertools.product(TELEPORT, METHODS):
        if (task, method) != (TELEPORT[-1], "bc"):
            known[task, method] = successes_of(rng, RATES[method])
            write_run(folder / task / method, task, method, known[task, method])
    return folder, known


def expected_scores(successes: Any, goal: int | None = None, episodes: int = 50) -> list[float]:
    """The score of each seed in percent, from raw counts: the mean over three checkpoints of the success rate."""
    scores = []
    for seed in sorted({seed for seed, _ in successes}):
        rates = []
        for step in SCORED:
            won = successes[seed, step] if goal is None else [successes[seed, step][goal]]
            rates.append(100 * sum(won) / (episodes * len(won)))
        scores.append(sum(rates) / len(rates))
    return scores


def entries_of(table: Table) -> dict[tuple[str, ...], Entry]:
    """The numbers of a table by their row's labels and their column."""
    return {
        (*row.labels, column): entry
        for row in table.rows
        for column, entry in zip(table.columns, row.entries, strict=True)
        if isinstance(entry, Entry)
    }


def teleport_table(cells: Sequence[Cell]) -> Table:
    return success_table(cells, ("teleport", "stitch"), "table", "title")


# --- our numbers ---


def test_every_cell_of_a_table(counts: tuple[Path, dict[tuple[str, str], Any]]) -> None:
    folder, known = counts
    entries = entries_of(teleport_table(find_cells([folder])))
    for (task, method), successes in known.items():
        scores = expected_scores(successes)
        entry = entries[task, "Teleport", "ours", method.upper()]
        assert entry.mean == pytest.approx(statistics.mean(scores))
        assert entry.deviation == pytest.approx(statistics.stdev(scores))
        assert entry.note == ""
    assert entries[TELEPORT[-1], "Teleport", "ours", "BC"].mean is None  # missing, not zero
    assert entries[TELEPORT[0], "Teleport", "ours", "QRL"].mean is None
    assert entries["pointmaze-large-stitch", "Stitch", "ours", "GTRL"].mean is None


def test_averages_and_their_error_bars(counts: tuple[Path, dict[tuple[str, str], Any]]) -> None:
    folder, known = counts
    entries = entries_of(teleport_table(find_cells([folder])))
    for method in ("iql", "trl", "gtrl"):
        scores = [expected_scores(known[task, method]) for task in TELEPORT]
        entry = entries["average", "Teleport", "ours", method.upper()]
        assert entry.mean == pytest.approx(statistics.mean(map(statistics.mean, scores)))
        assert entry.deviation == pytest.approx(sum(statistics.variance(each) for each in scores) ** 0.5 / 4)
    assert entries["average", "Teleport", "ours", "BC"].mean is None  # one of its tasks is missing
    assert propagated_deviation([3.0, 4.0]) == pytest.approx(2.5)
    assert propagated_deviation([3.0, None]) is None
    assert propagated_deviation([]) is None


def test_best_is_bold_and_second_best_underlined(counts: tuple[Path, dict[tuple[str, str], Any]]) -> None:
    folder, known = counts
    table = teleport_table(find_cells([folder]))
    lines = {style: write(table).splitlines() for style, write in STYLES.items()}
    for task in TELEPORT:
        means = {
            method.upper(): round(statistics.mean(expected_scores(known[task, method])), 1)
            for method in METHODS
            if (task, method) in known
        }
        best, second = sorted(means, key=lambda method: -means[method])[:2]
        for style, (bold, underlined) in MARKS.items():
            line = next(line for line in lines[style] if task in line and "ours" in line)
            assert [float(text.split()[0]) for text in re.findall(bold, line)] == [means[best]]
            assert [float(text.split()[0]) for text in re.findall(underlined, line)] == [means[second]]


STYLES = {"markdown": formats.to_markdown, "latex": formats.to_latex}
MARKS = {
    "markdown": (r"\*\*(.*?)\*\*", r"<ins>(.*?)</ins>"),
    "latex": (r"\\textbf\{(.*?)\}", r"\\underline\{(.*?)\}"),
}


def test_equal_numbers_share_their_rank() -> None:
    row = rank([Entry(50.04), Entry(49.96), Entry(20.0), Entry()])  # both are printed as 50.0
    assert [entry.rank for entry in row] == [1, 1, 2, 0]
    assert [entry.rank for entry in rank([Entry(3.0), Entry()])] == [0, 0]  # nothing to compare with
    text = formats.to_markdown(Table("t", "t", ("task",), ("A", "B", "C", "D"), (Row(("x",), row),)))
    assert "| x | **50.0** | **50.0** | <ins>20.0</ins> | – |" in text


def test_success_by_goal(counts: tuple[Path, dict[tuple[str, str], Any]]) -> None:
    folder, known = counts
    entries = entries_of(goals_table(find_cells([folder]), "teleport"))
    for (task, method), successes in known.items():
        for goal in range(5):
            scores = expected_scores(successes, goal)
            entry = entries[task, f"task{goal + 1}", "ours", method.upper()]
            assert entry.mean == pytest.approx(statistics.mean(scores))
            assert entry.deviation == pytest.approx(statistics.stdev(scores))


def test_csv_has_every_number(counts: tuple[Path, dict[tuple[str, str], Any]]) -> None:
    folder, known = counts
    text = formats.to_csv(teleport_table(find_cells([folder])))
    rows = {(row["task"], row["column"]): row for row in csv.DictReader(text.splitlines()) if row["source"] == "ours"}
    measured = {key for key in rows if key[0] != "average"}
    assert measured == {(task, method.upper()) for task, method in known}
    for (task, method), successes in known.items():
        assert float(rows[task, method.upper()]["value"]) == pytest.approx(statistics.mean(expected_scores(successes)))


def test_what_falls_short_of_the_protocol_is_marked(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    task = "pointmaze-large-navigate"
    cases: dict[str, tuple[Any, dict[str, Any], str]] = {
        "complete": (successes_of(rng, 0.5), {}, ""),
        "seeds": (successes_of(rng, 0.5, seeds=2), {}, "2 seeds"),
        "seed": (successes_of(rng, 0.5, seeds=1), {}, "1 seed"),
        "steps": (successes_of(rng, 0.5, steps=[200_000]), {"steps": 200_000}, "200,000 steps"),
        "last": (successes_of(rng, 0.5, steps=[1_000_000]), {}, "1 of 3 checkpoints"),
        "episodes": (successes_of(rng, 0.1), {"episodes": 20}, "20 episodes per goal"),
        "two": (
            successes_of(rng, 0.1, 1, [500_000]), {"steps": 500_000, "episodes": 50},
            "500,000 steps, 1 seed",
        ),
        "unfinished": (successes_of(rng, 0.5, steps=[700_000, 800_000]), {}, "800,000 steps"),
    }  # fmt: skip
    for name, (successes, options, note) in cases.items():
        limit = options.get("episodes", 50)
        capped = {policy: [min(limit, count) for count in won] for policy, won in successes.items()}
        run = write_run(tmp_path / name / task / "gtrl", task, "gtrl", capped, **options)
        (cell,) = find_cells([run.path])
        assert ", ".join(cell.shortfalls) == note, name
        entry = entries_of(success_table([cell], ("deterministic",), "t", "t"))[task, "Standard", "ours", "GTRL"]
        assert entry.note == note
        text = formats.to_markdown(success_table([cell], ("deterministic",), "t", "t"))
        assert (f"a: {note}" in text) == bool(note)
        protocol = dict(
            zip(completeness_table([cell]).columns, completeness_table([cell]).rows[0].entries, strict=True)
        )
        assert protocol["protocol"] == (note or "complete")
    run = write_run(tmp_path / "none", task, "gtrl", {})
    run.save_config(run.config | {"seeds": [0]})
    (cell,) = find_cells([run.path])
    assert cell.shortfalls == ["not evaluated"]
    assert cell.score() is None


def test_only_seeds_with_a_score_count(tmp_path: Path) -> None:
    task = "pointmaze-large-navigate"
    # Seeds 1 to 3 were evaluated early on only: the score is that of seed 0, and says so.
    early = {(seed, 500_000): [10] * 5 for seed in range(4)}
    run = write_run(tmp_path / "one", task, "gtrl", early | {(0, step): [40] * 5 for step in SCORED})
    (cell,) = find_cells([run.path])
    assert (cell.seeds, cell.score(), cell.shortfalls) == ([0], (80.0, None, 1), ["1 seed"])
    assert [(step, score.seeds) for step, score in cell.curve()] == [(500_000, 4), *((step, 1) for step in SCORED)]
    # One seed lacks a checkpoint.
    both = {(seed, step): [40] * 5 for seed in range(4) for step in SCORED}
    del both[2, 900_000]
    (cell,) = find_cells([write_run(tmp_path / "two", task, "gtrl", both).path])
    assert cell.shortfalls == ["2 of 3 checkpoints"]
    # A shorter run is scored where all seeds are.
    short = {(seed, 100_000): [20] * 5 for seed in range(4)} | {(3, 200_000): [50] * 5}
    (cell,) = find_cells([write_run(tmp_path / "short", task, "gtrl", short, steps=200_000).path])
    assert (cell.scored_steps, cell.score()) == ([100_000], (40.0, 0.0, 4))
    assert cell.shortfalls == ["100,000 steps"]


def test_other_settings_are_marked_or_have_a_name(tmp_path: Path) -> None:
    task = "pointmaze-large-navigate"
    won = {(seed, step): [40] * 5 for seed in range(4) for step in SCORED}
    (cell,) = find_cells([write_run(tmp_path / "default", task, "gtrl", won, gamma=0.99, hidden=[512] * 3).path])
    assert (cell.name, cell.shortfalls) == ("gtrl", [])
    (cell,) = find_cells([write_run(tmp_path / "small", task, "gtrl", won, hidden=[8, 8], alpha=123.0).path])
    assert (cell.name, cell.shortfalls) == ("gtrl", ["other settings: hidden, alpha"])
    # Ablations are recognised by their fields, the one with the most fields first.
    ablations: dict[str, dict[str, Any]] = {
        "gtrl-dc": {"selection": "dc"},
        "gtrl-no-counterfactual": {"selection": "dc", "value_goals": [0.0, 1.0, 0.0]},
        "gtrl-no-hindsight": {"hindsight": False},
        "gtrl-waypoints": {"waypoint": "state"},
        "gtrl-waypoints-x10": {"waypoint": "state", "bound_weight": 10.0},
        "gtrl-one-expectile": {"kappa_one_step": 0.7},
    }
    for name, fields in ablations.items():
        (cell,) = find_cells([write_run(tmp_path / name, task, "gtrl", won, **fields).path])
        assert (cell.name, cell.shortfalls) == (name, [])
    run = write_run(tmp_path / "small-dc", task, "gtrl", won, selection="dc", hidden=[8, 8])
    (cell,) = find_cells([run.path])
    assert (cell.name, cell.shortfalls) == ("gtrl-dc", ["other settings: hidden"])
    (cell,) = find_cells([write_run(tmp_path / task / "gtrl-mine", task, "gtrl", won, alpha=123.0).path])
    assert (cell.name, cell.shortfalls) == ("gtrl-mine", [])  # named by its folder
    (cell,) = find_cells([write_run(tmp_path / task / "td-n", task, "td", won).path])
    assert cell.name == "td"  # not TD-n, which is another method
    (cell,) = find_cells([write_run(tmp_path / "own", task, "my-method", won, anything=1).path])
    assert (cell.name, cell.shortfalls) == ("my-method", [])


def test_a_seed_that_lacks_a_goal_is_left_out(tmp_path: Path) -> None:
    task = "pointmaze-large-navigate"
    run = write_run(tmp_path, task, "gtrl", {(seed, 1_000_000): [seed * 10] * 5 for seed in range(3)})
    rows = [row for row in run.evaluations() if (row["seed"], row["goal"]) != (1, "task5")]
    (run.path / "eval.csv").unlink()
    run.add_evaluations(rows)
    (cell,) = find_cells([tmp_path])
    assert cell.seed_scores() == {0: 0.0, 2: 40.0}


def test_evaluations_with_other_base_seeds_are_pooled(tmp_path: Path) -> None:
    task = "pointmaze-large-navigate"
    run = write_run(tmp_path, task, "gtrl", {(0, step): [10] * 5 for step in SCORED})
    row = {"algorithm": "gtrl", "task": task, "seed": 0, "step": 800_000}
    # Base seed 7: 30 of 100 for each goal. Base seed 0: fewer episodes, which are among those that are there.
    run.add_evaluations(
        {**row, "goal": f"task{k}", "episodes": 100, "successes": 30, "base_seed": 7} for k in range(1, 6)
    )
    run.add_evaluations(
        {**row, "goal": f"task{k}", "episodes": 20, "successes": 20, "base_seed": 0} for k in range(1, 6)
    )
    (cell,) = find_cells([tmp_path])
    assert cell.rates[0, 800_000] == {f"task{k}": pytest.approx(100 * 40 / 150) for k in range(1, 6)}
    assert cell.score() == (pytest.approx((100 * 40 / 150 + 20 + 20) / 3), None, 1)


# --- the paper's numbers ---

# Where the mean of the printed cells, rounded, is not the average that the paper prints below them.
PRINTED_OTHERWISE = {("stitch", "fbc"): 14.4, ("stitch", "iql"): 21.2, ("stitch", "crl"): 16.2, ("stitch", "mc"): 9.6,
                     ("stitch", "trl"): 10.0}  # fmt: skip


def paper_averages() -> dict[tuple[str, str], Entry]:
    """The averages that our tables compute from the paper's cells, by (group, method)."""
    groups = (("teleport", "stitch"), ("deterministic",))
    found = {}
    for entries in (entries_of(success_table([], names, "t", "t")) for names in groups):
        for (task, group, source, column), entry in entries.items():
            if (task, source) == ("average", "paper"):
                name = {"Teleport": "teleport", "Stitch": "stitch", "Standard": "deterministic"}[group]
                found[name, column.lower()] = entry
    return found


def test_the_papers_averages_follow_from_its_cells() -> None:
    averages = paper_averages()
    assert len(averages) == 10 + 10 + 12
    differing = {}
    for group, methods in METHODS_OF_GROUP.items():
        for method, printed in zip(methods, PRINTED_AVERAGES[group], strict=True):
            mean = averages[group, method].mean
            assert mean is not None
            assert abs(mean - printed) <= 0.5  # every cell is rounded to a whole number
            if abs(mean - printed) > 0.05 + 1e-9:
                differing[group, method] = round(mean, 1)
    assert differing == PRINTED_OTHERWISE
    assert PRINTED_AVERAGES["teleport"][0] == 28.2
    assert PRINTED_AVERAGES["teleport"][-1] == 42.2
    assert [PRINTED_AVERAGES["stitch"][k] for k in (0, -1)] == [13.8, 35.2]
    assert [PRINTED_AVERAGES["deterministic"][k] for k in (0, -1)] == [7.2, 72.7]


# The best and second best of each row, as the paper marks them.
MARKED = {
    "pointmaze-teleport-navigate": ("GTRL", "IVL"), "pointmaze-teleport-stitch": ("GTRL", "IVL"),
    "antmaze-teleport-navigate": ("CRL", "GTRL"), "antmaze-teleport-stitch": ("GTRL", "IVL"),
    "pointmaze-large-stitch": ("QRL", "IQL"), "antmaze-large-stitch": ("GTRL", "IVL QRL"),
    "humanoidmaze-medium-stitch": ("GTRL", "CRL"), "humanoidmaze-large-stitch": ("GTRL", "CRL"),
    "antsoccer-arena-stitch": ("GTRL", "IQL"), "pointmaze-large-navigate": ("GTRL", "FBC"),
    "antmaze-large-navigate": ("GTRL", "CRL"), "humanoidmaze-medium-navigate": ("GTRL", "CRL"),
    "humanoidmaze-large-navigate": ("GTRL", "CRL"), "antsoccer-arena-navigate": ("IQL", "GTRL"),
    "cube-single-play": ("MC", "IQL TD-n TRL"), "cube-double-play": ("IQL", "IVL"), "scene-play": ("GTRL", "TRL"),
    "puzzle-3x3-play": ("GTRL", "TD-n TRL"), "puzzle-4x4-play": ("GTRL", "TRL"),
}  # fmt: skip


def test_the_papers_best_methods_are_marked_as_in_the_paper() -> None:
    for names in (("teleport", "stitch"), ("deterministic",)):
        table = success_table([], names, "t", "t")
        for row in table.rows:
            if row.labels[-1] == "paper" and not row.is_average:
                ranked = {
                    place: " ".join(
                        column
                        for column, entry in zip(table.columns, row.entries, strict=True)
                        if isinstance(entry, Entry) and entry.rank == place
                    )
                    for place in (1, 2)
                }
                assert (ranked[1], ranked[2]) == MARKED[row.labels[0]]


def test_the_papers_goals_average_to_its_overall_numbers() -> None:
    checked = 0
    for task in tasks_of("deterministic"):
        for method in METHODS_OF_GROUP["deterministic"]:
            goals = [paper_score(task, method, f"task{k}") for k in range(1, 6)]
            overall = paper_score(task, method)
            assert overall is not None
            if None not in goals:
                checked += 1
                mean = statistics.mean(score.mean for score in goals if score)
                assert abs(mean - overall.mean) <= 1.2, (task, method)
    assert checked > 100


# --- statistics ---


def test_interquartile_mean_against_sorting() -> None:
    rng = np.random.default_rng(1)
    scores = [rng.random(4) * 100 for _ in range(5)]
    pooled = sorted(np.concatenate(scores).tolist())
    assert interquartile_mean(scores).value == pytest.approx(statistics.mean(pooled[5:15]))


def test_bootstrap_interval_against_all_resamples() -> None:
    # Two tasks with two seeds each: 2^2 * 2^2 equally likely resamples within the tasks.
    first, second = np.array([0.0, 10.0]), np.array([20.0, 60.0])
    resamples = []
    for a, b, c, d in itertools.product(first, first, second, second):
        resamples.append(statistics.mean(sorted([a, b, c, d])[1:3]))
    estimate = interquartile_mean([first, second])
    # 2,000 draws hit each of the 16 resamples about 125 times, so both quantiles are these, exactly.
    assert (estimate.low, estimate.high) == (min(resamples), max(resamples)) == (10.0, 35.0)
    assert estimate.value == 15.0
    # A single seed has no spread.
    assert interquartile_mean([np.array([7.0])]) == (7.0, 7.0, 7.0)


def test_probability_of_improvement_by_counting() -> None:
    ours = [np.array([1.0, 5.0, 9.0]), np.array([2.0, 2.0])]
    theirs = [np.array([5.0, 6.0]), np.array([2.0, 3.0])]
    # Task 1: of six pairs 9 wins twice, 5 and 5 are a tie. Task 2: two ties of four.
    assert probability_of_improvement(ours, theirs).value == pytest.approx(((2 + 0.5) / 6 + 1 / 4) / 2)
    better = [np.array([8.0, 9.0])]
    assert probability_of_improvement(better, [np.array([1.0, 2.0])]) == (1.0, 1.0, 1.0)


def test_aggregates_of_measured_tasks(counts: tuple[Path, dict[tuple[str, str], Any]]) -> None:
    folder, known = counts
    entries = entries_of(aggregate_table(find_cells([folder])))
    for method, measured in (("iql", "4 of 4"), ("bc", "3 of 4")):
        key = ("Teleport", method.upper(), measured)
        scores = {task: expected_scores(known[task, method]) for task in TELEPORT if (task, method) in known}
        pooled = sorted(score for each in scores.values() for score in each)
        cut = len(pooled) // 4
        assert entries[*key, "ours: IQM"].mean == pytest.approx(statistics.mean(pooled[cut : len(pooled) - cut]))
        wins = [
            statistics.mean(
                (ours > theirs) + 0.5 * (ours == theirs)
                for ours in expected_scores(known[task, "gtrl"])
                for theirs in scores[task]
            )
            for task in scores
        ]
        better = entries[*key, "GTRL better"]
        assert better.mean == pytest.approx(statistics.mean(wins))
        assert better.interval is not None
        assert better.interval[0] <= statistics.mean(wins) <= better.interval[1]
    assert entries["Stitch", "QRL", "0 of 5", "ours: IQM"].mean is None
    assert entries["Stitch", "QRL", "0 of 5", "paper: average"].mean == pytest.approx(24.8)


def test_one_seed_has_no_interval(tmp_path: Path) -> None:
    for method, count in (("gtrl", 40), ("trl", 20)):
        write_run(tmp_path / method, "scene-play", method, {(0, step): [count] * 5 for step in SCORED})
    entries = entries_of(aggregate_table(find_cells([tmp_path])))
    middle, better = (entries["Standard", "TRL", "1 of 10", column] for column in ("ours: IQM", "GTRL better"))
    assert (middle.mean, middle.interval, better.mean, better.interval) == (40.0, None, 1.0, None)
    assert middle.note == better.note == "from runs below the protocol"


# --- ablations ---


def test_drops_of_ablations_beside_the_papers(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    known = {}
    tasks = ("antmaze-large-navigate", "pointmaze-teleport-navigate", "scene-play")
    for task, name, rate in itertools.product(tasks, ("gtrl", "gtrl-one-expectile", "gtrl-no-counterfactual"), (0.6,)):
        known[task, name] = successes_of(rng, rate if name == "gtrl" else rng.uniform(0.1, 0.5))
        write_run(tmp_path / task / name, task, "gtrl", known[task, name])
    cells = find_cells([tmp_path])
    table = ablation_table(cells)
    assert table is not None
    entries = {(*key[1:],): entry for key, entry in entries_of(table).items()}  # without the component
    drops = {}
    titles = {"gtrl-one-expectile": "κ = 0.7 for all goals", "gtrl-no-counterfactual": "no counterfactual goals"}
    for name, title in titles.items():
        for task in tasks:
            full, ablated = (expected_scores(known[task, each]) for each in ("gtrl", name))
            drops[name, task] = statistics.mean(full) - statistics.mean(ablated)
            entry = entries[title, task, "drop"]
            assert entry.mean == pytest.approx(drops[name, task])
            assert entry.deviation == pytest.approx((statistics.variance(full) + statistics.variance(ablated)) ** 0.5)
    assert entries["κ = 0.7 for all goals", "antmaze-large-navigate", "paper: drop"].mean == 25.3
    assert entries["κ = 0.7 for all goals", "scene-play", "paper: drop"].mean is None
    largest = entries["no counterfactual goals", "largest on deterministic tasks", "drop"]
    name = "gtrl-no-counterfactual"
    assert largest.mean == pytest.approx(max(drops[name, "scene-play"], drops[name, "antmaze-large-navigate"]))
    stochastic = entries["no counterfactual goals", "largest on stochastic tasks", "drop"]
    assert stochastic.mean == pytest.approx(drops[name, "pointmaze-teleport-navigate"])
    assert entries["no counterfactual goals", "largest on stochastic tasks", "paper: drop"].mean == 20.1
    # Ablations have a table of their own and are no columns of the others.
    assert not any("expectile" in column for table in all_tables(cells)[:2] for column in table.columns)
    assert ablation_table([cell for cell in cells if cell.name == "gtrl"]) is None


# --- figures ---


def test_bars_of_groups(counts: tuple[Path, dict[tuple[str, str], Any]]) -> None:
    folder, known = counts
    figure = charts.groups_figure(find_cells([folder]))
    axis = figure.axes[0]
    heights = [patch.get_height() for patch in axis.patches]  # pyright: ignore[reportAttributeAccessIssue]
    of_paper = [paper_averages()["teleport", method].mean for method in METHODS_OF_GROUP["teleport"]]
    ours = [
        statistics.mean(statistics.mean(expected_scores(known[task, method])) for task in TELEPORT)
        for method in ("iql", "trl", "gtrl")
    ]
    assert heights == pytest.approx([*of_paper, *ours])
    assert [text.get_text() for text in axis.texts] == ["not measured"] * 7


def test_learning_curves(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    task = "pointmaze-large-navigate"
    successes = successes_of(rng, 0.5, 3, range(100_000, 1_000_001, 100_000))
    write_run(tmp_path / "gtrl", task, "gtrl", successes)
    cells = find_cells([tmp_path])
    curves, times = charts.curves_figure(cells), charts.time_figure(cells)
    assert curves is not None
    assert times is not None
    line, paper = curves.axes[0].lines
    xs, ys = np.asarray(line.get_xdata()), np.asarray(line.get_ydata())
    assert xs.tolist() == list(range(100_000, 1_000_001, 100_000))
    expected = [np.mean([sum(successes[seed, step]) / 2.5 for seed in range(3)]) for step in xs]
    assert ys == pytest.approx(expected)
    assert set(np.asarray(paper.get_ydata()).tolist()) == {79.0}
    # Synthetic runs make 1,000 steps per second, after 10 s for the first 1,000.
    minutes = np.asarray(times.axes[0].lines[0].get_xdata())
    assert minutes == pytest.approx((10 + xs / 1000) / 60)


def test_looks_of_all_methods_differ() -> None:
    names = ["GTRL", "TRL", *(f"method {k}" for k in range(11))]
    looks = [charts._look(names, name) for name in names]
    assert len({look["color"] for look in looks}) == len({look["marker"] for look in looks}) == 13


# --- the whole report ---


def test_report_command(
    counts: tuple[Path, dict[tuple[str, str], Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, known = counts
    assert cli.main(["report", str(folder), "--out", str(tmp_path / "report"), "--no-page"]) == 0
    written = [Path(line.removeprefix("written: ")) for line in capsys.readouterr().out.splitlines()]
    files = [path for path in (tmp_path / "report").rglob("*") if path.is_file()]
    assert sorted(written) == sorted(files)
    names = {str(path.relative_to(tmp_path / "report")) for path in files}
    tables = ("teleport-and-stitch", "standard", "aggregates", "goals-teleport", "goals-deterministic", "cells")
    assert names >= {f"tables/{name}.{ending}" for name in tables for ending in ("md", "tex", "csv")}
    figures = ("groups", "curves", "goals", "time")
    assert names >= {f"figures/{name}.{ending}" for name in figures for ending in ("png", "pdf")}
    text = (tmp_path / "report/report.md").read_text()
    assert f"{len(known)} runs, {len(known)} of them measured by the paper's full protocol" in text
    assert all((tmp_path / "report" / link).exists() for link in re.findall(r"\]\((figures/.*?)\)", text))


def test_report_without_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["report", str(tmp_path), "--out", str(tmp_path / "out"), "--no-page"]) == 2
    assert "holds no run" in capsys.readouterr().err
    with pytest.raises(RunError, match="holds no run"):
        find_cells([tmp_path / "nowhere"])


def test_an_earlier_report_leaves_no_files(tmp_path: Path) -> None:
    out = tmp_path / "report"
    (out / "tables").mkdir(parents=True)
    for name in ("tables/notes.txt", "tables/other-tasks.tex", "index.html"):
        (out / name).write_text("of an earlier report, or of the user")
    run = write_run(tmp_path / "b", "scene-play", "gtrl", {(0, 500): [1] * 5}, steps=500)
    written = write_report([run.path], out, page=False)
    assert {path for path in out.rglob("*") if path.is_file()} == {*written, out / "tables/notes.txt"}


def test_folders_with_links_to_themselves(tmp_path: Path) -> None:
    run = write_run(tmp_path / "runs/a", "my-task", "gtrl", {(0, 500): [1] * 5}, steps=500)
    for name in ("latest", "best"):
        (tmp_path / "runs" / name).symlink_to(".")
    assert [cell.run.path for cell in find_cells([tmp_path / "runs"])] == [run.path]


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("timing.jsonl", '{"step": 3}\n', "'time' of a row is None"),
        ("timing.jsonl", '{"step": 3, "time": Infinity}\n', "'time' of a row is inf"),
        ("timing.jsonl", '{"step": "x", "time": 3}\n', "'step' of a row is 'x'"),
        ("config.json", '{"algorithm": "gtrl", "task": null, "seeds": [0]}', "'algorithm' is 'gtrl'"),
        ("config.json", '{"algorithm": {"name": "gtrl"}, "training": []}', r"'training' is \[\]"),
        ("config.json", '{"algorithm": {"name": "gtrl"}, "training": {"steps": null}, "data": {}}', "'training.steps'"),
        ("eval.csv", "algorithm,task,seed,step,goal,episodes,successes\ngtrl,t,0,3,a,50,60\n", "60 successes of 50"),
    ],
)
def test_damaged_files_are_one_line_errors(file: str, content: str, message: str, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", "scene-play", "gtrl", {(0, 500): [1] * 5}, steps=500)
    (run.path / file).write_text(content)
    with pytest.raises(RunError, match=message) as error:
        find_cells([run.path])[0].seconds_at([500])
    assert "\n" not in str(error.value)


def test_other_tasks_and_several_runs_of_a_method(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for number, count in enumerate((10, 30)):
        write_run(tmp_path / f"run{number}", "my-task", "gtrl", {(0, 500): [count] * 5}, steps=500)
    cells = find_cells([tmp_path])
    assert [cell.name for cell in cells] == [f"gtrl ({tmp_path}/run{number})" for number in (0, 1)]
    assert "there are 2 runs of GTRL on my-task" in caplog.text
    table = other_tasks_table(cells)
    assert table is not None
    assert [entry.mean for entry in entries_of(table).values()] == [20.0, 60.0]


# --- hostile names ---

HOSTILE = '<script>alert(1)</script> ../.. $x_1^2$ \\input{secrets} % & # ~ {a} | **b** `c` [d](e) \n= "q"'


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", "a task", "gtrl", {(0, 500): [10] * 5}, steps=500)
    cell = Cell(Run(run.path), f"gtrl-{HOSTILE}")
    for table in (other_tasks_table([cell]), completeness_table([cell])):
        assert table is not None
        flat = " ".join(cell.title.split())
        markdown = formats.to_markdown(table)
        assert flat in re.sub(r"\\(.)", r"\1", markdown)  # a backslash before every special character
        assert "<script>" not in markdown
        assert len({line.count(" | ") for line in markdown.splitlines() if line.startswith("| ")}) == 1
        latex = formats.to_latex(table)
        assert "\\input" not in latex
        body = latex.partition("\\midrule")[2].partition("\\bottomrule")[0]
        # Without the escaped characters no special one is left but the table's own & and \\.
        left = re.sub(
            r"\\text[a-z]+\{\}|\{\*\}|\{\[\}|\\[%$&#_{}]|\\\\|\$\\pm\$|\\midrule|\\textsuperscript\{\w+\}", "", body
        )
        assert not re.search(r"[\\${}%#^~_]", left), left
        rows = list(csv.reader(formats.to_csv(table).splitlines(keepends=True)))
        assert any(cell.title in value for row in rows for value in row)


def test_hostile_tasks_in_a_whole_report(tmp_path: Path) -> None:
    tasks = (r"a$\frac$b", "[draft] maze", "*star", "<b>bold</b>")
    for number, task in enumerate(tasks):
        goals = ("$x", "a_b", "c", "d", "e")
        write_run(tmp_path / f"run{number}", task, "gtrl", {(0, 500): [10] * 5}, steps=500, goal_names=goals)
    write_report([tmp_path], tmp_path / "report", page=False)
    latex = (tmp_path / "report/tables/other-tasks.tex").read_text()
    assert not any(line.startswith(("[", "*")) for line in latex.splitlines())  # arguments of the line break before
    markdown = (tmp_path / "report/tables/other-tasks.md").read_text()
    assert all(formats.escape_markdown(task) in markdown for task in tasks)
    assert formats.escape_markdown(tasks[0]) == r"a\$\\frac\$b"
