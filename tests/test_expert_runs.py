"""Training runs of experts: files, resuming, and the figures of a card."""

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_data import is_one_sentence
from test_expert_training import TINY, skill_named

from gtrl.cli import main
from gtrl.data.collect.expert import Expert
from gtrl.errors import ConfigError, DataError, RunError
from gtrl.experts import sac
from gtrl.experts.measure import falls, measure, walks
from gtrl.experts.settings import SAC, Schedule
from gtrl.experts.skills import SKILLS, Ant
from gtrl.experts.train import Trainer, train_expert
from gtrl.io import mlp_file

OFTEN = Schedule(log_every=200, checkpoint_every=400, evaluate_every=600)


def contents(folder: Path) -> dict[str, bytes]:
    names = ["metrics.jsonl", "eval.jsonl", "expert.npz", "experts/step-600.npz", "checkpoints/1200.npz"]
    return {name: (folder / name).read_bytes() for name in names}


@pytest.fixture(autouse=True, scope="module")
def short_episodes() -> Iterator[None]:
    """Ant episodes of 80 steps: some end within these short runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Ant, "episode_steps", 80)
        patch.setattr(Ant, "goal_steps", 20)
        yield


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("experts") / "run"
    train_expert("ant", folder, TINY, threads=2, schedule=OFTEN, show=False)
    return folder


def test_a_run_has_files(undisturbed: Path) -> None:
    rows = [json.loads(line) for line in (undisturbed / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [200, 400, 600, 800, 1000, 1200]
    assert {"critic_loss", "entropy", "temperature", "q", "episode_return", "episode_length", "episode_falls"} <= rows[
        -1
    ].keys()
    assert "critic_loss" not in rows[0]  # before the first update
    evaluations = [json.loads(line) for line in (undisturbed / "eval.jsonl").read_text().splitlines()]
    assert [row["step"] for row in evaluations] == [600, 1200]
    assert (undisturbed / "curves.png").stat().st_size > 5000
    assert not (undisturbed / "lock").exists()
    expert = Expert(undisturbed / "expert.npz")
    assert expert.network.widths == [29, 8, 8]
    assert (expert.header["skill"], expert.header["step"]) == ("ant", 1200)
    assert np.load(undisturbed / "expert.npz")["weight0"].dtype == np.float16


def test_an_interrupted_run_ends_as_an_undisturbed_one(
    undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stops at step 900, 100 steps after a checkpoint, as after SIGKILL, and goes on with another thread count."""

    class Killed(BaseException):
        pass

    def killing(trainer: Trainer) -> dict[str, Any]:
        if trainer.step >= 900:
            raise Killed
        return advance(trainer)

    advance = Trainer.advance
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "advance", killing)
        with pytest.raises(Killed):
            train_expert("ant", tmp_path / "run", TINY, threads=1, schedule=OFTEN, show=False)
    assert not (tmp_path / "run/checkpoints/1200.npz").exists()
    train_expert("ant", tmp_path / "run", TINY, threads=2, schedule=OFTEN, show=False)
    assert contents(tmp_path / "run") == contents(undisturbed)


RUN_OF_SHORT_EPISODES = """
import sys
from gtrl.experts.skills import Ant
Ant.episode_steps, Ant.goal_steps = 80, 20
from gtrl.cli import main
sys.exit(main(sys.argv[1:]))
"""


