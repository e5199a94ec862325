"""`gtrl train`: trains a method or resumes a run.

The defaults of most flags depend on the method, the task and the run to resume, so these are parsed first.
"""

import argparse
import dataclasses
import shlex
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_type_hints

import tyro
from tyro.conf import DisallowNone, OmitArgPrefixes

from gtrl import console
from gtrl.cli.flags import flag_name, parse, whole_number
from gtrl.cli.outputs import check_output_folder
from gtrl.errors import ConfigError, DataError, RunError
from gtrl.registry import load_plugins
from gtrl.runs.run import Run, scaling_of
from gtrl.tasks import SEEDS, Task, changed_task, find_task, ogbench_task, recorded_own_task

START_TIME = time.perf_counter()  # about when the command was started


@dataclasses.dataclass(frozen=True)
class Flags:
    """What to train on, where to write the run, and what to do in addition to training."""

    preset: str | None = None  # named settings of the method, such as gtrl's 'authors'; other flags override them
    task: str | None = None  # one of 'gtrl tasks', or my_module:TASK; not needed if --data is a file of your own
    # a dataset file, a folder of shards, or a log in another format; by default the task's file in OGBench's cache
    data: str | None = None
    seeds: tuple[int, ...] = SEEDS  # random seeds, all trained at the same time; by default one for own data
    out: Path | None = None  # the run directory; by default runs/<task>/<algorithm>/<time>
    resume: bool = False  # resume the run in --out from its newest valid checkpoint; its config gives the defaults
    accept_changes: bool = False  # with --resume: resume even if the config, the data or a version has changed
    env: str | None = None  # an environment of your own to evaluate in: my_package:MyEnv-v0, or my_module:factory
    goals: Path | None = None  # with --env: the goals to evaluate, a CSV, npy or npz file with one row per goal
    observation: tuple[str, ...] | None = None  # which columns of the data are the observation: NAME, NAME[0:3] or 0:3
    goal: tuple[str, ...] | None = None  # which columns are the goal; a slice is one of the observation
    action: tuple[str, ...] | None = None  # which columns are the action
    episode: str | None = None  # for tables: the column that numbers the episodes
    scale: DisallowNone[bool | None] = None  # standardise the data; by default all but that of the built-in tasks
    action_low: tuple[float, ...] | None = None  # lowest action, one number or one per column; by default it is found
    action_high: tuple[float, ...] | None = None  # highest action
    eval_during: bool = False  # evaluate policies in the background while training continues
    eval_episodes: int | None = None  # with --eval-during: episodes per goal; by default those of 'gtrl evaluate'
    eval_workers: int | None = None  # with --eval-during: number of processes; by default all cores but one
    callbacks: tuple[str, ...] = ()  # additional callbacks: my_module:MyCallback, or the name of a registered one
    wandb: str | None = None  # also log to this Weights & Biases project
    # with --wandb: upload during training, store the log for a later upload, or log nothing
    wandb_mode: Literal["online", "offline", "disabled"] = "online"


class Defaults(NamedTuple):
    """The values of all flags that the command line does not set.

    `training` and `algorithm` are instances of `Training` and of the method's dataclass.
    """

    flags: Flags
    training: Any
    algorithm: Any


def train_command(args: Sequence[str]) -> None:
    """Train a method on a dataset, or resume a run.

    Usage: `gtrl train METHOD --task TASK [--data FILE] [flags]`, `gtrl train METHOD --data FILE [--env ENV] [flags]` or
    `gtrl train --resume --out RUN [flags]`.
    """
    if not args or args[0] in ("-h", "--help"):
        print_usage()
        return
    method, args = (None, args) if args[0].startswith("-") else (args[0], args[1:])
    early = parse_early_flags(args)
    saved = saved_config(early.out) if early.resume and early.out else None
    defaults = defaults_for(method, early, saved)
    flags, training, fields = parse_flags(defaults, args)
    task = task_of(flags, saved)
    check_flags(flags)
    from gtrl.training.sizes import is_own

    loaded = [load_data(flags, task, saved)]  # a list, so that this frame does not keep the first shard in memory
    if saved is None and is_own(task):  # the defaults depend on the data
        steps = whole_number(early.steps) if early.steps else None
        own = defaults_for_own_data(defaults, loaded[0], task, flags.preset, steps)
        flags, training, fields = parse_flags(own, args)
    run = run_training(flags, training, type(defaults.algorithm), fields, loaded)
    console.echo(f"trained: {run.path}")
    if task and task.environment:
        console.echo(f"next: {shlex.join(['gtrl', 'evaluate', str(run.path)])}")


