"""Sweeps: their runs, errors and costs; the same results on this machine and on a Ray cluster that loses a worker."""

import json
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from rich.console import Console

from gtrl import cli
from gtrl.errors import ConfigError, DataError, GtrlError, RunError
from gtrl.io.locks import is_locked, locked
from gtrl.runs.run import LOCK, Run
from gtrl.sweeps import PRESETS, cluster, machine, make_sweep, read_sweep
from gtrl.sweeps import sweep as sweeping
from gtrl.sweeps.cost import MILLISECONDS, cost_of, parameter_counts, plan_table, step_milliseconds
from gtrl.sweeps.files import Snapshot, Update, dataset_digests, is_same_dataset, write_update
from gtrl.sweeps.job import Job, Outcome
from gtrl.sweeps.prepare import check_sweep, find_state
from gtrl.sweeps.values import convert, parse_field, split_assignment
from gtrl.tasks import TASKS
from gtrl.tasks.ablations import ABLATIONS

pytestmark = pytest.mark.usefixtures("_empty_home")
MINI = "pointmaze-mini-navigate"
TINY: dict[str, Any] = {"hidden": [8], "batch_size": 32, "log_every": 4000}
STEPS = 16_000  # training takes some seconds, so that a Ray worker sends a checkpoint in the meantime


@pytest.fixture(scope="module")
def _empty_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A home without datasets, where a sweep that starts by mistake changes nothing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        yield


@pytest.fixture
def _no_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*_: Any, **__: Any) -> Any:
        raise AssertionError("a process was started")

    monkeypatch.setattr(machine, "start_process", start)


# --- the plan ---


def test_presets_have_the_runs_of_the_papers_tables() -> None:
    counts = {name: len(sweep.runs()) for name, sweep in PRESETS.items()}
    assert counts == {
        "table1": 9 * 10,
        "table2": 10 * 12,
        "ablations": 19 * 7,
        "paper": 90 + 120 + 19 * 6,
        "conventions": 2 * 8,
        "beyond": 3 * 7,
    }
    by_method = Counter(run.variant.method for run in PRESETS["table1"].runs())
    assert set(by_method.values()) == {9}
    assert "td-n" not in by_method  # of the other table
    assert {run.task for run in PRESETS["paper"].runs()} == set(TASKS)
    names = {(run.task, run.variant.name): run.fields for run in PRESETS["ablations"].runs()}
    for ablation in ABLATIONS:
        assert names["scene-play", ablation.name] == ablation.fields


def test_flags_narrow_a_preset() -> None:
    narrow = PRESETS["table1"].narrowed(["pointmaze-large-stitch"], ["gtrl", "trl"])
    assert [(run.task, run.variant.name) for run in narrow.runs()] == [
        ("pointmaze-large-stitch", "trl"), ("pointmaze-large-stitch", "gtrl"),
    ]  # fmt: skip
    assert len(PRESETS["ablations"].narrowed([MINI], None).runs()) == 7  # the ablations of a task outside the paper
    with pytest.raises(GtrlError, match="unknown task of this sweep 'scene-play'"):
        PRESETS["table1"].narrowed(["scene-play"], None)
    with pytest.raises(GtrlError, match="unknown method of this sweep 'tdn'"):
        PRESETS["table2"].narrowed(None, ["tdn"])
    for tasks, methods in ((["pointmaze-large-stitch"], ["td-n"]), ([], None)):
        with pytest.raises(ConfigError, match="no run of this sweep has these tasks and these methods"):
            PRESETS["paper"].narrowed(tasks, methods)


def test_method_of_a_grid_stands_for_its_variants() -> None:
    settings = {"tasks": [MINI], "methods": ["gtrl", "bc"], "grid": {"alpha": [0.1, 0.3]}}
    narrow = make_sweep(settings).narrowed(None, ["gtrl"])
    assert [run.variant.name for run in narrow.runs()] == ["gtrl-alpha-0.1", "gtrl-alpha-0.3"]
    # The ablations are variants of GTRL too, but there 'gtrl' is a run.
    assert len(PRESETS["ablations"].narrowed(["scene-play"], ["gtrl"]).runs()) == 1


def test_only_the_values_of_fields_are_yaml() -> None:
    assert parse_field("hidden=[64, 64]") == ("hidden", [64, 64])
    for name in ("my data #1.npz", "010", "a=b.npz"):
        assert split_assignment(f"scene-play={name}", "--data", "TASK=FILE") == ("scene-play", name)


