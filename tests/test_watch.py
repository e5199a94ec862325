"""`gtrl watch`: the states of runs, read from their files, and the table of them."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console
from synthetic_runs import write_run

from gtrl import cli
from gtrl.cli import watch
from gtrl.io.locks import is_locked, locked
from gtrl.runs.run import LOCK, Run
from gtrl.sweeps import status as status_module
from gtrl.sweeps.display import Screen, fitting, runs_table, short, summary_of
from gtrl.sweeps.status import Status, duration, is_evaluated, missing_evaluations, read_status
from gtrl.sweeps.watch import find_statuses

TASK = "pointmaze-large-navigate"
M = 1_000_000
SCORED = {(seed, step): [10, 20, 30, 40, 50] for seed in (0, 1) for step in (800_000, 900_000, M)}  # 60 % of 250


def plan_checkpoints(run: Run) -> None:
    """Adds the paper's checkpoints to the config of a synthetic run."""
    config = dict(run.config)
    config["training"] = {**config["training"], "checkpoints": [800_000, 900_000, M], "checkpoint_every": 0}
    run.save_config(config)


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A finished run, a stopped one after 300K of 1M steps, and one that met a number that is not finite."""
    plan_checkpoints(write_run(tmp_path / TASK / "gtrl", TASK, "gtrl", SCORED))
    for name in ("trl", "bc"):
        run = write_run(tmp_path / TASK / name, TASK, name, {(0, 300_000): [0, 0, 0, 0, 0]})
        timing = [row for row in (run.path / "timing.jsonl").read_text().splitlines() if json.loads(row)["step"] <= 3e5]
        (run.path / "timing.jsonl").write_text("\n".join(timing) + "\n")
        plan_checkpoints(run)
    (tmp_path / TASK / "bc" / "stopped.json").write_text("{}")
    return tmp_path


def test_states_are_read_from_the_files(runs: Path) -> None:
    finished, stopped, failed = (read_status(runs / TASK / name) for name in ("gtrl", "trl", "bc"))
    assert finished == Status(TASK, "gtrl", "finished", M, M, success=60.0)
    assert (stopped.state, stopped.step, stopped.steps, stopped.seconds_left) == ("stopped", 300_000, M, None)
    assert (failed.state, failed.message) == ("failed", "see stopped.json")


def test_run_whose_lock_is_held_is_running(runs: Path) -> None:
    with locked(runs / TASK / "trl" / LOCK, "training"), locked(runs / TASK / "gtrl" / LOCK, "training"):
        training, evaluating = read_status(runs / TASK / "trl"), read_status(runs / TASK / "gtrl")
    assert training.state == "training"
    assert training.steps_per_second == 1000
    assert training.seconds_left == 700  # (1M - 300K) / 1000
    assert evaluating.state == "evaluating"
    assert read_status(runs / TASK / "trl").state == "stopped"


def test_looking_at_a_lock_does_not_create_or_keep_it(tmp_path: Path) -> None:
    assert not is_locked(tmp_path / "lock")
    assert not list(tmp_path.iterdir())
    with locked(tmp_path / "lock", "working"):
        assert is_locked(tmp_path / "lock")
    (tmp_path / "lock").touch()  # left by a process that was killed
    assert not is_locked(tmp_path / "lock")


def test_saved_checkpoint_counts_as_progress(runs: Path) -> None:
    run = Run(runs / TASK / "trl")
    run.checkpoints.mkdir()
    (run.checkpoints / "312000.npz").touch()
    assert read_status(run.path).step == 312_000


def test_missing_evaluations(runs: Path) -> None:
    run = Run(runs / TASK / "gtrl")
    steps = [800_000, 900_000, M]
    assert missing_evaluations(run, steps, 50) == []
    assert missing_evaluations(run, steps, 51) == steps
    assert missing_evaluations(run, [700_000, M], 1) == [700_000]
    assert (is_evaluated(run, steps, 50), is_evaluated(run, steps, 51)) == (True, False)
    text = (run.path / "eval.csv").read_text().splitlines()
    (run.path / "eval.csv").write_text("\n".join(text[:-1]) + "\n")  # a goal of the last seed
    assert missing_evaluations(run, steps, 50) == [M]
    assert read_status(run.path).state == "trained"


def test_damaged_run_is_shown_and_does_not_end_the_command(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (runs / TASK / "bc" / "config.json").write_text("{")
    assert cli.main(["watch", str(runs), "--once"]) == 0
    assert f"{TASK} bc" in (printed := capsys.readouterr().out)
    assert "damaged" in printed


def test_timing_without_a_step_is_damaged(runs: Path) -> None:
    (runs / TASK / "trl" / "timing.jsonl").write_text('{"time": 1.0}\n')
    status = read_status(runs / TASK / "trl")
    assert (status.state, status.message.partition(": ")[2]) == ("damaged", "'step' of a row is None.")


def test_run_is_read_again_only_if_its_files_have_changed(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = find_statuses(runs)
    monkeypatch.setattr(status_module, "_read_status", None)
    assert find_statuses(runs) == before
    monkeypatch.undo()
    with locked(runs / TASK / "trl" / LOCK, "training"):
        assert [status.state for status in find_statuses(runs)] == ["failed", "finished", "training"]
    assert find_statuses(runs) == before


def test_modules_that_a_run_names_are_not_imported(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (runs / "evil.py").write_text("raise AssertionError('imported')")
    monkeypatch.syspath_prepend(str(runs))
    run = Run(runs / TASK / "gtrl")
    run.save_config({**run.config, "task": "evil:TASK"})
    assert read_status(run.path).task == "evil:TASK"


def test_runs_of_the_same_name_are_told_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for sweep, successes in (("a", SCORED), ("b", {(0, 300_000): [0] * 5})):
        plan_checkpoints(write_run(tmp_path / sweep / TASK / "gtrl", TASK, "gtrl", successes))
    shown = Screen("runs", None)
    for _ in range(3):
        shown.update(find_statuses(tmp_path))
    lines = [line.split(" ", 1)[1] for line in capsys.readouterr().out.splitlines()]
    assert lines == [f"a/{TASK}/gtrl: finished, success 60.0 %", f"b/{TASK}/gtrl: trained"]
    assert find_statuses(tmp_path / "a" / TASK / "gtrl")[0].key == f"{TASK}/gtrl"


def test_characters_that_control_the_terminal_are_replaced(capsys: pytest.CaptureFixture[str]) -> None:
    status = Status("task", "a\x1b[2J", "failed", message="\x07\n")
    Screen("runs", None).update([status])
    assert capsys.readouterr().out.endswith(" task/a\N{REPLACEMENT CHARACTER}[2J: failed, " + 2 * "\ufffd" + "\n")
    file = io.StringIO()
    Console(file=file, width=80).print(runs_table([status]))
    assert "\x1b" not in file.getvalue()


def test_once_prints_the_table(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["watch", str(runs), "--once"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines[2:5]] == [
        [TASK, "bc", "failed", "300K/1M", "0.0", "%"],
        [TASK, "gtrl", "finished", "1M/1M", "60.0", "%"],
        [TASK, "trl", "stopped", "300K/1M", "0.0", "%"],
    ]
    assert lines[5] == "1 of 3 finished, 1 failed, 1 stopped"


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf"])
def test_time_between_two_looks_is_checked(seconds: str, runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["watch", str(runs), "--seconds", seconds]) == 2
    assert "must be more than 0 and less than a day" in capsys.readouterr().err


def test_folder_without_runs_is_a_one_line_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["watch", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"gtrl: {tmp_path} holds no run: there is no config.json in it or below it.\n"


def test_it_watches_until_it_is_interrupted(
    runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 2:
            raise KeyboardInterrupt
        (runs / TASK / "bc" / "stopped.json").unlink()

    monkeypatch.setattr(watch.time, "sleep", wait)
    assert cli.main(["watch", str(runs), "--seconds", "3"]) == 130
    assert waits == [3, 3]
    lines = [line.split(" ", 1)[1] for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        f"{TASK}/bc: failed, see stopped.json",
        f"{TASK}/gtrl: finished, success 60.0 %",
        f"{TASK}/trl: stopped, step 300,000 of 1,000,000",
        f"{TASK}/bc: stopped, step 300,000 of 1,000,000",
    ]


# --- the table ---

LONG = Status("humanoidmaze-medium-navigate", "gtrl-no-counterfactual", "evaluating", M, M, 12345.6, 3 * 86400.0, 100.0)


def test_table_fits_80_columns_with_all_of_its_text() -> None:
    file = io.StringIO()
    Console(file=file, width=80).print(runs_table([LONG], "runs"))
    lines = file.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    text = " ".join(file.getvalue().split())
    for part in (LONG.task, LONG.name, "evaluating", "1M/1M", "12,346", "3d 0h", "100.0 %"):
        assert part in text


def test_what_matters_most_is_kept_where_lines_are_few() -> None:
    states = ["finished", "training", "waiting", "failed", "finished", "waiting"]
    statuses = [Status("task", str(number), state) for number, state in enumerate(states)]  # pyright: ignore[reportArgumentType]
    rows, hidden = fitting(statuses, 3)
    assert ([row.name for row in rows], hidden) == (["1", "2", "3"], 3)
    assert fitting(statuses, 6) == (statuses, 0)
    assert summary_of(statuses) == "2 of 6 finished, 1 training, 1 failed, 2 waiting"


def test_live_table_fits_the_terminal() -> None:
    from rich.live import Live

    file = io.StringIO()
    terminal = Console(file=file, width=80, height=20, force_terminal=True, color_system=None)
    with Live(console=terminal, auto_refresh=False) as live:
        Screen("runs", live).update([LONG] * 50)
    assert "and 43 more; 0 of 50 finished, 50 evaluating" in file.getvalue()  # seven rows of two lines
    assert file.getvalue().rpartition("runs ")[2].count("evaluating") == 7 + 1


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(12, "12s"), (60, "1m"), (3540, "59m"), (3600, "1h 0m"), (11_100, "3h 5m"), (187_200, "2d 4h")],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0"), (999, "999"), (12_500, "12.5K"), (800_000, "800K"), (M, "1M"), (None, "")]
)
def test_short_numbers(number: int | None, text: str) -> None:
    assert short(number) == text
