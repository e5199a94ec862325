"""Training of experts: many copies of a simulator on all cores, soft actor-critic on the device beside them.

The gradient steps run while the simulators take the next step. A run resumes exactly: its folder holds the state of
learner and simulators, and the replay buffer in files. Without those files, a run continues after the buffer has been
refilled, for example on another machine.
"""

import dataclasses
import json
import logging
from collections import deque
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gtrl import __version__, console
from gtrl.errors import ConfigError, Interrupted, RunError
from gtrl.experts import sac
from gtrl.experts.curves import curves_picture
from gtrl.experts.measure import Figures, measure
from gtrl.experts.replay_files import ReplayFiles
from gtrl.experts.sac import Layout, Learner, Transitions
from gtrl.experts.settings import MAZE_SHARE, SAC, Schedule, default_config, default_schedule
from gtrl.experts.simulation import Copies, Episode, Simulation
from gtrl.experts.skills import Skill, make_skill
from gtrl.io import mlp_file
from gtrl.io.atomic import read_json, remove_partial, write_text
from gtrl.io.jsonl import JsonLines
from gtrl.io.locks import locked
from gtrl.io.npz import read_npz
from gtrl.runs import checkpoints
from gtrl.runs.run import checkpoint_path
from gtrl.training.signals import Stop
from gtrl.workers import default_workers

log = logging.getLogger(__name__)
KEPT_CHECKPOINTS = 2
EXPERT_FILE = "expert.npz"
SHOWN_FIGURES = ("m per 100 steps in the direction", "ball within 0.5 m of its goal", "episodes with a fall")
# Settings that may change between two parts of a run.
CHANGEABLE = ("steps", "refill", "noise", *(field.name for field in dataclasses.fields(Schedule)))
RECENT_EPISODES = 100  # whose mean return and length are logged


class Checkpoint(NamedTuple):
    """Everything that a run needs to continue, without the replay buffer."""

    learner: Learner
    copies: Copies
    pending: Transitions  # steps that are not in the buffer yet
    added: np.ndarray  # the number of steps that have been added to the buffer
    updates_from: np.ndarray  # the number of added steps from which on there are updates
    recent: np.ndarray  # the last episodes that ended, one per row


