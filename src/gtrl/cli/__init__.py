"""The command line. Each command is a function whose typed arguments are its flags; JAX loads when one needs it."""

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import tyro
from tyro.conf import OmitArgPrefixes, Positional

from gtrl import console
from gtrl.errors import ConfigError, DataError, GtrlError, RunError, UnknownNameError
from gtrl.nn.speed import Optimisation
from gtrl.tasks import EPISODES_PER_GOAL, TASKS, find_task, ogbench_task

BEGAN = time.perf_counter()


def tasks_command(*, json: bool = False) -> None:
    """The nineteen tasks of the paper, with their hyperparameters.

    Args:
        json: Print a list of objects instead of a table.
    """
    rows = [task.to_json() for task in TASKS.values()]
    if json:
        print_json(rows)
        return
    shown = {
        "task": "name", "group": "group", "transitions": "transitions", "trajectories": "trajectories",
        "length": "trajectory_length", "obs": "observation_dim", "goal": "goal_dim", "act": "action_dim",
        "episode": "episode_length", "λ": "lambda", "α": "alpha", "γ": "gamma", "actor goals": "actor_goals",
    }  # fmt: skip
    cells = [[_cell(row[key]) for key in shown.values()] for row in rows]
    title = "value goals are (0, 0.5, 0.5) on every task: (current, trajectory, random)"
    console.print_wide(console.table(title, list(shown), cells, text=2))


def algorithms_command(*, json: bool = False) -> None:
    """The methods, their families and their fields.

    Args:
        json: Print a list of objects, fields and defaults included, instead of a table.
    """
    from gtrl.algorithms import ALGORITHMS

    kinds = [kind for _, kind in ALGORITHMS.items()]
    if json:
        print_json(
            {
                "name": kind.name,
                "family": kind.family,
                "fields": {field.name.rstrip("_"): field.default for field in dataclasses.fields(kind)},
                "reconstruction": kind.reconstruction,
                "reference": kind.reference,
            }
            for kind in kinds
        )
        return
    rows = [
        [kind.name, kind.family, kind.idea + " (reconstruction)" * kind.reconstruction, kind.reference]
        for kind in kinds
    ]
    console.print_wide(console.table("", ["method", "family", "idea", "reference"], rows, text=4))


def get_command(
    task: Positional[str],
    *,
    folder: Path | None = None,
    mirror: str | None = None,
    workers: int | None = None,
    seed: int = 0,
    expert: Path | None = None,
    dribble_expert: Path | None = None,
) -> None:
    """A task's dataset, from wherever it can be had: the cache, a download, or collected here.

    Args:
        task: One of 'gtrl tasks'.
        folder: Where data is kept; by default OGBench's cache, ~/.ogbench/data.
        mirror: An address to try after OGBench's own; by default what GTRL_MIRROR names. Files lie right under it.
        workers: Processes for collecting; by default one for each core.
        seed: Decides collected data, to the last bit.
        expert: For collecting ant, humanoid and soccer data: an expert policy that walks.
        dribble_expert: For collecting soccer data: an expert policy that dribbles.
    """
    from gtrl.data.collect.expert import Experts
    from gtrl.data.sources.get import get_dataset

    experts = Experts(expert, dribble_expert)
    get_dataset(task, folder, mirror=mirror, workers=workers, seed=seed, experts=experts)


