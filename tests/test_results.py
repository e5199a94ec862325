"""The folder of results: adding runs, joining the seeds of a cell, the index, and its checks."""

import csv
import json
import statistics
from pathlib import Path
from typing import Any

import pytest
from synthetic_runs import write_run

from gtrl import cli
from gtrl.errors import ConfigError, RunError
from gtrl.report.cells import find_cells
from gtrl.report.results import METRIC_STEPS, add_results, check_results, write_index
from gtrl.runs.run import Run

TASK = "pointmaze-large-navigate"
SCORED = (800_000, 900_000, 1_000_000)


def successes(*seeds: int) -> dict[tuple[int, int], list[int]]:
    """Successes whose score is 10, 20, ... percent for the seeds 0, 1, ..."""
    return {(seed, step): [5 * (seed + 1)] * 5 for seed in seeds for step in SCORED}


def index_rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "index.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_adding_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_run(tmp_path / "somewhere/run", TASK, "gtrl", successes(0, 1, 2, 3))
    results = tmp_path / "results"
    assert cli.main(["results", "add", str(run.path), "--results", str(results)]) == 0
    assert capsys.readouterr().out == f"written: {results / TASK / 'gtrl'}\n"
    cell = Run(results / TASK / "gtrl")
    assert cell.evaluations() == run.evaluations()
    assert cell.config == run.config | {"data": run.config["data"] | {"source": "data.npz"}}  # without the folder
    scores = [10.0, 20.0, 30.0, 40.0]
    assert index_rows(results) == [
        {
            "task": TASK, "name": "gtrl", "success": f"{statistics.mean(scores):.2f}",
            "deviation": f"{statistics.stdev(scores):.2f}", "seeds": "4", "scored_steps": "800000 900000 1000000",
            "episodes": "50", "precision": "bfloat16", "protocol": "complete",
        }
    ]  # fmt: skip
    assert check_results(results) == []


def test_two_halves_of_a_cell_are_joined(tmp_path: Path) -> None:
    seeds = [(0, 1), (2, 3)]
    halves = [write_run(tmp_path / f"half{k}", TASK, "gtrl", successes(*half)) for k, half in enumerate(seeds)]
    results = tmp_path / "results"
    add_results([half.path for half in halves], results)  # both at once
    one_by_one = tmp_path / "one-by-one"
    for half in halves:
        add_results([half.path], one_by_one)
    whole = write_run(tmp_path / "whole", TASK, "gtrl", successes(0, 1, 2, 3))
    for folder in (results, one_by_one):
        cell = Run(folder / TASK / "gtrl")
        assert cell.seeds == [0, 1, 2, 3]
        assert cell.evaluations() == whole.evaluations()
        assert [part["seeds"] for part in cell.config["joined"]] == [[0, 1], [2, 3]]
        assert list(cell.metrics()) == list(whole.metrics())
        assert index_rows(folder)[0]["protocol"] == "complete"
        assert check_results(folder) == []
    assert index_rows(results) == index_rows(one_by_one)


def test_only_runs_of_one_cell_are_joined(tmp_path: Path) -> None:
    first = write_run(tmp_path / "first", TASK, "gtrl", successes(0, 1))
    results = tmp_path / "results"
    add_results([first.path], results)
    before = {path: path.read_bytes() for path in results.rglob("*") if path.is_file()}
    seed = write_run(tmp_path / "seed", TASK, "gtrl", successes(1, 2))
    field = write_run(tmp_path / "field", TASK, "gtrl", successes(2), alpha=0.3)
    steps = write_run(tmp_path / "steps", TASK, "gtrl", successes(2), steps=900_000)
    messages = ("seed 1 is in .*--replace", "differ in 'algorithm'", "differ in 'training'")
    for run, message in zip((seed, field, steps), messages, strict=True):
        with pytest.raises(ConfigError, match=message):
            add_results([run.path], results)
    assert {path: path.read_bytes() for path in results.rglob("*") if path.is_file()} == before
    add_results([seed.path], results, replace=True)
    assert Run(results / TASK / "gtrl").seeds == [1, 2]
    add_results([field.path], results, name="gtrl-alpha-0.3")
    assert [row["name"] for row in index_rows(results)] == ["gtrl", "gtrl-alpha-0.3"]
    assert find_cells([results])[1].title == "GTRL-alpha-0.3"


def test_other_data_is_not_joined(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / name, TASK, "gtrl", successes(seed)) for seed, name in enumerate(("a", "b"))]
    config = runs[1].config
    config["data"]["digest"] = "4567"
    runs[1].save_config(config)
    with pytest.raises(ConfigError, match=r"differ in 'data\.digest'"):
        add_results([run.path for run in runs], tmp_path / "results")