def test_sweep_file_is_expanded(tmp_path: Path) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text(
        "tasks: [scene-play, pointmaze-mini-navigate]\nmethods: gtrl\nseeds: [0, 5]\nsteps: 1e6\nepisodes: 7\n"
        "fields: {precision: bfloat16, alpha: 0.3}\n"
        "variants: {gtrl-dc: {method: gtrl, selection: dc, alpha: 0.5}}\n"
        "grid: {lambda: [0.0, 0.5], hidden: [[8, 16]]}\n"
        "data: {pointmaze-mini-navigate: mini.npz}\n"
    )
    (tmp_path / "mini.npz").touch()
    runs = check_sweep(read_sweep(file), tmp_path / "out")
    assert [run.key for run in runs] == [
        f"{task}/{name}-lambda-{value}-hidden-8x16"
        for task in ("scene-play", MINI) for name in ("gtrl", "gtrl-dc") for value in (0.0, 0.5)
    ]  # fmt: skip
    last = runs[-1]
    assert last.plan.data == tmp_path / "mini.npz"
    assert last.folder == tmp_path / "out" / last.key
    assert last.fields == {
        "steps": 1_000_000, "precision": "bfloat16", "alpha": 0.5, "selection": "dc", "lambda_": 0.5, "hidden": (8, 16),
    }  # fmt: skip
    assert (last.algorithm.alpha, runs[0].algorithm.alpha) == (0.5, 0.3)  # pyright: ignore[reportAttributeAccessIssue]
    assert runs[0].algorithm.gamma == TASKS["scene-play"].defaults["gamma"]  # the task's own default
    assert (last.plan.seeds, last.plan.episodes, runs[0].plan.data) == ((0, 5), 7, None)


@pytest.mark.parametrize(
    ("value", "hint", "expected"),
    [
        ("1e6", int, 1_000_000), (3.0, int, 3), ("0.5", float, 0.5), (1, float, 1.0), (None, int | None, None),
        ([1, "2"], tuple[int, ...], (1, 2)), ([0, 0.5, 0.5], tuple[float, float, float], (0.0, 0.5, 0.5)),
    ],
)  # fmt: skip
def test_values_get_the_declared_type(value: Any, hint: Any, expected: Any) -> None:
    found = convert("field", value, hint)
    assert found == expected
    assert type(found) is type(expected)


GOOD = "tasks: [scene-play]\nmethods: [gtrl]\n"