def collect_command(
    task: Positional[str],
    *,
    episodes: int | None = None,
    shards: int = 1,
    workers: int | None = None,
    seed: int = 0,
    out: Path | None = None,
    expert: Path | None = None,
    dribble_expert: Path | None = None,
) -> None:
    """Collect a dataset by OGBench's protocol: a training file and, beside it, a validation file.

    Ctrl-C stops it; the same command goes on where it stopped.

    Args:
        task: One of 'gtrl tasks'; ant, humanoid and soccer tasks need an expert policy.
        episodes: Training episodes; by default as many as the task's public dataset has.
        shards: Files to divide them into, for data that is larger than memory; --out is a folder then.
        workers: Processes; by default one for each core. The data does not depend on it.
        seed: Decides the data, to the last bit.
        out: The file to write; by default in OGBench's cache folder, or, with --episodes, in collected/.
        expert: For ant, humanoid and soccer: an expert policy that walks (docs/formats.md has the layout).
        dribble_expert: For soccer: an expert policy that dribbles.
    """
    from gtrl.data.collect.expert import Experts
    from gtrl.data.collect.files import collect
    from gtrl.data.sources.get import cached_file

    chosen = ogbench_task(task)
    # OGBench must not take a part for its own dataset: only a full one goes into its cache folder by default.
    count = chosen.trajectories if episodes is None else episodes
    kind = f"{count}-episodes" + (f"-seed-{seed}" if seed else "")
    part = Path("collected", kind, chosen.dataset if shards > 1 else f"{chosen.dataset}.npz")
    where = out or (cached_file(chosen) if episodes is None and shards == 1 else part)
    experts = Experts(expert, dribble_expert)
    path = collect(chosen, where, episodes=episodes, shards=shards, workers=workers, seed=seed, experts=experts)
    console.say(f"the data is in {path}")


def check_command(file: Positional[Path], *, task: str | None = None, picture: Path | None = None) -> int:
    """Compare a dataset with its task: what it holds, what is wrong with it, where it goes. Exit status 2 for problems.

    Args:
        file: An npz file in OGBench's format, or a folder of such shards.
        task: The task it should fit; by default the one it is named after or was collected for, if any.
        picture: For mazes: where to draw the data; by default beside the file, as <name>.check.png.
    """
    from gtrl.data.origin import shards_of
    from gtrl.report.dataset import examine, examine_folder, print_report

    chosen = find_task(task) if task else None
    if file.expanduser().is_dir():
        shards = shards_of(file.expanduser())
        if picture:
            raise DataError(f"{file} is a folder of {len(shards)} shards; --picture draws one file.")
        table, wrong = examine_folder(shards, chosen)
        console.print_wide(table)
        return 2 if wrong else 0
    report = examine(file.expanduser(), chosen, picture)
    print_report(report)
    return 2 if report.problems else 0


def evaluate_command(
    runs: Positional[tuple[Path, ...]],
    *,
    episodes: int = EPISODES_PER_GOAL,
    step: int | None = None,
    workers: int | None = None,
    seed: int = 0,
    video: bool = False,
    video_file: Path | None = None,
) -> None:
    """Evaluate run directories or policy files: five goals, mean action (FBC: a draw), success as the environment says.

    Args:
        runs: Run directories, or policy files (policy.npz); of several on one task, a last table compares them.
        episodes: Episodes for each goal.
        step: The checkpoint; by default those that count for the score (800K, 900K, 1M) and the last.
        workers: Processes; by default one for each core. The result does not depend on it.
        seed: Decides the starts and the luck of the episodes.
        video: Film the first episode of each goal (a run's last step, first seed); for mazes, draw trajectories too.
        video_file: Where the film goes, .mp4 or .gif; by default beside what was evaluated, as mp4 where that can be.
    """
    from gtrl.evaluation.evaluate import evaluate, look_up
    from gtrl.report.tables import comparison, summary

    if not runs:
        raise RunError("say what to evaluate: a run directory or a policy file.")
    tasks = {str(run): look_up(run, step)[-1].name for run in runs}  # all of them, before the first takes its time
    studio = None
    if video or video_file:
        from gtrl.report.video import Studio

        studio = Studio.find(video_file, len(tasks))
    evaluations = {}
    for run in tasks:
        evaluations[run] = evaluate(run, episodes=episodes, step=step, workers=workers, base_seed=seed)
        console.output.print(summary(evaluations[run]))
        if studio:
            for path in studio.film(run, step=step, base_seed=seed, episodes=episodes, workers=workers):
                console.say(f"written: {path}")
    for task in dict.fromkeys(tasks.values()):
        together = {run: rows for run, rows in evaluations.items() if tasks[run] == task}
        if len(together) > 1:
            console.print_wide(comparison(task, together))


def theory_command(*, out: Path | None = None, processes: int = 120, seed: int = 0) -> int:
    """The paper's Example 1 and its three propositions, exactly: what holds, and what it takes for it to hold.

    Args:
        out: A folder for the pictures (PNG and SVG); without it none are drawn.
        processes: How many random processes the propositions are checked on, and as many deterministic ones.
        seed: Decides these processes.
    """
    from gtrl.theory.tell import tell

    return 0 if tell(out, processes, seed) else 1