def print_usage() -> None:
    """Prints the help text of `gtrl train` without a method."""
    from gtrl.algorithms import ALGORITHMS

    print("usage: gtrl train METHOD --task TASK [--data FILE] [flags]")
    print("       gtrl train METHOD --data FILE [--env ENV [--goals FILE]] [flags]")
    print("       gtrl train --resume --out RUN [flags]\n")
    print(f"METHOD is one of {', '.join(ALGORITHMS)}; or my_module:MyMethod.")
    print("Run 'gtrl train METHOD --help' for the flags of a method.")


def parse_early_flags(args: Sequence[str]) -> argparse.Namespace:
    """Parses --preset, --task, --steps, --out and --resume, on which the defaults of other flags depend."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--preset", nargs="?")
    parser.add_argument("--task", nargs="?")
    parser.add_argument("--steps", nargs="?")
    parser.add_argument("--out", nargs="?", type=Path)
    parser.add_argument("--resume", action=argparse.BooleanOptionalAction, default=False)
    return parser.parse_known_args(args)[0]


def saved_config(out: Path) -> dict[str, Any] | None:
    """Returns the config of the run in `out` and imports its plugins; None if there is no run yet."""
    run = Run(out.expanduser())
    if not run.exists:
        return None
    load_plugins(run.plugins)
    return run.config


def defaults_for(method: str | None, early: argparse.Namespace, saved: dict[str, Any] | None) -> Defaults:
    """Returns the defaults: from the run to resume if it is of the same method, else from the method and the task."""
    from gtrl.algorithms import ALGORITHMS, find_algorithm, make, preset_fields
    from gtrl.training.config import Training

    if early.resume and not early.out:
        raise ConfigError("--resume needs --out, the run to resume.")
    if method is None and saved is None:
        if early.resume:
            raise RunError(f"{early.out} holds no run to resume; to start one, name a method: gtrl train METHOD ...")
        known = ", ".join(ALGORITHMS)
        raise ConfigError(f"name a method first: gtrl train METHOD ..., where METHOD is one of {known}.")
    kind = find_algorithm(saved["algorithm"]["name"] if method is None and saved else str(method))
    if saved is None or saved["algorithm"]["name"] != kind.name:
        task = find_task(early.task) if early.task else None
        return Defaults(Flags(), Training(), make(kind.name, task, preset=early.preset))
    flags = _saved_flags(saved)
    fields = {name: value for name, value in saved["algorithm"].items() if name != "name"}
    fields |= preset_fields(kind, early.preset)
    return Defaults(flags, _restored(Training, saved["training"], early.out), _restored(kind, fields, early.out))


def _saved_flags(saved: dict[str, Any]) -> Flags:
    """The flags of the run to resume. Its scaling is in its config, so bounds of actions need not be known."""
    recorded = saved["data"]
    selection: dict[str, Any] = {role: tuple(chosen) for role, chosen in recorded.get("selection", {}).items()}
    if "episode" in selection:
        (selection["episode"],) = selection["episode"]
    task = None if recorded_own_task(saved) else saved["task"]
    return Flags(task=task, data=recorded["source"], seeds=tuple(saved["seeds"]), **selection)


def defaults_for_own_data(
    defaults: Defaults, data: Any, task: Task | None, preset: str | None, steps: int | None
) -> Defaults:
    """Returns defaults that suit the amount of data, the device and, if given, the number of steps."""
    import jax

    from gtrl.training.config import configure
    from gtrl.training.sizes import own_defaults
    from gtrl.training.train import default_seeds

    own = own_defaults(data, jax.default_backend(), steps)
    algorithm, training = configure(type(defaults.algorithm), None, task, data.train.spec, {"preset": preset}, own)
    return Defaults(dataclasses.replace(defaults.flags, seeds=default_seeds(task)), training, algorithm)


def _restored(kind: Any, saved: dict[str, Any], run: Path) -> Any:
    """Creates a dataclass from its fields in `config.json`."""
    unknown = sorted(saved.keys() - {field.name for field in dataclasses.fields(kind)})
    if unknown:
        raise RunError(f"{run} was made by another version: {kind.__name__} has no field '{unknown[0]}' here.")
    return kind(**saved)


def parse_flags(defaults: Defaults, args: Sequence[str]) -> tuple[Flags, Any, dict[str, Any]]:
    """Parses the command line on top of the defaults; returns the flags, the `Training` and the method's fields."""
    kind, training_kind = type(defaults.algorithm), type(defaults.training)
    taken = [field.name for group in (Flags, training_kind) for field in dataclasses.fields(group)]
    method_kind = _with_prefixes(kind, taken)
    groups = {
        "run": defaults.flags,
        "training": defaults.training,
        "method": method_kind(**_fields_of(defaults.algorithm)),
    }
    train: Any = dataclasses.make_dataclass(
        "Train",
        [(name, OmitArgPrefixes[type(group)], dataclasses.field(default=group)) for name, group in groups.items()],
        frozen=True,
    )
    method_fields = [f"method.{field}" if field in taken else field for field in _fields_of(defaults.algorithm)]
    description = (kind.__doc__ or "").strip()
    parsed = parse(train, args, f"gtrl train {kind.name}", description, [*taken, *method_fields])
    return parsed.run, parsed.training, _fields_of(parsed.method)