@pytest.mark.usefixtures("_no_processes")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tasks: [a", "not valid YAML (line 1)"),
        ("- gtrl", "must have keys"),
        (GOOD + "step: 3", "unknown key 'step': did you mean 'steps'?"),
        ("tasks: [scene-play]", "a sweep needs methods."),
        (GOOD.replace("gtrl", "gtr"), "unknown method 'gtr': did you mean 'gtrl'?"),
        (GOOD.replace("scene-play", "scene-pla"), "did you mean 'scene-play'?"),
        (GOOD + "fields: {alhpa: 1}", "there is no field 'alhpa': GTRL has"),
        (GOOD + "fields: {hindsight: maybe}", "scene-play, gtrl: hindsight is 'maybe' and must be true or false."),
        (GOOD + "fields: {selection: min}", "selection is 'min' and must be one of max, dc, bound."),
        (GOOD + "fields: {kappa: 2}", "kappa is 2.0 and must lie in [0.5, 1)."),
        (GOOD + "steps: many", "steps is 'many' and must be a whole number."),
        (GOOD + "episodes: 0", "episodes is 0 and must be at least 1."),
        (GOOD + "seeds: [1, 1]", "must be one or more different integers"),
        (GOOD + "variants: {dc: {method: gtrl}}", "must be named after its method"),
        (GOOD + "variants: {gtrl-x: {selection: dc}}", "must name its method"),
        (GOOD + "variants: {gtrl-../x: {method: gtrl}}", "must be named after its method"),
        (GOOD + "grid: {lambda: 0.5}", "grid lambda is 0.5 and must be a list"),
        (GOOD + "grid: {kappa: [0.7, 0.7]}", "two runs would be named 'gtrl-kappa-0.7'"),
        (GOOD + "data: {scene-play: nowhere.npz}", "there is no data at"),
        (GOOD + "data: {cube-single-play: nowhere.npz}", "which is no task of this sweep"),
        (GOOD + "steps: 3\nsteps: 4", "is not valid YAML (line 1): 'steps' occurs twice"),
        (GOOD + "steps: 3\nfields: {steps: 4}", "steps is given twice"),
    ],
)
def test_error_in_a_sweep_file_is_one_line(
    text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text(text)
    assert cli.main(["sweep", str(file), "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["sweep.yaml"]


@pytest.mark.usefixtures("_no_processes")
@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["tabel1"], "unknown preset 'tabel1': did you mean 'table1'?"),
        (["--tasks", "scene-play"], "name a preset or a file"),
        (["table1", "--field", "alpha"], "must be NAME=VALUE"),
        (["table1", "--retries", "-1"], "--retries is -1"),
        (["table1", "--jobs", "0"], "--jobs is 0"),
        (["table1", "--gpus-per-run", "1"], "are for --ray"),
        (["table1", "--ray", "local", "--jobs", "0"], "--jobs is 0"),
        (["table1", "--data", "scene-play"], "must be TASK=FILE"),
        (["table1", "--tasks"], "no run of this sweep has these tasks"),
        (["table1", "--all-steps"], "--all-steps is for --evaluate-only"),
        (["table1", "--evaluate-only", "--dry-run"], "--dry-run is for training"),
        (["table1", "--evaluate-only", "--gpus-per-run", "1"], "uses no GPU"),
        (["--evaluate-only", "--seeds", "1"], "--seeds is for training"),
        (["--evaluate-only", "--field", "alpha=1"], "--field is for training"),
        (["table1", "--ray", "ray://somewhere:1"], "not ray://"),
        (["table1", "--ray", "127.0.0.1:1"], "the Ray cluster at '127.0.0.1:1' cannot be reached"),
    ],
)
def test_error_in_flags_is_one_line(
    flags: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["sweep", *flags, "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_ray_that_is_not_installed_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert cli.main(["sweep", "table1", "--ray", "local", "--out", str(tmp_path)]) == 2
    assert "pip install 'gtrl[ray]'" in capsys.readouterr().err


# --- costs ---


def test_gpu_hours_are_those_of_the_measured_speed(tmp_path: Path) -> None:
    settings = {"tasks": ["scene-play"], "methods": ["gtrl", "bc"], "fields": {"precision": "bfloat16"}}
    gtrl, bc = map(cost_of, check_sweep(make_sweep(settings), tmp_path))
    assert gtrl.gpu_hours == pytest.approx(1e6 * 0.709e-3 / 3600)  # 12 minutes for four seeds
    assert (gtrl.is_measured, bc.is_measured) == (True, False)
    assert bc.gpu_hours == gtrl.gpu_hours
    assert step_milliseconds(MILLISECONDS["gtrl", "float32"], 2) == pytest.approx(0.431 + (1.200 - 0.431) / 3)
    assert step_milliseconds(MILLISECONDS["gtrl", "float32"], 16) == pytest.approx(2 * 2.267)


def test_disk_need_is_that_of_real_checkpoints(gtrl_run: Run, tmp_path: Path) -> None:
    arrays = np.load(gtrl_run.checkpoints / "20.npz")
    stored = sum(arrays[name].size for name in arrays if name.startswith((".nets", ".target", ".optimizer")))
    settings = {"tasks": [MINI], "methods": ["gtrl"], "seeds": [0, 3], "fields": {"hidden": [8]}, "steps": 20}
    [run] = check_sweep(make_sweep(settings), tmp_path)
    nets, target, policy = parameter_counts(run.algorithm, _spec())
    assert stored == pytest.approx(2 * (3 * nets + target), abs=10)  # and counters of steps
    # The last checkpoint and three others, and one policy per seed.
    assert cost_of(run).disk_bytes == 4 * 2 * (4 * (3 * nets + target) + policy)


def _spec() -> Any:
    from gtrl.data.dataset import Spec

    return Spec(2, 2, 2)


def test_dry_run_prints_the_plan_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    flags = ["--seeds", "0", "1", "2", "3", "--field", "precision=bfloat16", "--dry-run", "--out", str(out)]
    tasks = ["pointmaze-large-navigate", "antmaze-large-navigate"]
    assert cli.main(["sweep", "--tasks", *tasks, "--methods", "gtrl", "qrl", *flags]) == 0
    printed = capsys.readouterr().out
    assert "4 runs in" in printed
    assert "training: 0.8 GPU-hours" in printed  # 4 × 0.197
    assert "* not measured: GTRL's speed is used" in printed
    assert "data of antmaze-large-navigate: download only (--expert needed to collect)" in printed
    assert not out.exists()


def test_plan_of_long_names_fits_80_columns(tmp_path: Path) -> None:
    runs = check_sweep(PRESETS["ablations"].narrowed(["humanoidmaze-medium-navigate"], None), tmp_path)
    table = plan_table(runs, [cost_of(run) for run in runs], tmp_path)
    assert Console(width=1000).measure(table).minimum <= 80


# --- what a folder holds ---


def test_what_a_failed_run_leaves_does_not_stop_the_sweep(tmp_path: Path) -> None:
    sweep = make_sweep({"tasks": ["scene-play"], "methods": ["bc"]})
    folder = tmp_path / "scene-play" / "bc"
    (folder / "checkpoints").mkdir(parents=True)
    for name in ("stopped.json", "config.json.host.1.partial", LOCK):
        (folder / name).touch()
    [run] = check_sweep(sweep, tmp_path)
    assert find_state(run) == "new"
    (folder / "thesis.txt").touch()
    with pytest.raises(RunError, match="is not empty and not a run directory"):
        check_sweep(sweep, tmp_path)


def test_damaged_config_is_one_line(tmp_path: Path) -> None:
    Run(tmp_path / "scene-play" / "bc").save_config({"algorithm": {"name": "bc"}, "training": None})
    with pytest.raises(RunError, match=r"config\.json is damaged: 'training' is None"):
        check_sweep(make_sweep({"tasks": ["scene-play"], "methods": ["bc"]}), tmp_path)


# --- where jobs run ---


@pytest.mark.parametrize(
    ("gpus", "cores", "gibibytes", "jobs"), [(0, 8, 64, 4), (0, 8, 9, 2), (0, 1, 1, 1), (1, 64, 500, 1), (4, 8, 64, 4)]
)
def test_number_of_jobs(gpus: int, cores: int, gibibytes: int, jobs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    class Memory:
        available = gibibytes * 2**30

    monkeypatch.setattr(machine, "default_workers", lambda: cores)
    monkeypatch.setattr(machine.psutil, "virtual_memory", lambda: Memory)
    assert machine.default_jobs(gpus) == jobs


def test_visible_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    for setting, found in {"0,2": ["0", "2"], "": [], "-1": []}.items():
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", setting)
        assert machine.visible_gpus() == found
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    assert machine.visible_gpus() == []


@pytest.mark.parametrize(
    ("end", "kills", "status"),
    [("kill -9 $$", 1, 0), ("kill -9 $$", 2, -signal.SIGKILL), ("exit 143", 1, 0), ("exit 143", 2, 143)],
)
def test_job_that_a_signal_ends_is_started_again(
    end: str, kills: int, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts: list[Job] = []

    def start(job: Job, *_: Any) -> "subprocess.Popen[bytes]":
        starts.append(job)
        command = end if len(starts) <= kills else "true"
        return subprocess.Popen(["sh", "-c", command])

    monkeypatch.setattr(machine, "start_process", start)
    jobs = machine.Machine(jobs=1, retries=1)
    jobs.start("run", Job("train", MINI), tmp_path / "log")
    ended: list[tuple[str, Outcome]] = []
    while not ended:
        ended = jobs.finished()
        time.sleep(0.01)
    assert (ended[0][0], ended[0][1].status, len(starts)) == ("run", status, 2)


class Scripted:
    """An executor whose jobs end at once, as a script says."""

    workers, has_room = 1, True

    def __init__(self, outcomes: dict[str, Outcome]) -> None:
        self.outcomes, self.started, self.paths = outcomes, list[str](), list[str]()

    def start(self, key: str, job: Job, log: Path) -> None:
        self.started.append(key)
        self.paths += [job.run, job.data, str(log)]

    def is_started(self, _: str) -> bool:
        return False

    def finished(self) -> list[tuple[str, Outcome]]:
        ended = [(key, self.outcomes[key]) for key in self.started if key in self.outcomes]
        self.outcomes = {key: outcome for key, outcome in self.outcomes.items() if key not in self.started}
        return ended

    def stop(self) -> None: ...

    close = stop


def test_runs_without_data_and_failed_ones_do_not_end_the_sweep(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = Scripted({f"{MINI}/bc": Outcome(2, "something is wrong."), "scene-play/bc": Outcome(1, "a traceback")})
    data = Scripted({MINI: Outcome(0), "scene-play": Outcome(0), "antmaze-large-navigate": Outcome(2, "no expert.")})
    machines = iter([jobs, data])
    monkeypatch.setattr(sweeping, "Machine", lambda *_, **__: next(machines))
    monkeypatch.setattr(sweeping, "POLL_SECONDS", 0)
    tasks = [MINI, "antmaze-large-navigate", "scene-play"]
    assert cli.main(["sweep", "--tasks", *tasks, "--methods", "bc", "--out", str(tmp_path / "out")]) == 1
    printed = capsys.readouterr()
    assert jobs.started == [f"{MINI}/bc", "scene-play/bc"]
    assert f"{MINI}/bc: failed: something is wrong." in printed.err
    assert "antmaze-large-navigate/bc: no data: no expert." in printed.err
    assert "0 of 3 finished, 2 failed, 1 no data" in printed.out


def test_jobs_get_absolute_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The processes of a Ray cluster do not work in the folder of the sweep."""
    monkeypatch.chdir(tmp_path)
    Path("mini.npz").touch()
    jobs = Scripted({f"{MINI}/bc": Outcome(1)})
    machines = iter([jobs, Scripted({})])
    monkeypatch.setattr(sweeping, "Machine", lambda *_, **__: next(machines))
    monkeypatch.setattr(sweeping, "POLL_SECONDS", 0)
    plan = make_sweep({"tasks": [MINI], "methods": ["bc"], "data": {MINI: "mini.npz"}})
    sweeping.run_sweep(plan, "out", show=False)
    assert jobs.paths == [
        f"{tmp_path}/out/{MINI}/bc", f"{tmp_path}/mini.npz", f"{tmp_path}/out/logs/{MINI}/bc.log",
    ]  # fmt: skip


def entry(folder: Path, missing: list[int]) -> sweeping.Entry:
    folder.mkdir(parents=True)
    return sweeping.Entry(folder, "task", folder.name, Job("train", MINI), lambda: missing, data=folder)


def test_run_that_another_sweep_takes_meanwhile_is_looked_at_again(tmp_path: Path) -> None:
    ours, theirs, done = (entry(tmp_path / name, [40]) for name in ("ours", "theirs", "done"))
    jobs = Scripted(
        {"task/ours": Outcome(0, "the last line"), "task/theirs": Outcome(2, "another process is training")}
    )
    execution = sweeping._Execution([theirs, ours], tmp_path, jobs)
    with locked(theirs.folder / LOCK, "training"):
        assert execution._advance()
        assert [status.state for status in execution.statuses()] == ["elsewhere", "waiting"]
    assert jobs.started == ["task/ours"]
    execution._advance()  # ends ours, and starts theirs, which is free now
    assert ours.end
    assert ours.end.message == "its evaluations are incomplete: step 40"
    assert jobs.started == ["task/ours", "task/theirs"]
    with locked(theirs.folder / LOCK, "training"):  # the other sweep was faster
        assert not execution._advance()
        assert theirs.end
        assert theirs.end.state == "elsewhere"
    done.missing = list
    execution = sweeping._Execution([done], tmp_path, jobs)
    assert not execution._advance()
    assert done.end
    assert done.end.state == "finished"
    assert "task/done" not in jobs.started


# --- copies of run directories ---


def test_changes_of_a_run_directory_are_sent_and_written(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    (there / "checkpoints").mkdir(parents=True)
    for name, text in {
        "config.json": "{}",
        "checkpoints/10.npz": "ten",
        "lock": "",
        "x.npz.host.1.partial": "?",
    }.items():
        (there / name).write_text(text)
    snapshot = Snapshot(there)
    assert snapshot.update() == Update({}, [])
    (there / "metrics.jsonl").write_text("rows")
    (there / "checkpoints" / "20.npz").write_text("twenty")
    (there / "checkpoints" / "10.npz").unlink()
    update = snapshot.update()
    # The checkpoint is read first: the log has all rows up to it.
    assert list(update.changed.items()) == [("checkpoints/20.npz", b"twenty"), ("metrics.jsonl", b"rows")]
    assert update.removed == ["checkpoints/10.npz"]
    assert snapshot.update() == update  # it did not arrive, so it is sent again
    snapshot.commit()
    assert snapshot.update() == Update({}, [])
    (here / "checkpoints").mkdir(parents=True)
    (here / "checkpoints" / "10.npz").write_text("ten")
    write_update(here, update)
    assert sorted(str(path.relative_to(here)) for path in here.rglob("*") if path.is_file()) == [
        "checkpoints/20.npz", "metrics.jsonl",
    ]  # fmt: skip


def test_evaluations_of_two_jobs_are_joined(tmp_path: Path) -> None:
    here, there = Run(tmp_path / "here"), Run(tmp_path / "there")
    row = {"algorithm": "bc", "task": MINI, "seed": 0, "step": 20, "goal": "task1", "episodes": 2, "successes": 1}
    for run, step in ((here, 20), (there, 40)):
        run.path.mkdir()
        run.add_evaluations([row | {"step": step}])
    write_update(here.path, Update({"eval.csv": (there.path / "eval.csv").read_bytes()}, []))
    assert [each["step"] for each in here.evaluations()] == [20, 40]


class OtherMachine(cluster.Store):
    """A store on a machine whose datasets are in a folder that the node does not have."""

    def __init__(self, out: Path, data: Path) -> None:
        super().__init__(str(out))
        self.data, self.sent = data, list[str]()

    def data_digests(self, path: str) -> dict[str, str]:
        return super().data_digests(str(self.data / Path(path).name))

    def data_file(self, path: str, name: str) -> bytes:
        self.sent.append(name)
        return super().data_file(str(self.data / Path(path).name), name)


def test_dataset_is_copied_to_a_node_once(mini_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "_call", lambda method, *arguments: method(*arguments))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    store = OtherMachine(tmp_path, mini_file.parent)
    assert cluster._data_here(store, str(mini_file)) == str(mini_file)  # the same files are here
    assert store.sent == []
    copy = Path(cluster._data_here(store, f"/nowhere/{mini_file.name}"))
    assert copy.is_relative_to(tmp_path / "cache")
    files = sorted(path.name for path in mini_file.parent.iterdir() if path.name.startswith(mini_file.stem))
    assert sorted(store.sent) == files
    for name in files:
        assert (copy.parent / name).read_bytes() == (mini_file.parent / name).read_bytes()
    assert cluster._data_here(store, f"/nowhere/{mini_file.name}") == str(copy)
    assert sorted(store.sent) == files  # not sent again


def test_store_holds_the_lock_of_a_run_until_its_job_ends(tmp_path: Path) -> None:
    store = cluster.Store(str(tmp_path))
    assert store.open("task/bc", "train") == {}
    store.save("task/bc", Update({"checkpoints/10.npz": b"ten", "config.json": b"{}"}, []))
    assert is_locked(tmp_path / "task" / "bc" / LOCK)
    # A second attempt gets what the first has saved; an evaluation needs no checkpoints.
    assert store.open("task/bc", "train") == {"checkpoints/10.npz": b"ten", "config.json": b"{}"}
    assert store.open("task/bc", "evaluate") == {"config.json": b"{}"}
    store.close("task/bc", str(tmp_path / "logs" / "task" / "bc.log"), b"done")
    assert not is_locked(tmp_path / "task" / "bc" / LOCK)
    assert (tmp_path / "logs" / "task" / "bc.log").read_text() == "done"
    store.open("task/bc", "evaluate")
    assert not is_locked(tmp_path / "task" / "bc" / LOCK)
    with locked(tmp_path / "task" / "bc" / LOCK, "training"):
        for _ in range(2):
            with pytest.raises(RunError, match="another process is training"):
                store.open("task/bc", "train")


def test_dataset_that_is_missing_is_not_the_same_dataset(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no data"):
        dataset_digests(tmp_path / "nowhere.npz")
    assert not is_same_dataset(tmp_path / "nowhere.npz", {})


def test_message_of_a_failed_task_is_that_of_its_exception() -> None:
    error = RuntimeError("Traceback ...\ngtrl.errors.DataError: there is no data.")
    assert cluster.failure_message(error) == "gtrl.errors.DataError: there is no data."
    error.cause = DataError("there is no data.")  # pyright: ignore[reportAttributeAccessIssue]
    assert cluster.failure_message(error) == "there is no data."


@pytest.mark.parametrize(
    ("resources", "given", "needs"),
    [
        ({"CPU": 64.0, "GPU": 4.0}, (None, None), (16, 1)),
        ({"CPU": 64.0, "GPU": 4.0}, (8, 0.5), (8, 0.5)),
        ({"CPU": 64.0}, (None, None), (2, 0)),
        ({"CPU": 1.0}, (None, None), (1, 0)),
        ({"CPU": 64.0, "GPU": 4.0}, (None, 0), (2, 0)),
    ],
)
def test_needs_of_a_run_on_a_cluster(
    resources: dict[str, float], given: tuple[Any, Any], needs: tuple[float, float]
) -> None:
    assert cluster.needs([resources], *given) == needs


def test_needs_that_no_node_has_are_an_error() -> None:
    nodes = [{"CPU": 64.0}, {"CPU": 8.0, "GPU": 8.0}]
    assert cluster.needs(nodes, None, None) == (1, 1)
    assert cluster.needs(nodes, 64, 0) == (64, 0)
    for given, largest in (((16, 1), "8 and 8"), ((65, 0), "64 and 0"), ((1, 9), "8 and 8")):
        with pytest.raises(ConfigError, match=f"needs {given[0]} CPUs and {given[1]} GPUs, .* node .* has {largest};"):
            cluster.needs(nodes, *given)


# --- real sweeps: 2 tasks × 3 methods × 2 seeds ---

METHODS = ["gtrl", "bc"]
TASK_FILE = """from gtrl.tasks import Task, find_task
MINI = find_task("pointmaze-mini-navigate")
TASK = Task("tiny", MINI.environment, goals=2, goal=MINI.goal, episode_length=20, defaults=MINI.defaults)
"""
# Checkpoints after every chunk of steps, so that a killed run has something to resume from.
SWEEP_FILE = f"""tasks: [{MINI}, "tiny_task:TASK"]
methods: {METHODS}
seeds: [0, 3]
steps: {STEPS}
episodes: 1
fields: {{hidden: [8], batch_size: 32, log_every: 4000, checkpoint_minutes: 0.0001}}
data: {{{MINI}: mini.npz, "tiny_task:TASK": mini.npz}}
"""
# Python handles Ctrl-C only if it does not start with SIGINT ignored, as background jobs of a shell do.
PROGRAM = """import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from gtrl.cli import main
sys.exit(main())
"""
KEYS = [f"{task}/{method}" for task in (MINI, "tiny") for method in METHODS]
ON_RAY = ("--tasks", "tiny_task:TASK", "--methods", "gtrl")  # one run


@pytest.fixture(scope="module")
def folder(mini_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a sweep file, its data and the module of its second task."""
    path = tmp_path_factory.mktemp("sweep")
    shutil.copy(mini_file, path / "mini.npz")
    (path / "tiny_task.py").write_text(TASK_FILE)
    (path / "sweep.yaml").write_text(SWEEP_FILE)
    return path


def sweep(folder: Path, *flags: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", PROGRAM, "sweep", *flags]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def finish(process: "subprocess.Popen[str]", status: int = 0) -> str:
    output, _ = process.communicate(timeout=300)
    assert process.returncode == status, output
    return output


@pytest.fixture(scope="module")
def local(folder: Path) -> Path:
    output = finish(sweep(folder, "sweep.yaml", "--out", "local", "--jobs", "2"))
    assert "4 of 4 finished" in output
    return folder / "local"


def wait_until(condition: Callable[[], Any], seconds: float = 120) -> Any:
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.02)
    return found


def training_job(sweeping: psutil.Process, out: Path) -> psutil.Process | None:
    """The Ray worker of a run that has sent a checkpoint and is not evaluated yet."""
    if not list(out.glob("*/*/checkpoints/*.npz")):
        return None  # looking at all processes takes longer than this
    for process in sweeping.children(recursive=True):
        try:
            command, worker = process.cmdline(), process.parent()
        except psutil.Error:
            continue
        if command[1:3] == ["-m", "gtrl.sweeps"] and worker:
            job = json.loads(command[3])
            run = out / ("tiny" if "tiny" in job["task"] else MINI) / job["method"]
            if list(run.glob("checkpoints/*.npz")) and not (run / "eval.csv").exists():
                return worker
    return None


@pytest.fixture(scope="module")
def on_ray(folder: Path) -> Path:
    """One run of the sweep on a Ray cluster, whose worker is killed while it trains."""
    out = folder / "ray"
    flags = ("--out", "ray", "--ray", "local", "--jobs", "1", "--cpus-per-run", "1")
    process = sweep(folder, "sweep.yaml", *ON_RAY, *flags)
    worker = wait_until(lambda: training_job(psutil.Process(process.pid), out))
    worker.kill()
    assert "1 of 1 finished" in finish(process)
    return out


def test_results_on_ray_with_a_killed_worker_equal_local_ones(local: Path, on_ray: Path) -> None:
    for name in ("eval.csv", "metrics.jsonl"):
        assert (on_ray / "tiny" / "gtrl" / name).read_bytes() == (local / "tiny" / "gtrl" / name).read_bytes(), name
    assert "from step" in (on_ray / "logs" / "tiny" / "gtrl.log").read_text()  # it was resumed
    for key in KEYS:
        run = Run(local / key)
        assert {row["step"] for row in run.metrics()} == {4000, 8000, 12_000, STEPS}
        assert len(run.evaluations()) == 2 * (5 if key.startswith(MINI) else 2)
    assert not list(on_ray.rglob("lock"))


def times(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


@pytest.mark.usefixtures("_no_processes")
def test_second_start_does_no_work(
    folder: Path, local: Path, on_ray: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setitem(sys.modules, "ray", None)
    for out, flags, count in ((local, [], 4), (on_ray, [*ON_RAY, "--ray", "local"], 1)):
        before = times(out)
        assert cli.main(["sweep", "sweep.yaml", "--out", str(out), *flags]) == 0
        assert times(out) == before
        assert f"{count} of {count} finished" in capsys.readouterr().out


def test_other_config_in_the_folder_is_an_error_that_names_it(
    folder: Path, local: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    for flags, message in (
        (["--field", "batch_size=16"], "training.batch_size is 32 there and 16 here"),
        (["--seeds", "1"], "seeds is [0, 3] there and [1] here"),
        (["--steps", "20"], "holds a run of 16,000 steps, more than 20"),
        (
            ["--field", "checkpoint_every=5"],
            "has no policies of step 5, and its newest checkpoint, 16,000, is beyond it",
        ),
    ):
        assert cli.main(["sweep", "sweep.yaml", "--out", str(local), *flags]) == 2
        assert message in capsys.readouterr().err


def test_more_steps_or_episodes_are_not_finished(folder: Path, local: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(folder))
    plan = read_sweep(folder / "sweep.yaml")
    [first, *_] = check_sweep(plan, local)
    assert find_state(first) == "finished"
    settings = {"tasks": [MINI], "methods": ["gtrl"], "seeds": [0, 3], "fields": TINY}
    for change in ({"steps": STEPS + 10, "episodes": 1}, {"steps": STEPS, "episodes": 2}):
        [run] = check_sweep(make_sweep(settings | change), local)
        assert find_state(run) == "stopped"


def test_steps_that_are_left_are_those_after_the_newest_checkpoint(local: Path, tmp_path: Path) -> None:
    shutil.copytree(local / MINI / "gtrl", tmp_path / MINI / "gtrl")
    settings = {"tasks": [MINI], "methods": ["gtrl"], "seeds": [0, 3], "fields": TINY, "steps": STEPS + 10}
    [run] = check_sweep(make_sweep(settings), tmp_path)
    assert cost_of(run).steps == 10
    shutil.rmtree(run.folder / "checkpoints")  # the logs, which are still there, cannot be resumed from
    assert cost_of(run).steps == STEPS + 10


@pytest.mark.usefixtures("_no_processes")
def test_runs_that_cannot_be_evaluated_are_named(
    local: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = local / MINI / "bc"
    before = times(run)
    assert cli.main(["sweep", "--evaluate-only", "--out", str(run)]) == 2
    assert f"use gtrl evaluate {run}" in capsys.readouterr().err
    assert times(run) == before
    assert cli.main(["sweep", "--evaluate-only", "--out", str(local), "--episodes", "0"]) == 2
    assert "episodes is 0" in capsys.readouterr().err
    shutil.copytree(run, tmp_path / "bc")
    shutil.rmtree(tmp_path / "bc" / "policies")
    assert cli.main(["sweep", "--evaluate-only", "--out", str(tmp_path)]) == 1
    assert capsys.readouterr().err == "gtrl: bc: stopped: holds no policy yet\n"


def test_run_that_another_process_trains_is_left_alone(
    folder: Path, local: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    out = tmp_path / "out"
    shutil.copytree(local / MINI / "bc", out / MINI / "bc")
    flags = ["--tasks", MINI, "--methods", "bc", "--episodes", "2", "--out", str(out)]
    with locked(out / MINI / "bc" / LOCK, "training"):
        assert cli.main(["sweep", "sweep.yaml", *flags]) == 1
    assert f"{MINI}/bc: elsewhere" in capsys.readouterr().err


def test_evaluations_alone_are_the_same(folder: Path, local: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for method in ("bc", "gtrl"):
        shutil.copytree(local / "tiny" / method, out / "tiny" / method)
        (out / "tiny" / method / "eval.csv").unlink()
    output = finish(sweep(folder, "--evaluate-only", "--out", str(out), "--episodes", "1", "--methods", "bc"))
    assert "1 of 1 finished" in output
    assert (out / "tiny" / "bc" / "eval.csv").read_bytes() == (local / "tiny" / "bc" / "eval.csv").read_bytes()
    assert not (out / "tiny" / "gtrl" / "eval.csv").exists()


def interrupt(folder: Path, *command: str) -> Run:
    """Stops a sweep with Ctrl-C while it trains; returns the run, which has saved a checkpoint."""
    process = sweep(folder, *command)
    run = Run(folder / command[command.index("--out") + 1] / MINI / "bc")
    wait_until(lambda: list(run.metrics()))
    process.send_signal(signal.SIGINT)
    assert "run the same command again to resume" in finish(process, 130)
    assert 0 < max(int(path.stem) for path in run.checkpoints.glob("*.npz")) < LONG
    assert not run.evaluations()
    return run


LONG = 40_000  # steps
STOPPED = ("sweep.yaml", "--tasks", MINI, "--methods", "bc", "--steps", str(LONG), "--field", "checkpoint_minutes=5")


def test_interrupted_sweep_saves_checkpoints(folder: Path) -> None:
    interrupt(folder, *STOPPED, "--out", "interrupted")


@pytest.mark.soak
@pytest.mark.parametrize("flags", [(), ("--ray", "local", "--jobs", "1")])
def test_interrupted_sweep_is_resumed(flags: tuple[str, ...], folder: Path) -> None:
    command = (*STOPPED, "--out", f"resumed{len(flags)}", *flags)
    run = interrupt(folder, *command)
    assert "1 of 1 finished" in finish(sweep(folder, *command))
    assert (run.path / "timing.jsonl").read_text().count("start_up_seconds") == 2


@pytest.mark.soak
def test_evaluations_on_ray_are_the_same(folder: Path, local: Path) -> None:
    out = folder / "evaluated-on-ray"
    shutil.copytree(local, out)
    for file in out.rglob("eval.csv"):
        file.unlink()
    finish(sweep(folder, "sweep.yaml", "--evaluate-only", "--out", str(out), "--ray", "local", "--jobs", "2"))
    for key in KEYS:
        assert (out / key / "eval.csv").read_bytes() == (local / key / "eval.csv").read_bytes()


def test_sweep_of_the_wrong_type_is_rejected() -> None:
    with pytest.raises(ConfigError, match="tasks is 3 and must be a list"):
        make_sweep({"tasks": 3})
