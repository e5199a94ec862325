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
from gtrl.experts.sac import SAC, Layout, Learner, Transitions
from gtrl.experts.simulation import Copies, Episode, Simulation
from gtrl.experts.skills import Skill, make_skill
from gtrl.fields import COUNT, check_fields, checked
from gtrl.io import mlp_file
from gtrl.io.atomic import read_json, write_text
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
RECENT_EPISODES = 100  # whose mean return and length are logged
EVALUATION_SEED = 1_000_000  # far from the seeds of training


@dataclasses.dataclass(frozen=True)
class Schedule:
    """When a run logs, saves and evaluates, in steps of the simulator."""

    log_every: int = checked(5_000, COUNT)
    checkpoint_every: int = checked(50_000, COUNT)
    evaluate_every: int = checked(50_000, COUNT)

    def __post_init__(self) -> None:
        check_fields(self)


EVERY = Schedule()


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
        self, skill: Skill, config: SAC, folder: Path, seed: int = 0, threads: int = 1, schedule: Schedule = EVERY
    ) -> None:
        self.skill, self.config, self.folder, self.threads = skill, config, folder, threads
        self.schedule, self.seed = schedule, seed
        self.simulation = Simulation(skill, threads, seed)
        inputs = len(self.simulation.inputs(self.simulation.begin(1))[0])
        self.layout = Layout(inputs, skill.model.nu, skill.reward_scale, tuple(skill.vectors), tuple(skill.quaternions))
        self.checkpoints, self.files = folder / "checkpoints", ReplayFiles(folder / "replay")
        self.recent: deque[Episode] = deque(maxlen=RECENT_EPISODES)

    # --- the state ---

    def begin(self) -> None:
        """Starts from nothing."""
        self.step, self.added, self.updates_from = 0, 0, self.config.warmup
        self.learner = sac.init_learner(jax.random.key(self.seed), self.config, self.layout)
        self.replay = sac.init_replay(self.config, self.layout)
        self.copies = self.simulation.begin(self.config.copies)
        self.pending = self._simulate(sac.explore(self.learner, self.simulation.inputs(self.copies), jnp.uint32(0)))

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
        steps = self.files.read(before, rows)
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
        number = jnp.uint32(self.step // self.config.copies)
        actions = sac.explore(self.learner, self.simulation.inputs(self.copies), number)
        self.files.append(self.pending)
        self.added += self.config.copies
        if self.added < self.updates_from:
            self.learner, self.replay = sac.gather(self.learner, self.replay, self.pending)
            metrics = {}
        else:
            self.learner, self.replay, metrics = sac.advance(
                self.learner, self.replay, self.pending, self.config, self.layout
            )
        self.pending = self._simulate(actions)
        return metrics

    def _simulate(self, actions: Any) -> Transitions:
        self.copies, taken, episodes = self.simulation.step(self.copies, np.asarray(actions))
        self.step += self.config.copies
        self.recent.extend(episodes)
        return Transitions(*(np.asarray(column, np.float32) for column in taken))

    def passed(self, every: int) -> bool:
        """Returns whether the last step of all copies has reached a multiple of `every`."""
        return self.step // every > (self.step - self.config.copies) // every

    def progress(self, metrics: dict[str, Any]) -> dict[str, float]:
        """Returns the metrics, and the means of the last episodes."""
        rows = {name: float(value) for name, value in jax.device_get(metrics).items()}
        if self.recent:
            lengths, totals, falls = zip(*self.recent, strict=True)
            means = {"return": np.mean(totals), "length": np.mean(lengths), "falls": np.mean(falls)}
            rows |= {name: float(mean) for name, mean in means.items()}
        return rows

    def save_expert(self) -> None:
        """Writes the current policy as an expert file, under its step and as the newest."""
        for path in (self.folder / "experts" / f"step-{self.step}.npz", self.folder / EXPERT_FILE):
            mlp_file.write(path, *self.expert())

    def expert(self) -> tuple[mlp_file.Arrays, mlp_file.Header]:
        """Returns the arrays and the header of the expert's file."""
        arrays, header = sac.export(self.learner, self.layout.actions)
        training = {"seed": self.seed, **dataclasses.asdict(self.config)}
        facts = {"skill": self.skill.name, "step": self.step, "version": __version__, "training": training}
        return arrays, header | facts

    def evaluate(self) -> Figures:
        """Returns the figures of the current policy's mean actions, one episode in each of 20 directions."""
        return measure(
            self.skill,
            lambda inputs: sac.mean_action(self.learner, inputs),
            threads=self.threads,
            seed=EVALUATION_SEED,
        )


DEFAULTS = {  # settings for each skill that differ from those of `SAC`
    "ant": {},
    "dribble": {"steps": 12_000_000, "copies": 64, "hidden": (512, 512)},
    "humanoid": {"steps": 40_000_000, "copies": 128, "hidden": (512, 512)},
}


def default_config(skill: str, **settings: Any) -> SAC:
    """Returns the hyperparameters of a skill, with some of them changed."""
    return SAC(**{**DEFAULTS[skill], **settings})


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
    schedule: Schedule = EVERY,
    show: bool = True,
) -> Path:
    """Trains an expert, or continues the training in a folder, and returns the file of the expert.

    Args:
        skill: "ant", "humanoid" or "dribble".
        out: The folder of the run.
        config: The hyperparameters; by default those of the skill.
        seed: The random seed. The same seed gives the same expert on the same machine, with any number of threads.
        threads: The number of threads that simulate; by default one per core.
        schedule: When to log, save and evaluate.
        show: Whether to show a progress bar.

    Raises:
        Interrupted: If a signal stopped the training; a checkpoint has been written.
    """
    out, threads = Path(out).expanduser(), thread_count(threads)
    body = make_skill(skill)
    config = config or default_config(skill)
    out.mkdir(parents=True, exist_ok=True)
    with locked(out / "lock", f"training in {out}"):
        _check_same(out, {"skill": skill, "seed": seed, **dataclasses.asdict(config), **dataclasses.asdict(schedule)})
        trainer = Trainer(body, config, out, seed, threads, schedule)
        if not trainer.resume():
            trainer.begin()
        _run(trainer, show)
    return out / EXPERT_FILE


def _check_same(out: Path, settings: dict[str, Any]) -> None:
    """Writes the settings of a new run; raises `ConfigError` if the folder holds a run with others.

    The number of steps may differ: a run may be made longer.
    """
    path = out / "config.json"
    settings = json.loads(json.dumps(settings))
    if path.exists():
        found = read_json(path)
        fixed = [key for key in settings if key != "steps"]
        differing = [f"{key} {found.get(key)}" for key in fixed if found.get(key) != settings[key]]
        if differing:
            raise ConfigError(f"{out} holds a run with {' and '.join(differing)}; use these settings or another --out.")
    write_text(path, json.dumps({**settings, "version": __version__}, indent=2) + "\n")


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
            if trainer.passed(schedule.log_every):
                metrics_file.write({"step": trainer.step, **trainer.progress(metrics)})
            if trainer.passed(schedule.evaluate_every) or trainer.step >= total:
                bar(0, "evaluating")
                eval_file.write({"step": trainer.step, **trainer.evaluate()})
                trainer.save_expert()
            if trainer.passed(schedule.checkpoint_every):
                trainer.save()
        trainer.save()
        for file in files:
            file.sync()
    curves_picture(trainer.folder)
    if signals.received:
        raise Interrupted(f"the same command continues from step {trainer.step:,}", signals.received)