def _fields_of(instance: Any) -> dict[str, Any]:
    return {field.name: getattr(instance, field.name) for field in dataclasses.fields(instance) if field.init}


def _with_prefixes(kind: type, taken: Iterable[str]) -> Any:
    """Returns the method's dataclass, with the prefix `method.` for flags whose names are taken."""
    hints = get_type_hints(kind, include_extras=True)
    clashing = [
        (field.name, Annotated[hints[field.name], tyro.conf.arg(name=f"method.{flag_name(field.name)[2:]}")], field)
        for field in dataclasses.fields(kind)
        if field.name in taken
    ]
    if not clashing:
        return kind
    # It keeps the name, by which tyro finds the source and the comments next to the fields: they are the help texts.
    namespace = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
    return dataclasses.make_dataclass(kind.__name__, clashing, bases=(kind,), frozen=True, namespace=namespace)


def check_flags(flags: Flags) -> None:
    """Rejects flags that contradict each other, and outputs that cannot be written, before anything is loaded."""
    if flags.task and (flags.env or flags.goals):
        raise ConfigError("--task has an environment and goals of its own: give --task, or --env and --goals.")
    if flags.eval_during and flags.eval_episodes is not None and flags.eval_episodes < 1:
        raise ConfigError(f"--eval-episodes is {flags.eval_episodes} and must be at least 1.")
    if (flags.action_low is None) != (flags.action_high is None):
        raise ConfigError("give both --action-low and --action-high, or neither.")
    check_output_folder(flags.out or Path("runs"))


def task_of(flags: Flags, saved: dict[str, Any] | None) -> Task | None:
    """Returns the task: the named one, that of an environment of the user's own, or that of the run to resume."""
    if flags.task:
        return find_task(flags.task)
    recorded = recorded_own_task(saved) if saved else None
    if flags.env is None and flags.goals is None:
        return recorded
    return changed_task(recorded, flags.env, flags.goals)


def load_data(flags: Flags, task: Task | None, saved: dict[str, Any] | None) -> Any:
    """Loads the data that the flags describe, with the scaling of the run to resume."""
    from gtrl.data.load import load_dataset

    if saved is not None and flags.data == "memory" and not Path("memory").exists():
        raise DataError("this run was trained on data in memory: give it with --data FILE, or resume it in Python.")
    scale: Any = flags.scale
    if scale is None and flags.action_low is None and saved is not None:
        scale = scaling_of(saved) or False
    bounds = None if flags.action_low is None or flags.action_high is None else (flags.action_low, flags.action_high)
    return load_dataset(
        data_path(flags.data, task), task, observation=flags.observation, goal=flags.goal, action=flags.action,
        episode=flags.episode, scale=scale, action_bounds=bounds,
    )  # fmt: skip


def run_training(flags: Flags, training: Any, kind: Any, fields: dict[str, Any], loaded: list[Any]) -> Run:
    """Trains, or resumes, the run that the flags describe, on the data that is taken from the list `loaded`."""
    from gtrl.training.train import train

    return train(
        kind, loaded.pop(), out=flags.out, seeds=flags.seeds, training=training, callbacks=callbacks_for(flags),
        resume=flags.resume, accept_changes=flags.accept_changes, handle_signals=True, **fields,
    )  # fmt: skip


def data_path(given: str | None, task: Task | None) -> str | Path:
    """Returns the dataset to train on: --data if given, else the task's file in OGBench's cache."""
    from gtrl.data.sources.get import cached_file

    if given:
        return given
    if task is None:
        raise DataError("there is nothing to train on: give --task TASK, --data FILE, or both.")
    path = cached_file(ogbench_task(task))
    if not path.exists():
        command = shlex.join(["gtrl", "data", "get", task.name])
        raise DataError(f"there is no data for {task.name} at {path}: give --data FILE, or get it with '{command}'.")
    return path


def callbacks_for(flags: Flags) -> list[Any]:
    """Returns the callbacks that the flags ask for."""
    from gtrl.training.callbacks import Timing, WandB
    from gtrl.training.session import CALLBACKS

    callbacks: list[Any] = [Timing(START_TIME), *(CALLBACKS.find(name)() for name in flags.callbacks)]
    if flags.eval_during:
        from gtrl.evaluation.during import EvaluateDuring

        callbacks.append(EvaluateDuring(flags.eval_episodes, workers=flags.eval_workers))
    if flags.wandb:
        callbacks.append(WandB(flags.wandb, mode=flags.wandb_mode))
    return callbacks
