"""Videos of evaluated episodes: the same episodes, frames and files; trajectories on a map; OpenGL backends."""

import dataclasses
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from PIL import Image, ImageSequence

from gtrl import cli
from gtrl.envs.make import make_environment
from gtrl.envs.maze import Maze, maze_of
from gtrl.errors import VideoError, WorkerError
from gtrl.evaluation.rollout import Episode, Job, Outcome, run_episodes
from gtrl.io import mlp
from gtrl.io.mlp_file import MLP
from gtrl.report import cameras, frames, style, video
from gtrl.report.cameras import Views, find_gl
from gtrl.report.figures import trajectories_picture
from gtrl.report.frames import (
    GAP,
    HEADER,
    LABEL,
    Caption,
    Picture,
    choose_format,
    compose,
    compress,
    decompress,
    write_video,
)
from gtrl.report.video import EpisodeVideo, GoalPictures, concatenate, record_episode
from gtrl.runs.policy import load_policy, save_policy
from gtrl.tasks import OGBenchTask, ogbench_task
from gtrl.workers import map_unordered

MINI = "pointmaze-mini-navigate"
TO_THE_GOAL = [[-1, 0], [0, -1], [1, 0], [0, 1]]  # action = goal - position: it arrives where no wall is in the way


def header(task: OGBenchTask, **changes: Any) -> dict[str, Any]:
    sizes = {name: getattr(task, name) for name in ("observation_dim", "goal_dim", "action_dim")}
    return {"kind": "gaussian", **sizes, "algorithm": "gtrl", "task": task.name, "seed": 0, "step": 1000} | changes


def linear_policy(path: Path, weight: Any, **changes: Any) -> Path:
    layer = mlp.Layer(np.array(weight, np.float32), np.zeros(2, np.float32))
    save_policy(path, MLP([layer]), header(ogbench_task(MINI), **changes))
    return path


def random_policy(path: Path, task: OGBenchTask, **changes: Any) -> Path:
    """One layer of random weights; a flow's reads noise and time, too."""
    rng, extra = np.random.default_rng(0), task.action_dim + 1 if changes.get("kind") == "flow" else 0
    weight = rng.normal(size=(task.observation_dim + task.goal_dim + extra, task.action_dim)) / 3
    layer = mlp.Layer(weight.astype(np.float32), weight[0].astype(np.float32))
    save_policy(path, MLP([layer]), header(task, **changes))
    return path


def short(name: str = MINI, length: int = 60) -> OGBenchTask:
    return dataclasses.replace(ogbench_task(name), episode_length=length)


# --- the episodes that were evaluated ---


def blind(env: Any) -> Views:
    """Needs no OpenGL: a picture whose pixels are the simulator's first two coordinates."""
    return Views(lambda: np.tile(env.data.qpos[:2].astype(np.float32).view(np.uint8).reshape(1, 8, 1), (4, 1, 3)))


