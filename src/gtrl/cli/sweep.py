"""`gtrl sweep`: many runs, on this machine or on a Ray cluster."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

from gtrl import console
from gtrl.cli.outputs import check_output_folder
from gtrl.errors import ConfigError
from gtrl.runs.run import Run

if TYPE_CHECKING:
    from gtrl.sweeps import Sweep
    from gtrl.sweeps.status import Status


def sweep_command(
    plan: Annotated[Positional[str | None], arg(metavar="[PRESET | FILE]")] = None,
    *,
    tasks: tuple[str, ...] | None = None,
    methods: tuple[str, ...] | None = None,
    seeds: tuple[int, ...] | None = None,
    steps: int | None = None,
    episodes: int | None = None,
    field: tuple[str, ...] = (),
    data: tuple[str, ...] = (),
    out: Path | None = None,
    jobs: int | None = None,
    ray: str | None = None,
    cpus_per_run: float | None = None,
    gpus_per_run: float | None = None,
    retries: int = 3,
    dry_run: bool = False,
    evaluate_only: bool = False,
    all_steps: bool = False,
) -> int:
    """Run a grid of tasks, methods and fields: train and evaluate what is not finished yet.

    The exit status is 0 if all runs are finished, and 1 if some failed or have no data. Run the same command again to
    resume.

    Args:
        plan: A preset (table1, table2, ablations, paper, conventions, beyond) or a YAML file; or give --tasks and
            --methods.
        tasks: The tasks; with a preset or file, only these of its tasks.
        methods: The methods, or my_module:MyMethod; with a preset or file, only these of its methods and variants.
        seeds: The seeds of every run, which are trained together; by default those of the file, or 0 1 2 3.
        steps: Gradient steps of every run.
        episodes: Episodes per goal; by default those of the file, or 50.
        field: Fields of the method or of training for every run, as NAME=VALUE, such as precision=bfloat16.
        data: Dataset files, as TASK=FILE; by default they are found in the cache, downloaded or collected.
        out: The output folder, with one run directory <task>/<name> per run; by default runs/<preset or file>.
        jobs: How many runs at once; by default one per GPU, or without one, one per two cores and 4 GiB of memory.
        ray: Run on the Ray cluster with this address; 'local' starts one on this machine.
        cpus_per_run: With --ray: CPUs of one run; by default a GPU's share of the cluster's, or 2 without GPUs.
        gpus_per_run: With --ray: GPUs of one run; by default 1 if the cluster has any.
        retries: How often a run is started again after its process or its node was lost.
        dry_run: Print the plan with GPU-hours and disk space, and write nothing.
        evaluate_only: Train nothing: evaluate the runs in the output folder that lack evaluations.
        all_steps: With --evaluate-only: all saved steps, not only those that count for the score and the last.
    """
    if evaluate_only:
        training_flags = {"--seeds": seeds, "--steps": steps, "--field": field, "--data": data}
        _check_evaluation_flags(dry_run, gpus_per_run, {} if plan else training_flags)
    elif all_steps:
        raise ConfigError("--all-steps is for --evaluate-only.")
    sweep = None
    if plan or not evaluate_only:
        sweep = _sweep(plan, tasks, methods)
        sweep = _overridden(sweep, seeds, steps, episodes, field, data)
    folder = (out or Path("runs") / (Path(plan).stem if plan else "sweep")).expanduser()
    where: dict[str, Any] = {"jobs": jobs, "ray": ray, "cpus_per_run": cpus_per_run, "retries": retries}
    if dry_run:
        assert sweep
        _print_plan(sweep, folder)
        return 0
    check_output_folder(folder)
    if evaluate_only:
        statuses = _evaluate(sweep, folder, tasks, methods, episodes, all_steps, where)
    else:
        from gtrl.sweeps import run_sweep

        assert sweep
        statuses = run_sweep(sweep, folder, gpus_per_run=gpus_per_run, **where)
    return _report(statuses, folder)


def _check_evaluation_flags(dry_run: bool, gpus_per_run: float | None, training_flags: dict[str, Any]) -> None:
    """Raises `ConfigError` for flags that evaluations alone do not use."""
    if dry_run:
        raise ConfigError("--dry-run is for training; leave out --evaluate-only.")
    if gpus_per_run is not None:
        raise ConfigError("--gpus-per-run is for training: --evaluate-only uses no GPU.")
    for flag, value in training_flags.items():
        if value not in (None, ()):
            raise ConfigError(f"{flag} is for training; with --evaluate-only it needs the preset or file of the sweep.")


def _sweep(plan: str | None, tasks: Sequence[str] | None, methods: Sequence[str] | None) -> "Sweep":
    """The sweep of a preset or file, narrowed by the flags; without one, the flags are the sweep."""
    from gtrl.sweeps.plan import find_plan, make_sweep

    if plan:
        return find_plan(plan).narrowed(tasks, methods)
    if not tasks or not methods:
        raise ConfigError("name a preset or a file, or give --tasks and --methods.")
    return make_sweep({"tasks": list(tasks), "methods": list(methods)})


def _overridden(
    sweep: "Sweep",
    seeds: Sequence[int] | None,
    steps: int | None,
    episodes: int | None,
    fields: Sequence[str],
    data: Sequence[str],
) -> "Sweep":
    """The sweep with the settings of the flags in place of its own."""
    from gtrl.sweeps.values import parse_field, split_assignment

    given = dict(map(parse_field, fields))
    if steps is not None:
        given["steps"] = steps
    files = dict(split_assignment(text, "--data", "TASK=FILE") for text in data)
    return replace(
        sweep,
        seeds=sweep.seeds if seeds is None else tuple(seeds),
        episodes=sweep.episodes if episodes is None else episodes,
        fields={**sweep.fields, **given},
        data={**sweep.data, **{task: Path(path).expanduser() for task, path in files.items()}},
    )


def _evaluate(
    sweep: "Sweep | None",
    folder: Path,
    tasks: Sequence[str] | None,
    methods: Sequence[str] | None,
    episodes: int | None,
    all_steps: bool,
    where: dict[str, Any],
) -> "list[Status]":
    from gtrl.errors import RunError
    from gtrl.sweeps.sweep import evaluate_runs, find_runs
    from gtrl.tasks import EPISODES_PER_GOAL

    if sweep:
        from gtrl.sweeps.prepare import check_sweep

        runs = [run.folder for run in check_sweep(sweep, folder) if Run(run.folder).exists]
        if not runs:
            raise RunError(f"{folder} holds no run of this sweep.")
        episodes = sweep.episodes
    else:
        runs = find_runs(folder, tasks, methods)
    if episodes is None:
        episodes = EPISODES_PER_GOAL
    return evaluate_runs(runs, folder, episodes=episodes, all_steps=all_steps, **where)


def _print_plan(sweep: "Sweep", folder: Path) -> None:
    from gtrl.sweeps.cost import cost_of, plan_notes, plan_table
    from gtrl.sweeps.prepare import check_sweep

    runs = check_sweep(sweep, folder)
    costs = [cost_of(run) for run in runs]
    console.print_table(plan_table(runs, costs, folder))
    for line in plan_notes(runs, costs):
        console.echo(line)


def _report(statuses: "Sequence[Status]", folder: Path) -> int:
    """Prints what is not finished, and the next command; returns the exit status."""
    from gtrl.sweeps.display import printable, summary_of

    unfinished = [status for status in statuses if status.state != "finished"]
    for status in unfinished:
        reason = f": {status.message}" if status.message else ""
        console.warn(printable(f"{status.key}: {status.state}{reason}"))
    if not console.output.is_terminal:  # where the live table ends with it
        console.echo(summary_of(statuses))
    if len(unfinished) < len(statuses):
        console.echo(f"next: gtrl report {folder}")
    return 1 if unfinished else 0