def test_sigterm_writes_a_checkpoint_and_the_same_command_continues(undisturbed: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    flags = {
        "steps": 1200,
        "copies": 4,
        "updates": 1,
        "batch-size": 16,
        "hidden": 8,
        "warmup": 200,
        "replay": 400,
        "noise": 0.1,
    }
    flags |= {"log-every": 200, "checkpoint-every": 400, "evaluate-every": 600}
    command = [sys.executable, "-c", RUN_OF_SHORT_EPISODES, "expert", "train", "ant", "--out", str(run)]
    command += [word for flag, value in flags.items() for word in (f"--{flag}", str(value))]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        wait_until(lambda: (run / "metrics.jsonl").exists() and (run / "metrics.jsonl").read_text())
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        message = process.stderr.read()
    assert process.returncode == 128 + signal.SIGTERM
    assert "the same command continues from step" in message
    assert subprocess.run(command, capture_output=True).returncode == 0
    assert contents(run) == contents(undisturbed)


def wait_until(condition: Any, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_goes_on_elsewhere_without_the_replay_buffer(
    undisturbed: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(undisturbed / "checkpoints", tmp_path / "checkpoints")
    trainer = Trainer(skill_named("ant"), SAC(**{**TINY.__dict__, "refill": 40}), tmp_path, schedule=OFTEN)
    assert trainer.resume()
    assert "has no replay buffer of step 1,200: 40 new steps will fill it" in caplog.text
    updates = [int(trainer.learner.updates)]
    for _ in range(12):
        trainer.advance()
        updates.append(int(trainer.learner.updates))
    assert updates[9] == updates[0]  # 36 steps
    assert np.diff(updates[9:]).tolist() == [1, 1, 1]
    assert trainer.step == 1200 + 48


def test_a_damaged_replay_file_is_refilled(undisturbed: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for folder in ("checkpoints", "replay"):
        shutil.copytree(undisturbed / folder, tmp_path / folder)
    newest = max((tmp_path / "replay").iterdir())
    newest.write_bytes(newest.read_bytes()[:-200])
    trainer = Trainer(skill_named("ant"), TINY, tmp_path, schedule=OFTEN)
    assert trainer.resume()
    assert newest.name in caplog.text
    assert "new steps will fill it before the next update" in caplog.text
    assert trainer.added == 0


def test_training_stops_where_a_number_is_not_finite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ant, "rewards", lambda *arrays: np.full(len(arrays[-1]), np.nan))
    with pytest.raises(RunError, match=r"stopped at step 400, where critic_loss is nan; another --seed"):
        train_expert("ant", tmp_path / "run", TINY, schedule=OFTEN, show=False)
    assert not list((tmp_path / "run/checkpoints").glob("*.npz"))


def test_a_longer_run_continues_and_other_settings_are_refused(undisturbed: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(undisturbed, run)

    def again(**settings: Any) -> None:
        train_expert("ant", run, SAC(**{**TINY.__dict__, **settings}), schedule=OFTEN, show=False)

    for _ in range(2):  # the second time, nothing is left to do
        again(steps=1242)
        assert json.loads((run / "eval.jsonl").read_text().splitlines()[-1])["step"] == 1244  # of four copies
    with pytest.raises(ConfigError, match="holds a run of 1,244 steps already; give at least as many --steps"):
        again(steps=1200)
    with pytest.raises(ConfigError) as caught:
        again(lr=1e-3)
    assert "holds a run with lr 0.0003; use these settings or another --out" in str(caught.value)
    assert is_one_sentence(str(caught.value))
    config = json.loads((run / "config.json").read_text())
    older = {key: value for key, value in config.items() if key not in ("frame", "maze_share")}
    (run / "config.json").write_text(json.dumps(older))
    with pytest.raises(ConfigError, match=r"holds a run with maze_share 0.5; use"):
        again(maze_share=0.0)
    again(steps=1242)
    assert json.loads((run / "config.json").read_text())["maze_share"] == 0.5


def test_an_expert_file_acts_as_the_policy(undisturbed: Path) -> None:
    trainer = Trainer(skill_named("ant"), TINY, undisturbed, schedule=OFTEN)
    trainer.resume()
    inputs = trainer.simulation.inputs(trainer.copies)
    expert = Expert(undisturbed / "expert.npz")
    np.testing.assert_allclose(expert.network(inputs), sac.mean_action(trainer.learner, inputs), atol=0.02)


# --- figures ---


def test_figures_of_walks_by_hand() -> None:
    """Two walks of 200 steps: east at 0.1 m a step, told east; north at 0.2, told east."""
    steps = np.arange(201)[:, None]
    track = np.stack([steps * (0.1, 0.0), steps * (0.0, 0.2)], 1)
    figures = walks(track, np.array([[1.0, 0.0], [1.0, 0.0]]), episodes=1)
    assert figures["m per 100 steps in the direction"] == pytest.approx(5)
    assert figures["slowest direction, m per 100 steps"] == pytest.approx(0)
    assert figures["mean error of direction in degrees"] == pytest.approx(45)
    assert figures["share of time standing still"] == 0
    both = walks(track, np.array([[1.0, 0.0], [1.0, 0.0]]), episodes=2)  # two episodes of one direction
    assert both["slowest direction, m per 100 steps"] == pytest.approx(5)
    assert both["slowest episode, m per 100 steps"] == pytest.approx(0)
    still = walks(np.zeros((201, 2, 2)), np.array([[1.0, 0.0], [1.0, 0.0]]), episodes=1)
    assert still["mean error of direction in degrees"] is None
    assert still["share of time standing still"] == 1


def test_falls_by_hand() -> None:
    """x: down. A fall needs three steps on the feet before it; the last copy never stands for so long."""
    copies = ["....x.x..", "xx...xx..", ".........", "x..x.x.x."]
    down = np.array([[letter == "x" for letter in copy] for copy in copies]).T
    figures = falls(down, steps_up=3, gets_up=True)
    assert figures["episodes with a fall"] == pytest.approx(2 / 4)
    assert figures["falls per 1,000 steps"] == pytest.approx(2 / 4 / 8 * 1000)
    assert figures["share of time fallen"] == pytest.approx(10 / 36)
    assert figures["episodes in which it stands"] == pytest.approx(3 / 4)
    assert figures["steps until it stands"] == pytest.approx((0 + 2 + 0) / 3)
    assert falls(np.ones((9, 2), bool), 3, gets_up=True)["steps until it stands"] is None


@pytest.mark.parametrize("name", SKILLS)
def test_an_expert_that_does_nothing(name: str) -> None:
    skill = skill_named(name)
    figures = measure(skill, lambda inputs: np.zeros((len(inputs), skill.model.nu)), directions=2, episodes=1)
    assert figures["episodes"] == 2
    if name == "humanoid":
        assert (figures["share of time fallen"] or 0) > 0.9
        assert figures["episodes with a fall"] == 0  # it never stands, so it cannot fall
        assert figures["episodes in which it stands"] == 0
    else:
        assert figures["episodes with a fall"] == 0
    if name == "dribble":
        assert figures["ball within 0.5 m of its goal"] == 0
    else:
        assert abs(figures["m per 100 steps in the direction"] or 0) < 1


def test_card_of_a_file(undisturbed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    card, file = tmp_path / "card.md", str(undisturbed / "expert.npz")
    assert main(["expert", "measure", file, "--episodes", "1", "--threads", "2", "--card", str(card)]) == 0
    assert "m per 100 steps in the direction" in capsys.readouterr().out
    text = card.read_text()
    assert "# Expert: ant" in text
    assert "| episodes | 20 | 20 |" in text
    assert "1,200 simulator steps" in text
    assert "- batch size: 16" in text


def test_bad_input_is_one_sentence(undisturbed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arrays, header = mlp_file.read(undisturbed / "expert.npz", "an expert", DataError)
    unnamed = tmp_path / "unnamed.npz"
    mlp_file.write(unnamed, arrays, {key: value for key, value in header.items() if key != "skill"})
    (tmp_path / "file").write_text("")
    listed = tmp_path / "listed.npz"
    mlp_file.write(listed, arrays, header | {"skill": ["ant"], "training": [1]})
    for command, expected in {
        f"measure {listed}": "does not say what it has learned",
        f"measure {unnamed}": "does not say what it has learned: give --skill ant | dribble | humanoid",
        f"measure {tmp_path / 'none.npz'}": "none.npz",
        f"measure {unnamed} --skill humanoid": "maps 29 numbers to 8, but humanoid needs 69 to 21",
        f"measure {unnamed} --skill ant --episodes 0": "episodes is 0 and must be at least 1",
        f"train ant --out {tmp_path / 'file'}": "cannot be a folder",
        f"train ant --out {tmp_path / 'x'} --steps 0": "steps is 0 and must be a positive integer",
        f"train ant --out {tmp_path / 'x'} --threads 0": "threads is 0 and must be at least 1",
        f"train ant --out {tmp_path / 'x'} --log-every 0": "log_every is 0 and must be a positive integer",
        f"train ant --out {tmp_path / 'x'} --steps 5000": "warmup is 5000 and must be less than steps",
        "train --steps 100 ant": "name a skill first: gtrl expert train SKILL ..., where SKILL is one of ant, dribble",
        f"train cow --out {tmp_path / 'x'}": "unknown skill 'cow': choose from ant, dribble, humanoid",
    }.items():
        assert main(["expert", *command.split()]) == 2
        message = capsys.readouterr().err.removeprefix("gtrl: ").strip()
        assert expected in message
        assert is_one_sentence(message)
    assert not (tmp_path / "x").exists()
