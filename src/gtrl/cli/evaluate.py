"""`gtrl evaluate`: success rates of trained policies."""

from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from gtrl import console
from gtrl.cli.outputs import check_output_file
from gtrl.errors import RunError


def evaluate_command(
    runs: Annotated[Positional[tuple[Path, ...]], arg(metavar="RUN [RUN ...]")],
    *,
    task: str | None = None,
    env: str | None = None,
    goals: Path | None = None,
    episodes: int | None = None,
    step: tuple[int, ...] | Literal["all"] | None = None,
    workers: int | None = None,
    seed: int = 0,
    video: bool = False,
    video_file: Path | None = None,
) -> None:
    """Evaluate run directories or policy files on all goals of their task.

    Policies take their mean action (FBC samples one). The environment decides what counts as success.

    Args:
        runs: Run directories or policy files (.npz). Several on the same task are also compared in one table.
        task: One of 'gtrl tasks', or my_module:TASK; by default the task that the policy was trained for.
        env: Instead of a task, an environment of your own: my_package:MyEnv-v0, or my_module:factory; by default the
            one that the run was trained with (gtrl train --env).
        goals: With an environment of your own, the goals to evaluate: a CSV, npy or npz file with one row per goal.
            Without it, the environment chooses a goal at each reset.
        episodes: Episodes per goal; by default 50, and in an environment of your own at least 100 over all goals.
        step: The training steps to evaluate, or 'all' that have policies; by default those that count for the score
            (800K, 900K, 1M) and the last.
        workers: Number of processes; by default one per core. The result does not depend on it.
        seed: Determines the initial states and the randomness of the episodes.
        video: Record the first episode of each goal (last step, first seed) on video; in mazes, also draw trajectories.
        video_file: The video file, .mp4 or .gif; by default next to the evaluated run, as mp4 if there is an encoder.
    """
    from gtrl.evaluation.evaluate import RECORDED_EPISODES, evaluate, find_policies
    from gtrl.report.tables import comparison, summary

    if not runs:
        raise RunError("nothing to evaluate: name a run directory or a policy file.")
    # All runs are checked before the first, which may take long, is evaluated.
    tasks = {str(run): find_policies(run, step, task, env, goals).task for run in runs}
    recorder = None
    if video or video_file:
        from gtrl.report.video import Recorder

        if video_file:
            check_output_file(video_file, "--video-file")
        recorder = Recorder.find(video_file, list(tasks.values()))
    evaluations = {}
    for run in tasks:
        evaluations[run] = evaluate(run, task=tasks[run], episodes=episodes, step=step, workers=workers, base_seed=seed)
        console.print_table(summary(evaluations[run]))
        if recorder:
            how = {"step": step, "base_seed": seed, "workers": workers}
            for path in recorder.record(run, task=tasks[run], episodes=episodes or RECORDED_EPISODES, **how):
                console.echo(f"written: {path}")
    for name in dict.fromkeys(task.name for task in tasks.values()):
        same_task = {run: rows for run, rows in evaluations.items() if tasks[run].name == name}
        if len(same_task) > 1:
            console.print_table(comparison(name, same_task))