class Trainer:
    """Trains an expert in a folder."""

    def __init__(
        self, skill: Skill, config: SAC, folder: Path, seed: int = 0, threads: int = 1, schedule: Schedule | None = None
    ) -> None:
        self.skill, self.config, self.folder, self.threads = skill, config, folder, threads
        self.schedule, self.seed = schedule or default_schedule(skill.name), seed
        self.simulation = Simulation(skill, threads, seed)
        symmetry = tuple(skill.vectors), tuple(skill.quaternions), skill.mirror()
        self.layout = Layout(skill.input_size, skill.model.nu, skill.reward_scale, *symmetry)
        self.checkpoints, self.files = folder / "checkpoints", ReplayFiles(folder / "replay")
        self.recent: deque[Episode] = deque(maxlen=RECENT_EPISODES)

    # --- the state ---

    def begin(self) -> None:
        """Starts from nothing."""
        self.step, self.added, self.updates_from = 0, 0, self.config.warmup
        self.learner = sac.init_learner(jax.random.key(self.seed), self.config, self.layout)
        self.replay = sac.init_replay(self.config, self.layout)
        self.copies = self.simulation.begin(self.config.copies)
        self.pending = self._simulate(*self._actions(0))

    def resume(self) -> bool:
        """Continues from the newest checkpoint that can be read; returns whether there is one."""
        like = jax.eval_shape(lambda: sac.init_learner(jax.random.key(0), self.config, self.layout))
        for step in reversed(checkpoints.steps(self.checkpoints)):
            try:
                self.learner = checkpoints.restore(self.checkpoints, step, like, "learner")
                arrays = read_npz(checkpoint_path(self.checkpoints, step), RunError)
            except checkpoints.DamagedError as error:
                log.warning("%s", error)
                continue
            self.step = step
            self.copies = Copies(*(arrays[f".copies.{name}"] for name in Copies._fields))
            self.pending = Transitions(*(arrays[f".pending.{name}"] for name in Transitions._fields))
            self.added, self.updates_from = int(arrays[".added"]), int(arrays[".updates_from"])
            self.recent.extend(Episode(int(row[0]), float(row[1]), bool(row[2])) for row in arrays[".recent"])
            self._refill()
            return True
        return False

    def _refill(self) -> None:
        """Reads the replay buffer; without its files, new steps must fill it before the next update."""
        self.replay = sac.init_replay(self.config, self.layout)
        before = self.step - self.config.copies  # the pending steps are the last ones
        rows = min(self.added, len(self.replay.steps.rewards))
        try:
            steps = self.files.read(before, rows)
        except RunError as error:
            log.warning("%s", error)
            steps = None
        if steps is not None:
            start = jnp.int32(self.added - rows)
            self.replay = sac.add(self.replay._replace(added=start), jax.tree.map(jnp.asarray, steps))
        elif rows:
            self.added, self.updates_from = 0, self.config.refill
            text = f"{self.config.refill:,} new steps will fill it before the next update"
            log.warning("%s has no replay buffer of step %s: %s.", self.files.folder, f"{self.step:,}", text)
        self.files.remove(before=0, after=before)

    def save(self) -> None:
        """Writes a checkpoint, and before it the steps that have joined the buffer since the last one."""
        before = self.step - self.config.copies
        self.files.write(before)
        counts = np.array(self.added), np.array(self.updates_from)
        state = Checkpoint(self.learner, self.copies, self.pending, *counts, np.array(self.recent).reshape(-1, 3))
        checkpoints.save(self.checkpoints, self.step, state)
        steps = checkpoints.steps(self.checkpoints)
        for old in steps[:-KEPT_CHECKPOINTS]:
            checkpoint_path(self.checkpoints, old).unlink(missing_ok=True)
        self.files.remove(before=steps[-KEPT_CHECKPOINTS:][0] - self.config.copies - self.config.replay, after=before)

    # --- the loop ---

    def advance(self) -> dict[str, Any]:
        """Adds the pending steps to the buffer, learns, and meanwhile takes a step in all simulators."""
        actions = self._actions(self.step // self.config.copies)
        self.files.append(self.pending)
        self.added += self.config.copies
        if self.added < self.updates_from:
            self.learner, self.replay = sac.add_only(self.learner, self.replay, self.pending, self.config, self.layout)
            metrics = {}
        else:
            self.learner, self.replay, metrics = sac.advance(
                self.learner, self.replay, self.pending, self.config, self.layout
            )
        self.pending = self._simulate(*actions)
        return metrics

    def _actions(self, number: int) -> tuple[Any, Any]:
        """Returns the policy's actions, and those that are taken."""
        inputs = self.simulation.inputs(self.copies)
        return sac.explore(self.learner, inputs, jnp.uint32(number), self.config.noise)

    def _simulate(self, actions: Any, taken: Any) -> Transitions:
        self.copies, step, episodes = self.simulation.step(self.copies, np.asarray(taken))
        self.step += self.config.copies
        self.recent.extend(episodes)
        return Transitions(*(np.asarray(column, np.float32) for column in step._replace(actions=np.asarray(actions))))

    def is_due(self, every: int) -> bool:
        """Returns whether the last step of all copies has reached a multiple of `every`."""
        return self.step // every > (self.step - self.config.copies) // every

    def progress(self, metrics: dict[str, Any]) -> dict[str, float]:
        """Returns the metrics, and the means of the last episodes."""
        rows = {name: float(value) for name, value in jax.device_get(metrics).items()}
        if self.recent:
            lengths, totals, falls = zip(*self.recent, strict=True)
            means = {"return": np.mean(totals), "length": np.mean(lengths), "falls": np.mean(falls)}
            rows |= {f"episode_{name}": float(mean) for name, mean in means.items()}
        for name, value in rows.items():
            if not np.isfinite(value):
                raise RunError(
                    f"the training in {self.folder} stopped at step {self.step:,}, where {name} is {value}; "
                    "another --seed or a smaller --lr may help, with another --out."
                )
        return rows

    def save_expert(self) -> None:
        """Writes the current policy as an expert file, under its step and as the newest."""
        for path in (self.folder / "experts" / f"step-{self.step}.npz", self.folder / EXPERT_FILE):
            mlp_file.write(path, *self.expert())

    def expert(self) -> tuple[mlp_file.Arrays, mlp_file.Header]:
        """Returns the arrays and the header of the expert's file."""
        arrays, header = sac.export(self.learner, self.layout.actions)
        training = {"seed": self.seed, **dataclasses.asdict(self.config)}
        facts = {"skill": self.skill.name, "frame": self.config.frame, "step": self.step}
        return arrays, header | facts | {"version": __version__, "training": training}

    def evaluate(self) -> Figures:
        """Returns the figures of the current policy's mean actions, one episode in each of 20 directions."""
        return measure(
            self.skill,
            lambda inputs: sac.mean_action(self.learner, inputs),
            threads=self.threads,
        )


def thread_count(threads: int | None) -> int:
    """Returns the number of threads that simulate: as given, by default one per core."""
    if threads is not None and threads < 1:
        raise ConfigError(f"threads is {threads} and must be at least 1.")
    return threads or default_workers()


def train_expert(
    skill: str,
    out: str | Path,
    config: SAC | None = None,
    *,
    seed: int = 0,
    threads: int | None = None,
    schedule: Schedule | None = None,
    show: bool = True,
) -> Path:
    """Trains an expert, or continues the training in a folder, and returns the file of the expert.

    Args:
        skill: "ant", "humanoid" or "dribble".
        out: The folder of the run.
        config: The hyperparameters; by default those of the skill.
        seed: The random seed. The same seed gives the same expert on the same machine, with any number of threads.
        threads: The number of threads that simulate; by default one per core.
        schedule: When to log, save and evaluate; by default that of the skill.
        show: Whether to show a progress bar.

    Raises:
        Interrupted: If a signal stopped the training; a checkpoint has been written.
    """
    out, threads = Path(out).expanduser(), thread_count(threads)
    config, schedule = config or default_config(skill), schedule or default_schedule(skill)
    body = make_skill(skill, config.frame, config.maze_share)
    out.mkdir(parents=True, exist_ok=True)
    with locked(out / "lock", f"training in {out}"):
        remove_partial(out)
        settings = {"skill": skill, "seed": seed, **dataclasses.asdict(config), **dataclasses.asdict(schedule)}
        _check_same(out, settings)
        trainer = Trainer(body, config, out, seed, threads, schedule)
        if not trainer.resume():
            trainer.begin()
        if trainer.step >= config.steps + config.copies:  # it ends with the step of all copies that reaches `steps`
            raise ConfigError(f"{out} holds a run of {trainer.step:,} steps already; give at least as many --steps.")
        write_text(out / "config.json", json.dumps({**settings, "version": __version__}, indent=2) + "\n")
        _run(trainer, show)
    return out / EXPERT_FILE


def _check_same(out: Path, settings: dict[str, Any]) -> None:
    """Raises `ConfigError` if the folder holds a run that has learned with other settings."""
    found, settings = read_json(out / "config.json"), json.loads(json.dumps(settings))
    if found:
        found = {"frame": "world", "maze_share": MAZE_SHARE, **found}  # a run from before there were these settings
    fixed = [key for key in settings if key not in CHANGEABLE] if found else []
    differing = [f"{key} {found.get(key)}" for key in fixed if found.get(key) != settings[key]]
    if differing:
        raise ConfigError(f"{out} holds a run with {' and '.join(differing)}; use these settings or another --out.")


def _run(trainer: Trainer, show: bool) -> None:
    """Trains until the last step, with files of metrics and evaluations that do not depend on interruptions."""
    schedule, total, start = trainer.schedule, trainer.config.steps, trainer.step
    names = ("metrics.jsonl", "eval.jsonl")
    metrics_file, eval_file = files = [
        JsonLines(trainer.folder / name, keep=lambda step: step <= start) for name in names
    ]
    description = f"expert: {trainer.skill.name}"
    with ExitStack() as stack:
        for file in files:
            stack.enter_context(closing(file))
        signals = stack.enter_context(Stop())
        bar = stack.enter_context(console.bar(description, total, "steps", show, min(start, total)))
        while trainer.step < total and not signals.received:
            metrics = trainer.advance()
            bar(trainer.config.copies)
            log_due, save_due = trainer.is_due(schedule.log_every), trainer.is_due(schedule.checkpoint_every)
            evaluation_due = trainer.is_due(schedule.evaluate_every) or trainer.step >= total
            row = trainer.progress(metrics) if log_due or save_due or evaluation_due else {}
            if log_due:
                metrics_file.write({"step": trainer.step, **row})
            if evaluation_due:
                bar(0, "evaluating")
                figures = trainer.evaluate()
                eval_file.write({"step": trainer.step, **figures})
                trainer.save_expert()
                curves_picture(trainer.folder)
                log.info("step %s: %s", f"{trainer.step:,}", _shown(figures))
            if save_due:
                trainer.save()
        trainer.save()
        for file in files:
            file.sync()
    if signals.received:
        raise Interrupted(f"the same command continues from step {trainer.step:,}", signals.received)


def _shown(figures: Figures) -> str:
    """Returns the main figures of an evaluation in one line."""
    shown = [(name, figures.get(name)) for name in ("return", *SHOWN_FIGURES)]
    return ", ".join(f"{name} {value:.3g}" for name, value in shown if value is not None)