def demo_command(*, out: Path | None = None, seed: int = 0, workers: int | None = None) -> None:
    """A small honest run of everything: collect, train GTRL and TRL, evaluate both, draw a picture.

    Args:
        out: Where to put it; by default runs/demo/<time>.
        seed: The base seed: decides the data, the seeds of training and the episodes.
        workers: Processes for collecting and evaluating; by default one for each core.
    """
    from gtrl.demo import demo

    demo(out, seed=seed, workers=workers)


def bench_command(
    methods: Positional[tuple[str, ...]] = ("gtrl", "trl"),
    *,
    task: str = "antmaze-large-navigate",
    seeds: tuple[int, ...] = (1, 4),
    batch_sizes: tuple[int, ...] = (1024,),
    precisions: tuple[Literal["float32", "bfloat16"], ...] = ("float32", "bfloat16"),
    fast: tuple[Optimisation, ...] | None = None,
    ablate: bool = False,
    hidden: tuple[int, ...] = (512, 512, 512),
    transitions: int = 1_000_000,
    repeats: int = 5,
    reference: bool = True,
    out: Path | None = None,
) -> None:
    """How fast training is here: beside the machine's limits, and beside a loop as others write it, in one run.

    Args:
        methods: What to train, on noise in the shape of a task.
        task: Whose shapes: one of 'gtrl tasks'.
        seeds: How many are trained together; each number is a case.
        batch_sizes: Each number is a case.
        precisions: Each is a case.
        fast: What speeds a step up (docs/performance.md); by default all that pays here, and none if left empty.
        ablate: Also leave out each of these in turn, and all of them.
        hidden: Widths of the networks.
        transitions: Size of the dataset.
        repeats: How often each case is timed; the median counts.
        reference: Time the reference-style loop too: sampling in NumPy, one dispatch a step, one seed.
        out: A JSON file for all numbers.
    """
    from gtrl import bench
    from gtrl.algorithms import find_algorithm

    chosen = ogbench_task(task)
    for name, numbers in (("seeds", seeds), ("batch-sizes", batch_sizes), ("hidden", hidden), ("repeats", (repeats,))):
        if not numbers or min(numbers) < 1:
            raise ConfigError(f"--{name} must be positive numbers, at least one.")
    if transitions < 2:
        raise ConfigError(f"--transitions is {transitions} and must be at least 2.")
    for method in methods:
        find_algorithm(method)
    result = bench.bench(
        chosen, methods, seeds=seeds, batch_sizes=batch_sizes, precisions=precisions, fast=fast, ablate=ablate,
        hidden=hidden, transitions=transitions, repeats=repeats, reference=reference,
    )  # fmt: skip
    console.print_wide(bench.shown(result))
    if out:
        bench.save(result, out.expanduser())