def test_long_logs_are_thinned(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", TASK, "gtrl", successes(0, 1))
    rows = [{"step": step, "seed": seed, "loss": 1 / step} for step in range(1000, 1_000_001, 1000) for seed in (0, 1)]
    (run.path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    add_results([run.path], tmp_path / "results")
    kept = list(Run(tmp_path / "results" / TASK / "gtrl").metrics())
    assert all(row in rows for row in kept)
    assert METRIC_STEPS <= len({row["step"] for row in kept}) <= METRIC_STEPS + 2
    assert {row["step"] for row in kept} >= {1_000_000}
    assert all(sum(row["step"] == step for row in kept) == 2 for step in {row["step"] for row in kept})


@pytest.mark.parametrize("name", ["../out", "a/b", "<script>", "", ".hidden", "a b", "a\nb"])
def test_names_that_are_no_folder_names(name: str, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", TASK, "gtrl", successes(0))
    arguments: dict[str, Any] = {"name": name} if name else {}
    if not name:
        run.save_config(run.config | {"task": "../../etc"})
        run.add_evaluations([])
        (run.path / "eval.csv").write_text((run.path / "eval.csv").read_text().replace(TASK, "../../etc"))
    with pytest.raises(ConfigError, match="use letters, digits"):
        add_results([run.path], tmp_path / "results", **arguments)
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(("method", "name"), [("trl", "my-trl"), ("trl", "TRL-ours"), ("td", "td-n")])
def test_cells_are_named_after_their_method(method: str, name: str, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", TASK, method, successes(0))
    with pytest.raises(ConfigError, match=f"a cell of {method} cannot be named '{name}'"):
        add_results([run.path], tmp_path / "results", name=name)


def test_thinning_keeps_the_training_time(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", TASK, "gtrl", successes(0))
    rows: list[dict[str, Any]] = []
    for start in range(50):  # each time a start of 10 s, 20 logs of 1 s, and a pause of 1,000 s
        time, step = 2000.0 * start, 20_000 * start
        rows.append({"step": step + 1, "time": time + 10, "start_up_seconds": 10.0})
        rows += [{"step": step + 1000 * (k + 1), "time": time + 11 + k, "steps_per_second": 1.0} for k in range(20)]
    (run.path / "timing.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (cell,) = add_results([run.path], tmp_path / "results")
    before, after = (find_cells([path])[0].seconds_at([1_000_000])[0] for path in (run.path, cell))
    assert before == after == pytest.approx(50 * 30)
    assert len(list(Run(cell).timing())) < 200


def test_runs_that_were_not_evaluated(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", TASK, "gtrl", successes(0))
    (run.path / "eval.csv").unlink()
    with pytest.raises(RunError, match="was not evaluated yet: gtrl evaluate"):
        add_results([run.path], tmp_path / "results")
    assert cli.main(["results", "add"]) == 2


def test_nothing_is_written_unless_all_runs_can_be_added(tmp_path: Path) -> None:
    good = write_run(tmp_path / "good", TASK, "gtrl", successes(0))
    half = write_run(tmp_path / "half", TASK, "gtrl", successes(1))
    (half.path / "eval.csv").unlink()
    other = write_run(tmp_path / "other", "scene-play", "gtrl", successes(0))
    with pytest.raises(RunError, match="half was not evaluated yet"):
        add_results([other.path, good.path, half.path], tmp_path / "results")
    assert not (tmp_path / "results").exists()


def test_replacing_removes_all_files_of_a_cell(tmp_path: Path) -> None:
    results = tmp_path / "results"
    run = write_run(tmp_path / "run", TASK, "gtrl", successes(0))
    (run.path / "maps.npz").write_bytes(b"old")
    (run.path / "diagnostics.json").write_text('{"step": 3, "sections": [], "notes": ["no data at /home/somebody"]}')
    (cell,) = add_results([run.path], results)
    assert json.loads((cell / "diagnostics.json").read_text()) == {"step": 3, "sections": []}  # without paths
    assert (cell / "maps.npz").read_bytes() == b"old"
    (run.path / "maps.npz").unlink()
    add_results([run.path], results, replace=True)
    assert not (cell / "maps.npz").exists()
    for replace in (False, True):
        with pytest.raises(ConfigError, match="is in the results already"):
            add_results([cell], results, replace=replace)
    assert Run(cell).evaluations() == run.evaluations()


def test_check_finds_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = tmp_path / "results"
    add_results([write_run(tmp_path / "run", TASK, "gtrl", successes(0, 1, 2, 3)).path], results)
    assert cli.main(["results", "check", str(results)]) == 0
    assert "complete" in capsys.readouterr().out
    write_run(results / "scene-play/gtrl", TASK, "gtrl", successes(0))  # in the folder of another task
    write_run(results / TASK / "baseline", TASK, "trl", successes(0))
    (results / TASK / "gtrl/film.gif").write_bytes(b"")
    other = write_run(tmp_path / "other", TASK, "gtrl", successes(7))
    Run(results / TASK / "gtrl").add_evaluations(other.evaluations())
    (results / "notes.txt").write_text("not a cell")
    (results / "README.md").write_text("allowed")
    problems = "\n".join(check_results(results))
    assert f"scene-play/gtrl is not at {results}/{TASK}/NAME" in problems
    assert "has a path of the machine: /home/somebody/data.npz" in problems
    assert "notes.txt does not belong to a cell" in problems
    assert "film.gif does not belong to a cell" in problems
    assert f"{TASK}/baseline is a run of trl, so it must be named trl or trl-VARIANT" in problems
    assert f"{TASK}/gtrl/eval.csv has rows of seed 7, which config.json does not have" in problems
    assert "index.csv is not up to date: run 'gtrl results index" in problems
    assert "README" not in problems
    assert cli.main(["results", "check", str(results)]) == 2
    assert "notes.txt does not belong to a cell" in capsys.readouterr().err
    assert cli.main(["results", "index", str(results)]) == 0
    assert not any("up to date" in problem for problem in check_results(results))


def test_published_results_are_in_order() -> None:
    """The results of this repository: every folder is a cell, and the index is up to date."""
    folder = Path(__file__).parents[1] / "results"
    assert (folder / "index.csv").exists()
    assert check_results(folder) == []


def test_empty_results(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    write_index(tmp_path / "results")
    assert index_rows(tmp_path / "results") == []
    assert find_cells([tmp_path / "results"]) == []
    with pytest.raises(ConfigError, match="is not a folder"):
        write_index(tmp_path / "nowhere")