def position(picture: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(picture[0, :, 0]).view(np.float32)


def pictures(frame: bytes) -> tuple[np.ndarray, np.ndarray]:
    """The episode's and the goal's, cut out of a frame of two blind pictures."""
    pixels = np.asarray(decompress(frame))
    rows = slice(HEADER + LABEL, HEADER + LABEL + 4)
    return pixels[rows, GAP : GAP + 8], pixels[rows, 2 * GAP + 8 : 2 * GAP + 16]


def filmed(
    policy: Path, task: OGBenchTask, goal: int, number: int = 0, base_seed: int = 0
) -> tuple[EpisodeVideo, Outcome]:
    """A recorded episode, and the same one as evaluation runs it, together with others."""
    loaded, env = load_policy(policy), make_environment(task)
    job = Job(str(policy), task, (Episode(goal, number),), base_seed, record=100)
    film = record_episode(loaded, job, GoalPictures(env, blind(env.unwrapped)))
    others = [Episode(other, number) for other in range(1, 6)]
    outcomes = run_episodes(loaded, dataclasses.replace(job, episodes=tuple(others)))
    return film, next(outcome for outcome in outcomes if outcome.episode.goal == goal)


def assert_same(one: Outcome, other: Outcome) -> None:
    assert (one.success, one.length, one.episode) == (other.success, other.length, other.episode)
    np.testing.assert_array_equal(one.goal, other.goal)
    np.testing.assert_array_equal(np.asarray(one.path), np.asarray(other.path))


@pytest.mark.parametrize("goal", [1, 5])
def test_video_shows_the_evaluated_episode(goal: int, tmp_path: Path) -> None:
    policy = linear_policy(tmp_path / "policy.npz", TO_THE_GOAL)
    film, evaluated = filmed(policy, ogbench_task(MINI), goal, number=2, base_seed=7)
    assert_same(film.outcome, evaluated)
    # 400 steps in at most 125 frames: every fourth step, and the last.
    path, length = np.asarray(evaluated.path), evaluated.length
    steps = sorted({*range(0, length + 1, 4), length})
    assert len(film.frames) == len(steps)
    for step, frame in zip(steps, film.frames, strict=True):
        shown, goal_shown = pictures(frame)
        np.testing.assert_array_equal(position(shown), path[step])
        np.testing.assert_allclose(position(goal_shown), evaluated.goal, atol=1e-5)  # the agent stands on the goal


def test_episodes_that_end_early_and_late(tmp_path: Path) -> None:
    """Straight on, sliding along walls, leads to goal 4 of the demo's maze; nothing moves with weights of zero."""
    film, evaluated = filmed(linear_policy(tmp_path / "policy.npz", TO_THE_GOAL), ogbench_task(MINI), 4)
    assert_same(film.outcome, evaluated)
    assert film.outcome.success
    assert 20 < film.outcome.length < 200
    still, _ = filmed(linear_policy(tmp_path / "still.npz", np.zeros((4, 2))), short(length=90), 4)
    assert (still.outcome.success, still.outcome.length) == (False, 90)
    assert len(still.frames) == 91
    # Only the last frame shows the outcome, in its colour.
    for each, colour in ((film, style.SUCCESS), (still, style.FAILURE)):
        coloured = [count(np.asarray(decompress(frame)), colour) > 0 for frame in each.frames]
        assert coloured == [False] * (len(coloured) - 1) + [True]


def count(pixels: np.ndarray, colour: str) -> int:
    """How many pixels have exactly this colour."""
    return int((pixels == np.round(255 * np.array(to_rgb(colour)))).all(-1).sum())


def test_stochastic_policy_gets_the_same_noise(tmp_path: Path) -> None:
    policy = random_policy(tmp_path / "flow.npz", ogbench_task(MINI), kind="flow", flow_steps=3)
    assert_same(*(found if isinstance(found, Outcome) else found.outcome for found in filmed(policy, short(), 2)))


@pytest.mark.filterwarnings("ignore:.*precision lowered by casting", "ignore:.*DISPLAY environment variable")
@pytest.mark.parametrize("name", ["cube-single-play", "antmaze-large-navigate", "antsoccer-arena-navigate"])
def test_rendering_the_goal_does_not_disturb_the_episode(name: str, tmp_path: Path) -> None:
    task = ogbench_task(name)
    policy = random_policy(tmp_path / "policy.npz", task)
    env, job = make_environment(task), Job(str(policy), task, (Episode(3, 0),), 0, record=1)
    film = record_episode(load_policy(policy), job, GoalPictures(env, blind(env.unwrapped)))
    (evaluated,) = run_episodes(load_policy(policy), job)
    assert_same(film.outcome, evaluated)
    assert 2 <= len(film.frames) <= 126


# --- frames ---


def noise(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).integers(0, 256, (*shape, 3)).astype(np.uint8)


def test_frame_contains_its_pictures_unchanged() -> None:
    left, above, below = noise(90, 121), noise(31, 50), noise(27, 40)
    columns = [[Picture("episode", left)], [Picture("above", above), Picture("goal", below)]]
    frame = compose(columns, Caption("title", "text", success=True))
    # 12 around pictures, 58 for the caption, 20 for each label; odd sums are rounded up.
    assert frame.size == (12 + 121 + 12 + 50 + 12 + 1, 58 + max(20 + 90, 20 + 31 + 12 + 20 + 27) + 12)
    pixels = np.asarray(frame)
    for picture, (top, start) in ((left, (78, 12)), (above, (78, 145)), (below, (78 + 31 + 32, 145))):
        height, width = picture.shape[:2]
        np.testing.assert_array_equal(pixels[top : top + height, start : start + width], picture)


def test_captions_change_only_the_head_of_a_frame() -> None:
    columns = [[Picture("episode", noise(60, 300))], [Picture("goal", noise(60, 300))]]
    plain = np.asarray(compose(columns, Caption("GTRL", "step 1")))
    changes = {"title": Caption("TRL", "step 1"), "text": Caption("GTRL", "step 2")}
    changes |= {str(success): Caption("GTRL", "step 1", success) for success in (True, False)}
    for name, caption in changes.items():
        rows, places = np.nonzero((np.asarray(compose(columns, caption)) != plain).any(-1))
        assert len(rows) > 0
        assert rows.max() < HEADER
        assert (rows.max() < 30) == (name == "title")  # the title is above the rest
        assert (places.min() > 300) == (name in ("True", "False"))  # the verdict is at the right end
    verdicts = [Caption("", "", success).verdict for success in (None, True, False)]
    assert verdicts[1:] == [("goal reached", style.SUCCESS), ("goal not reached", style.FAILURE)]
    assert not verdicts[0][0]


@pytest.mark.parametrize("task", ["humanoidmaze-medium-navigate", "pointmaze-teleport-navigate", "puzzle-4x4-play"])
def test_captions_fit(task: str) -> None:
    """The longest captions over the narrowest frames: nothing is cut off or overlaps the verdict."""
    widths = {"humanoidmaze-medium-navigate": (440, 206)}.get(task, (440, 440))
    columns = [[Picture("", np.zeros((9, width, 3), np.uint8))] for width in widths]
    title, text = f"TD-n on {task}, seed 100 at step 1,000,000", "goal 5 of 5, episode 0, step 2000 of 2000"
    edge, ends = sum(widths) + 2 * GAP, []
    for caption in (Caption(title, ""), Caption("", text), Caption("", "", success=False)):
        places = np.nonzero((np.asarray(compose(columns, caption))[:HEADER] != background()).any(-1))[1]
        ends.append((places.min(), places.max()))
    assert max(end for _, end in ends) <= edge
    assert ends[1][1] + 20 < ends[2][0]


def background() -> np.ndarray:
    return np.round(255 * np.array(to_rgb(frames.BACKGROUND))).astype(np.uint8)


def test_columns_of_pictures() -> None:
    goal, scene, near = noise(4, 4), noise(5, 5), noise(6, 6)
    point, walker = Views(lambda: scene), Views(lambda: scene, lambda: near)
    labels = [[[picture.label for picture in column] for column in views.columns(goal)] for views in (point, walker)]
    assert labels == [[["episode"], ["goal"]], [["episode"], ["episode, from above", "goal"]]]
    assert [id(picture.pixels) for column in walker.columns(goal) for picture in column] == [
        *map(id, (near, scene, goal))
    ]


def test_last_frame_is_repeated() -> None:
    films = [
        EpisodeVideo(Outcome(Episode(1, 0), True, 3, np.zeros(2)), [b"a", b"b"]),
        EpisodeVideo(Outcome(Episode(2, 0), True, 1, np.zeros(2)), [b"c"]),
    ]
    assert concatenate(films) == [b"a", *[b"b"] * 25, *[b"c"] * 25]


# --- files ---

COLOURS = [(200, 30, 30), (30, 180, 40), (20, 60, 220), (240, 240, 240)]


def flat_frames(size: tuple[int, int] = (64, 48)) -> list[bytes]:
    return [compress(Image.new("RGB", size, colour)) for colour in COLOURS]


def decoded(path: Path) -> np.ndarray:
    """The middle pixel of each frame of an mp4."""
    command = [
        str(frames.find_encoder()),
        "-loglevel",
        "error",
        "-i",
        str(path),
        "-f",
        "rawvideo",
        "-pix_fmt",
        "rgb24",
        "-",
    ]
    raw = subprocess.run(command, check=True, capture_output=True).stdout
    return np.frombuffer(raw, np.uint8).reshape(-1, 48, 64, 3)[:, 24, 32].astype(int)


def test_packed_frames_are_lossless() -> None:
    pixels = noise(20, 30)
    np.testing.assert_array_equal(np.asarray(decompress(compress(Image.fromarray(pixels)))), pixels)


def test_gif(tmp_path: Path) -> None:
    path, done = tmp_path / "new" / "film.gif", []
    stills = flat_frames()
    write_video(path, [*stills, *stills[-1:] * 25], done.append)
    assert sum(done) == 29
    with Image.open(path) as gif:
        assert gif.info["loop"] == 0  # loops forever
        shown = [
            (np.asarray(image.convert("RGB"))[24, 32].tolist(), image.info["duration"])
            for image in ImageSequence.Iterator(gif)
        ]
    assert [colour for colour, _ in shown] == [list(colour) for colour in COLOURS]  # repeated frames are stored once
    assert [duration for _, duration in shown] == [40, 40, 40, 26 * 40]  # milliseconds
    assert [file.name for file in path.parent.iterdir()] == ["film.gif"]


def test_mp4(tmp_path: Path) -> None:
    path = tmp_path / "film.mp4"
    write_video(path, [frame for frame in flat_frames() for _ in range(5)])
    found = decoded(path)
    assert len(found) == 20
    assert np.abs(found - np.repeat(COLOURS, 5, 0)).max() < 12  # it is compressed, and in other colours
    assert [file.name for file in tmp_path.iterdir()] == ["film.mp4"]
    output = subprocess.run(
        [str(frames.find_encoder()), "-i", str(path)], check=False, capture_output=True
    ).stderr.decode()
    assert "yuv420p" in output
    assert "64x48" in output
    assert "25 fps" in output
    assert "00:00:00.80" in output


def test_formats(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose_format(None) == choose_format(Path("a.MP4")) == "mp4"
    assert choose_format(Path("a.b.gif")) == "gif"
    with pytest.raises(VideoError, match=r"^a\.avi is neither an \.mp4 nor a \.gif file\.$"):
        choose_format(Path("a.avi"))
    monkeypatch.setattr(frames, "find_encoder", lambda: None)
    assert choose_format(None) == choose_format(Path("a.gif")) == "gif"
    with pytest.raises(VideoError, match=r"no encoder for a\.mp4: install ffmpeg .* or name a \.gif file\.$"):
        choose_format(Path("runs/a.mp4"))


def program(path: Path, *lines: str) -> Path:
    path.write_text("\n".join([f"#!{sys.executable}", "import sys", *lines]))
    path.chmod(0o755)
    return path


def test_encoders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert Path(str(frames.find_encoder())).name.startswith("ffmpeg-")  # the one of imageio-ffmpeg
    own_encoder = program(tmp_path / "ffmpeg")
    assert frames.find_encoder() == str(own_encoder)
    own_encoder.unlink()
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    assert frames.find_encoder() is None


@pytest.mark.parametrize("reads", ["", "sys.stdin.buffer.read()"])
def test_failing_encoder_keeps_the_previous_file(reads: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, encoder = tmp_path / "film.mp4", tmp_path / "ffmpeg"
    path.write_bytes(b"before")
    program(encoder, reads, "open(sys.argv[-1], 'w').write('half')", "sys.exit('first\\nno such codec')")
    monkeypatch.setattr(frames, "find_encoder", lambda: str(encoder))
    with pytest.raises(VideoError, match=r"ffmpeg could not write the video \(no such codec\); a \.gif file does not"):
        write_video(path, flat_frames((1000, 800)))  # more than a pipe holds
    assert path.read_bytes() == b"before"
    assert {file.name for file in tmp_path.iterdir()} == {"film.mp4", "ffmpeg"}


# --- trajectories ---


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """Records the figures that are saved; they are still saved."""
    figures, save = [], Figure.savefig
    monkeypatch.setattr(
        Figure, "savefig", lambda self, *args, **kwargs: figures.append(self) or save(self, *args, **kwargs)
    )
    return figures


def plan_of(task: str) -> Maze:
    maze = maze_of(ogbench_task(task))
    assert maze is not None
    return maze


def test_trajectories_picture(drawn: list[Figure], tmp_path: Path) -> None:
    maze = plan_of(MINI)
    walk, jump = np.array([[0, 0], [0.5, 0], [1, 0]]), np.array([[12, 0], [12, 16], [12.5, 16]])
    path = tmp_path / "trajectories.png"
    trajectories_picture(path, maze, [(2, True, walk), (2, False, jump), (4, False, walk)], "the title")
    (figure,) = drawn
    assert figure.get_suptitle() == "the title"
    *panels, place = figure.axes
    assert [axis.get_title() for axis in panels] == [
        "goal 1: reached in 0 of 0", "goal 2: reached in 1 of 2", "goal 3: reached in 0 of 0",
        "goal 4: reached in 0 of 1", "goal 5: reached in 0 of 0",
    ]  # fmt: skip
    for axis in panels:
        assert axis.get_aspect() == 1
        assert axis.get_ylim()[0] < axis.get_ylim()[1]  # y up, as the camera sees it
        assert axis.get_legend() is None
    failed, arrived = panels[1].lines
    assert (arrived.get_color(), failed.get_color()) == (style.SUCCESS, style.FAILURE)
    np.testing.assert_array_equal(arrived.get_xydata(), walk)
    np.testing.assert_array_equal(failed.get_xydata(), [jump[0], [np.nan, np.nan], *jump[1:]])  # no line for a teleport
    assert [len(axis.lines) for axis in panels] == [0, 2, 0, 1, 0]
    # Each start and goal, and in each panel where a failed episode ended.
    for goal, axis in enumerate(panels):
        places = [offset.tolist() for marks in axis.collections for offset in np.asarray(marks.get_offsets())]
        assert maze.starts[goal].tolist() in places
        assert maze.goals[goal].tolist() in places
        assert ([12.5, 16] in places, [1, 0] in places) == (goal == 1, goal == 3)
    legend = place.get_legend()
    assert legend is not None
    labels = [text.get_text() for text in legend.get_texts()]
    assert labels == [
        "start",
        "goal",
        "teleporter",
        "teleporter exit (one at random)",
        "successful episode",
        "failed episode",
    ]
    # Nothing overlaps, and the file is whole.
    boxes = [axis.get_tightbbox() for axis in figure.axes]
    for one, other in itertools.combinations(boxes, 2):
        assert one is not None
        assert other is not None
        assert not one.overlaps(other)
    with Image.open(path) as image:
        assert count(np.asarray(image.convert("RGB")), style.SUCCESS) > 0
    assert [file.name for file in tmp_path.iterdir()] == ["trajectories.png"]


def test_legend_without_teleporters(drawn: list[Figure], tmp_path: Path) -> None:
    trajectories_picture(tmp_path / "a.png", plan_of("pointmaze-medium-navigate"), [], "")
    legend = drawn[0].axes[-1].get_legend()
    assert legend is not None
    assert len(legend.get_texts()) == 4


# --- the command ---


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run directory of two seeds and two steps, without checkpoints."""
    folder = tmp_path / "run"
    for step, seed in itertools.product((10, 20), (3, 5)):
        linear_policy(folder / f"policies/step-{step}/seed-{seed}.npz", TO_THE_GOAL, seed=seed, step=step)
    (folder / "config.json").write_text(json.dumps({"seeds": [3, 5]}))
    return folder


@pytest.fixture
def studio(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Four frames instead of OpenGL; returns the requests."""
    asked: list[dict[str, Any]] = []

    def record_policy(
        policy: Path, task: OGBenchTask, gl: str, *, base_seed: int, workers: int | None, show: bool, **_: Any
    ) -> list[EpisodeVideo]:
        assert show
        asked.append({"policy": policy, "task": task.name, "gl": gl, "seed": base_seed, "workers": workers})
        return [EpisodeVideo(Outcome(Episode(1, 0), True, 3, np.zeros(2)), flat_frames())]

    monkeypatch.setattr(video, "record_policy", record_policy)
    monkeypatch.setattr(video, "find_gl", lambda: "egl")
    return asked


def evaluate(*args: Any) -> int:
    return cli.main(["evaluate", *map(str, args), "--episodes", "1", "--workers", "1"])


@pytest.mark.usefixtures("in_process")
def test_video_of_a_run(
    run: Path, studio: list[dict[str, Any]], drawn: list[Figure], capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path.name for path in run.iterdir()}
    assert evaluate(run, "--video", "--seed", 4) == 0
    policy = run / "policies/step-20/seed-3.npz"  # the last step and the first seed
    assert studio == [{"policy": policy, "task": MINI, "gl": "egl", "seed": 4, "workers": 1}]
    assert {path.name for path in run.iterdir()} - before == {
        "eval.csv",
        "rollouts.npz",
        "rollouts.mp4",
        "trajectories.png",
        "evaluation",
    }
    assert len(decoded(run / "rollouts.mp4")) == 4 + 24
    output = capsys.readouterr().out
    assert f"written: {run}/trajectories.png\nwritten: {run}/rollouts.mp4\n" in output
    # The picture has what was recorded: one episode per seed, those of goal 4 successful.
    assert drawn[0].get_suptitle() == f"GTRL on {MINI}, seeds 3, 5 at step 20"
    assert drawn[0].axes[3].get_title() == "goal 4: reached in 2 of 2"
    recorded = np.load(run / "rollouts.npz")
    np.testing.assert_array_equal(
        drawn[0].axes[3].lines[0].get_xydata(), recorded["positions"][slice(*recorded["index"][3:5, 4])]
    )


@pytest.mark.usefixtures("in_process")
def test_video_of_a_policy_file(run: Path, studio: list[dict[str, Any]], drawn: list[Figure], tmp_path: Path) -> None:
    policy = run / "policies/step-10/seed-5.npz"
    beside = {path.name for path in policy.parent.iterdir()}
    assert evaluate(policy, "--video-file", tmp_path / "other" / "own.gif") == 0
    assert studio[0]["policy"] == policy
    assert {path.name for path in policy.parent.iterdir()} - beside == {"seed-5.trajectories.png"}
    with Image.open(tmp_path / "other" / "own.gif") as gif:
        assert gif.size == (64, 48)
    assert drawn[0].get_suptitle() == f"GTRL on {MINI}, seed 5 at step 10"
    (outcome,) = run_episodes(load_policy(policy), Job(str(policy), ogbench_task(MINI), (Episode(4, 0),), 0, record=1))
    np.testing.assert_array_equal(drawn[0].axes[3].lines[0].get_xydata(), np.asarray(outcome.path))


def test_video_errors_do_not_lose_the_evaluation(
    run: Path,
    studio: list[dict[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    other = linear_policy(tmp_path / "other.npz", np.zeros((4, 2)))
    assert evaluate(run, other, "--video-file", tmp_path / "one.gif") == 2
    assert f"one file, {tmp_path / 'one.gif'}, is named for 2 videos" in capsys.readouterr().err
    assert evaluate(run, "--video-file", tmp_path / "one.webm") == 2
    assert "one.webm is neither an .mp4 nor a .gif file." in capsys.readouterr().err

    def no_gl() -> str:
        raise VideoError("no OpenGL.")

    monkeypatch.setattr(video, "find_gl", no_gl)
    assert evaluate(run, "--video") == 2
    assert capsys.readouterr().err.endswith("gtrl: no OpenGL.\n")
    assert not studio
    assert not (run / "eval.csv").exists()


# --- OpenGL ---


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A machine without a screen where no backend works; removing an entry of the result makes it work."""
    for name in ("MUJOCO_GL", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    reasons = {"egl": "no EGL", "osmesa": "no OSMesa", "glfw": "no GLFW"}
    monkeypatch.setattr(cameras, "_failure", lambda gl: reasons.get(gl, ""))
    return reasons


def test_opengl_backend_choice(tried: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(VideoError, match=r"libegl1.*libosmesa6.*Tried: egl: no EGL; osmesa: no OSMesa\.$"):
        find_gl()
    monkeypatch.setenv("DISPLAY", ":0")
    with pytest.raises(VideoError, match=r"Tried: egl: no EGL; osmesa: no OSMesa; glfw: no GLFW\.$"):
        find_gl()
    for name in ("glfw", "osmesa", "egl"):
        del tried[name]
        assert find_gl() == name
    tried["osmesa"] = "no OSMesa"
    monkeypatch.setenv("MUJOCO_GL", "osmesa")  # the user's choice is respected
    with pytest.raises(
        VideoError, match=r"^MUJOCO_GL is 'osmesa', which does not work on this machine \(no OSMesa\)\."
    ):
        find_gl()
    monkeypatch.setenv("MUJOCO_GL", "egl")
    assert find_gl() == "egl"
    monkeypatch.delenv("MUJOCO_GL")
    monkeypatch.setattr(sys, "platform", "darwin")
    assert find_gl() == ""


def test_opengl_backends_are_probed_in_a_subprocess(monkeypatch: pytest.MonkeyPatch) -> None:
    before = dict(os.environ)
    assert cameras._failure("abacus") == "invalid value for environment variable MUJOCO_GL: abacus"
    assert dict(os.environ) == before

    def crash(*_: Any, **__: Any) -> Iterator[tuple[int, str]]:
        raise WorkerError("killed.")

    monkeypatch.setattr(cameras, "map_unordered", crash)
    assert cameras._failure("egl") == "it crashed"


@pytest.fixture(scope="module")
def gl() -> str:
    try:
        return find_gl()
    except VideoError as error:
        pytest.skip(f"no pictures can be rendered here: {error}")


SHOT = {"pointmaze-large-navigate": 1, "antmaze-large-navigate": 2, "cube-single-play": 2}  # and for which goal


@pytest.fixture(scope="module")
def shots(gl: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[EpisodeVideo, Job]]:
    """Of each kind an episode's first and last frame: allowed 125 times its length, there is none in between."""
    jobs = []
    for name, goal in SHOT.items():
        task = dataclasses.replace(ogbench_task(name), episode_length=125 * ogbench_task(name).episode_length)
        policy = random_policy(tmp_path_factory.mktemp("shots") / "policy.npz", task)
        jobs.append(Job(str(policy), task, (Episode(goal, 0),), 0, 0))
    films = dict(map_unordered(video._record_job, [(job, gl) for job in jobs], workers=1))
    return {name: (films[index], jobs[index]) for index, name in enumerate(SHOT)}


def cut(film: EpisodeVideo, index: int, sizes: Sequence[tuple[int, int]]) -> list[np.ndarray]:
    """Pictures of (width, height) side by side, out of a frame."""
    pixels, left, found = np.asarray(decompress(film.frames[index])).astype(int), GAP, []
    for width, height in sizes:
        found.append(pixels[HEADER + LABEL : HEADER + LABEL + height, left : left + width])
        left += width + GAP
    return found


def test_camera_view_of_a_maze(shots: dict[str, tuple[EpisodeVideo, Job]]) -> None:
    """From above, x to the right and y up; the agent is at its start and, in the picture next to it, on the goal."""
    film, job = shots["pointmaze-large-navigate"]
    assert len(film.frames) == 2
    size = (440, 320)  # 11 by 8 cells: half of the outer walls is left out
    (first, goal), (_, again) = (cut(film, index, [size, size]) for index in (0, 1))
    np.testing.assert_array_equal(goal, again)
    maze = make_environment(job.task).unwrapped

    def at(picture: np.ndarray, xy: Any) -> np.ndarray:
        """The pixels around a place on the floor: 10 for each unit, and (-4, -4) is the lower left corner."""
        column, row = round(10 * (xy[0] + 4)), round(320 - 10 * (xy[1] + 4))
        return picture[max(0, row - 7) : row + 8, max(0, column - 7) : column + 8]

    for cell in np.argwhere(maze.maze_map[1:-1, 1:-1] == 0) + 1:
        assert at(first, maze.ij_to_xy(cell)).mean() < 200
    for cell in np.argwhere(maze.maze_map[1:-1, 1:-1] == 1) + 1:
        assert at(first, maze.ij_to_xy(cell)).mean() > 230  # white
    gold = lambda picture, xy: (at(picture, xy)[..., 0] - at(picture, xy)[..., 2] > 60).any()  # noqa: E731
    start, end = plan_of("pointmaze-large-navigate").starts[0], plan_of("pointmaze-large-navigate").goals[0]
    assert gold(first, start)
    assert gold(goal, film.outcome.goal)
    assert not gold(goal, start)
    assert np.abs(film.outcome.goal - end).max() < 2


@pytest.mark.parametrize(
    ("name", "sizes"),
    [("antmaze-large-navigate", [(440, 440), (283, 206)]), ("cube-single-play", [(440, 440), (440, 440)])],
)
def test_camera_views_of_walkers_and_arms(
    name: str, sizes: list[tuple[int, int]], shots: dict[str, tuple[EpisodeVideo, Job]]
) -> None:
    film, job = shots[name]
    (evaluated,) = run_episodes(load_policy(job.policy), dataclasses.replace(job, task=ogbench_task(name)))
    assert (film.outcome.success, film.outcome.length) == (evaluated.success, evaluated.length)
    width = sum(width for width, _ in sizes) + 3 * GAP
    assert decompress(film.frames[0]).size[0] == width + width % 2
    for picture in cut(film, 0, sizes):
        assert picture.std() > 20  # not blank
    first, last = (cut(film, index, sizes) for index in (0, 1))
    assert np.abs(first[0] - last[0]).mean() > 1  # it moved


def test_video_from_start_to_end(gl: str, tmp_path: Path) -> None:
    task = short(length=3)
    policy = linear_policy(tmp_path / "policy.npz", TO_THE_GOAL)
    films = video.record_policy(policy, task, gl, base_seed=3, workers=1, show=False)
    job = Job(str(policy), task, tuple(Episode(goal, 0) for goal in range(1, 6)), 3, 0)
    evaluated = {o.episode: (o.success, o.length) for o in run_episodes(load_policy(policy), job)}
    assert [film.outcome.episode for film in films] == [Episode(goal, 0) for goal in range(1, 6)]
    assert {film.outcome.episode: (film.outcome.success, film.outcome.length) for film in films} == evaluated
    assert [len(film.frames) for film in films] == [4] * 5