def train_command(args: Sequence[str]) -> None:
    """`gtrl train ALGORITHM ...`: the method and the task are read first, for they decide the defaults."""
    from gtrl.algorithms import ALGORITHMS, find_algorithm, make
    from gtrl.data.dataset import load_dataset
    from gtrl.data.sources.get import cached_file
    from gtrl.training.config import Training
    from gtrl.training.train import train

    if not args or args[0] in ("-h", "--help"):
        print("usage: gtrl train ALGORITHM --task TASK [--data FILE] [flags]\n")
        print(f"ALGORITHM is one of {', '.join(ALGORITHMS)}; 'gtrl train ALGORITHM --help' lists the flags.")
        return
    kind = find_algorithm(args[0])
    first = argparse.ArgumentParser(prog=f"gtrl train {kind.name}", add_help=False, allow_abbrev=False)
    first.add_argument("--task", default=None)
    named = first.parse_known_args(args[1:])[0].task
    task = find_task(named) if named else None

    @dataclasses.dataclass(frozen=True)
    class Train:
        task: str | None = None  # one of `gtrl tasks`; without one, --data is your own file
        data: Path | None = None  # a dataset file or a folder of shards; by default the task's file in OGBench's cache
        seeds: tuple[int, ...] = (0, 1, 2, 3)  # trained together
        out: Path | None = None  # the run directory; by default runs/<task>/<algorithm>/<time>
        resume: bool = False  # go on with the run in --out from its newest good checkpoint, bit for bit
        accept_changes: bool = False  # with --resume: also where the config, the data or a version changed
        eval_during: bool = False  # evaluate policies as they are written, while training goes on
        eval_episodes: int = EPISODES_PER_GOAL  # with --eval-during: for each goal
        eval_workers: int | None = None  # with --eval-during: processes; by default all cores but one
        training: OmitArgPrefixes[Training] = dataclasses.field(default_factory=Training)
        algorithm: OmitArgPrefixes[kind] = dataclasses.field(default_factory=lambda: make(kind.name, task))  # pyright: ignore[reportInvalidTypeForm]
        """The method's own fields, with its defaults for the task."""

    chosen = tyro.cli(Train, args=list(args[1:]), prog=f"gtrl train {kind.name}", description=kind.__doc__)
    if chosen.eval_during and chosen.eval_episodes < 1:
        raise ConfigError(f"--eval-episodes is {chosen.eval_episodes} and must be at least 1.")
    path = chosen.data or (cached_file(ogbench_task(task)) if task else None)
    if path is None:
        raise DataError("say what to train on: --task TASK, --data FILE, or both.")
    if chosen.data is None and not path.exists():
        raise DataError(
            f"there is no data for {named} at {path}: give --data FILE, or get it with 'gtrl data get {named}'."
        )
    run = train(  # nothing here keeps the data: shards come and go
        chosen.algorithm, load_dataset(path, task), out=chosen.out, seeds=chosen.seeds, training=chosen.training,
        resume=chosen.resume, accept_changes=chosen.accept_changes,
        evaluate_during=chosen.eval_episodes if chosen.eval_during else 0, workers=chosen.eval_workers, began=BEGAN,
    )  # fmt: skip
    console.say(f"trained: {run.path}")
    if task:
        console.say(f"next: gtrl evaluate {run.path}")


def print_json(rows: Any) -> None:
    print(json.dumps(list(rows), indent=2))


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return "(" + ", ".join(f"{item:g}" for item in value) + ")"
    return f"{value:,}" if isinstance(value, int) else f"{value:g}" if isinstance(value, float) else str(value)


Command = Callable[..., int | None]
COMMANDS: dict[str, Command | dict[str, Command]] = {
    "demo": demo_command,
    "tasks": tasks_command,
    "algorithms": algorithms_command,
    "data": {"get": get_command, "collect": collect_command, "check": check_command},
    "train": train_command,
    "evaluate": evaluate_command,
    "theory": theory_command,
    "bench": bench_command,
}


def usage(prog: str, commands: dict[str, Any]) -> str:
    lines = [f"usage: {prog} COMMAND ...", ""]
    for name, command in commands.items():
        inner = ", ".join(command) if isinstance(command, dict) else (command.__doc__ or "").strip().splitlines()[0]
        lines.append(f"  {name:<12}{inner}")
    return "\n".join([*lines, "", f"'{prog} COMMAND --help' tells more."])


def dispatch(prog: str, commands: dict[str, Any], args: Sequence[str]) -> int:
    if not args or args[0] in ("-h", "--help"):
        print(usage(prog, commands))
        return 0
    if args[0] == "--version":
        from gtrl import __version__

        print(__version__)
        return 0
    if args[0] not in commands:
        raise UnknownNameError("command", args[0], commands)
    command = commands[args[0]]
    if isinstance(command, dict):
        return dispatch(f"{prog} {args[0]}", command, args[1:])
    if command is train_command:
        command(args[1:])
        return 0
    description = (command.__doc__ or "").split("\n\n")[0].strip()
    return tyro.cli(command, args=list(args[1:]), prog=f"{prog} {args[0]}", description=description) or 0


def main(args: Sequence[str] | None = None) -> int:
    """Run a command. 0: done; 1: a check fails; 2: something the user can mend, in one sentence; 130: interrupted."""
    try:
        return dispatch("gtrl", COMMANDS, sys.argv[1:] if args is None else args)
    except (GtrlError, OSError) as error:
        print(f"gtrl: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as stop:
        print(f"gtrl: interrupted{f'; {stop}' if str(stop) else ''}", file=sys.stderr)
        return 130
