"""The files of a run directory: locks, partial files, JSON lines, `eval.csv` and `config.json`."""

import fcntl
import json
import os
import re
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from test_data import is_one_sentence

from gtrl.errors import RunError
from gtrl.io import atomic, jsonl
from gtrl.io.atomic import atomic_write, remove_partial
from gtrl.io.locks import locked, wait_for_lock
from gtrl.runs.run import Run

# --- locks ---


def test_waiting_for_a_lock_does_not_poll(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, flock = [], fcntl.flock

    def counting(file: Any, flags: int) -> None:
        asked.append(threading.get_ident())
        flock(file, flags)

    def wait() -> None:
        with wait_for_lock(tmp_path / "lock"):
            pass

    waiting = threading.Thread(target=wait)
    with locked(tmp_path / "lock", "here"):
        monkeypatch.setattr(fcntl, "flock", counting)
        waiting.start()
        time.sleep(0.5)
        assert len(asked) == 1
        assert waiting.is_alive()
    waiting.join(10)
    assert len(asked) == 2  # the file it waited for was removed, so it locks a new one
    assert not list(tmp_path.iterdir())


def test_lock_whose_file_is_removed_admits_one_at_a_time(tmp_path: Path) -> None:
    """Several threads wait for one file; each holder removes it, and only one may be inside at a time."""
    inside, most, done = 0, 0, []

    def enter() -> None:
        nonlocal inside, most
        for _ in range(20):
            with wait_for_lock(tmp_path / "lock"):
                inside += 1
                most = max(most, inside)
                time.sleep(0.0005)
                inside -= 1
        done.append(True)

    threads = [threading.Thread(target=enter) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (most, len(done)) == (1, 6)
    assert not list(tmp_path.iterdir())


# --- partial files ---

DAY = 24 * 3600


def partial_file(folder: Path, host: str, process: int, age: float = 0) -> Path:
    path = folder / f"a.npz.{host}.{process}.partial"
    path.touch()
    os.utime(path, (time.time() - age, time.time() - age))
    return path


def test_partial_files_of_another_host_are_judged_by_age(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atomic.socket, "gethostname", lambda: "node-1.cluster.org")
    here = "node-1-cluster-org"
    gone, no_process = 999_999_999, 2**70
    stays = [
        partial_file(tmp_path, here, os.getppid(), age=9 * DAY),  # a slow writer
        partial_file(tmp_path, "node-2-cluster-org", gone),
        partial_file(tmp_path, "node-2-cluster-org", gone + 1, age=0.9 * DAY),
    ]
    goes = [
        partial_file(tmp_path, here, gone),
        partial_file(tmp_path, here, no_process),
        partial_file(tmp_path, "node-2-cluster-org", os.getppid(), age=1.1 * DAY),
    ]
    (tmp_path / "notes.partial").touch()
    remove_partial(tmp_path)
    assert all(path.exists() for path in stays)
    assert not any(path.exists() for path in goes)
    assert (tmp_path / "notes.partial").exists()


def test_partial_file_names_its_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atomic.socket, "gethostname", lambda: "node-1.cluster.org")
    with atomic_write(tmp_path / "a.npz") as file:
        assert [path.name for path in tmp_path.iterdir()] == [f"a.npz.node-1-cluster-org.{os.getpid()}.partial"]
        file.write(b"all of it")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a.npz": b"all of it"}


# --- JSON lines ---


def test_truncated_last_line_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 10, "seed": 0, "loss": 0.5}\n{"step": 20, "lo')
    assert list(Run(tmp_path).metrics()) == [{"step": 10, "seed": 0, "loss": 0.5}]
    (tmp_path / "metrics.jsonl").write_bytes(b'{"step": 10, "seed": 0}\n' + bytes(9))
    assert list(Run(tmp_path).metrics()) == [{"step": 10, "seed": 0}]
    (tmp_path / "metrics.jsonl").unlink()
    assert list(Run(tmp_path).metrics()) == []


@pytest.mark.parametrize("line", ['{"step": 2', "3", "", "\udcff", "[" * 10**5])
def test_any_other_damaged_line_is_an_error(line: str, tmp_path: Path) -> None:
    text = f'{{"step": 1, "seed": 0}}\n{line}\n{{"step": 3, "seed": 0}}\n'
    (tmp_path / "metrics.jsonl").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(RunError, match=r"metrics\.jsonl, line 2 is not (a )?JSON") as caught:
        list(Run(tmp_path).metrics())
    assert is_one_sentence(str(caught.value))


def test_appending_to_json_lines(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"step": 1}\n{"step": 2}\n{"st')
    file = jsonl.JsonLines(path, keep=lambda step: step < 2)
    file.write({"step": 5, "value": 0.1})
    assert path.read_text() == '{"step": 1}\n{"step": 5, "value": 0.1}\n'  # visible to other processes at once
    file.close()
    assert list(jsonl.read_rows(path)) == [{"step": 1}, {"step": 5, "value": 0.1}]


# --- eval.csv ---


def evaluation(**changes: Any) -> dict[str, Any]:
    row = {"algorithm": "bc", "task": "t", "seed": 0, "step": 5, "goal": "task1", "episodes": 4, "successes": 1}
    return row | changes


def test_rows_with_more_episodes_are_kept(tmp_path: Path) -> None:
    run = Run(tmp_path)

    def after(**changes: Any) -> list[tuple[int, int]]:
        run.add_evaluations([evaluation(**changes)])
        return [(row["episodes"], row["successes"]) for row in run.evaluations()]

    assert after() == [(4, 1)]
    assert after(episodes=2, successes=2) == [(4, 1)]
    assert after(episodes=4, successes=3) == [(4, 3)]
    assert after(episodes=50, successes=9) == [(50, 9)]
    assert after(episodes=49, successes=49, base_seed=0) == [(50, 9)]


def test_rows_of_another_base_seed_are_separate(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.add_evaluations([evaluation(base_seed=7, episodes=2), evaluation()])
    run.add_evaluations([evaluation(base_seed=7, episodes=3, successes=0)])
    assert run.evaluations() == [evaluation(base_seed=0), evaluation(base_seed=7, episodes=3, successes=0)]
    lines = (tmp_path / "eval.csv").read_text().splitlines()
    assert lines[0] == "algorithm,task,seed,step,goal,episodes,successes,base_seed"
    assert lines[1:] == ["bc,t,0,5,task1,4,1,0", "bc,t,0,5,task1,3,0,7"]


def test_table_without_base_seeds_is_read(tmp_path: Path) -> None:
    (tmp_path / "eval.csv").write_text("algorithm,task,seed,step,goal,episodes,successes\nbc,t,0,5,task1,4,1\n")
    assert Run(tmp_path).evaluations() == [evaluation(base_seed=0)]
    Run(tmp_path).add_evaluations([evaluation(successes=2)])  # the same base seed, as many episodes
    assert Run(tmp_path).evaluations() == [evaluation(successes=2, base_seed=0)]


def test_names_with_commas(tmp_path: Path) -> None:
    row = evaluation(task="custom, 2", goal='a "far" corner', base_seed=0)
    Run(tmp_path).add_evaluations([row])
    assert Run(tmp_path).evaluations() == [row]


@pytest.mark.parametrize("text", ["algorithm,task\nbc,t\n", "seed\nx\n", None])
def test_damaged_table_is_reported(text: str | None, tmp_path: Path) -> None:
    Run(tmp_path).add_evaluations([evaluation()])
    path = tmp_path / "eval.csv"
    path.write_text(path.read_text()[:-6] if text is None else text)
    with pytest.raises(RunError, match=r"eval\.csv is damaged") as caught:
        Run(tmp_path).evaluations()
    assert is_one_sentence(str(caught.value))


# --- config.json ---


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"config\.json cannot be read"),
        (b'{"seeds": [0', r"config\.json cannot be read"),
        (b"\xff\xfe", r"config\.json cannot be read"),
        (b"[" * 10**5, r"config\.json cannot be read"),
        (b"[0]", r"config\.json is not a JSON object"),
        (b"{}", r"config\.json has no 'seeds'"),
        (b'{"seeds": 3}', r"config\.json has no list of seeds"),
        (b'{"seeds": []}', r"config\.json has no list of seeds"),
        (b'{"seeds": ["0"]}', r"config\.json has no list of seeds"),
    ],
)
def test_damaged_config_is_reported(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(RunError, match=message) as caught:
        Run(tmp_path).policy_steps  # noqa: B018
    assert is_one_sentence(str(caught.value))


def test_missing_config_keys_are_named(tmp_path: Path) -> None:
    written = {"seeds": [0, 3], "algorithm": {"name": "bc"}, "changes": [{"step": 1}]}
    Run(tmp_path).save_config(written)
    config = Run(tmp_path).config
    assert config == written
    assert json.loads(json.dumps(config)) == written
    assert config["algorithm"]["name"] == "bc"
    assert config.get("task") is None
    for broken, key in ((config, "task"), (config["algorithm"], "gamma"), (config["changes"][0], "changed")):
        with pytest.raises(RunError, match=rf"{re.escape(str(tmp_path))}/config\.json has no '{key}'"):
            broken[key]


def test_folders_that_are_not_steps_are_ignored(tmp_path: Path) -> None:
    Run(tmp_path).save_config({"seeds": [0]})
    for name in ("step-5", "step-old", "step-"):
        (tmp_path / "policies" / name).mkdir(parents=True)
        (tmp_path / "policies" / name / "seed-0.npz").touch()
    assert Run(tmp_path).policy_steps == [5]
    shutil.rmtree(tmp_path / "policies" / "step-5")
    with pytest.raises(RunError, match="holds no policy yet"):
        Run(tmp_path).policy_path(0)
