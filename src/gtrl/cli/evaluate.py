"""`gtrl evaluate`."""

from pathlib import Path

from tyro.conf import Positional

from gtrl import console
from gtrl.cli.outputs import check_output_file
from gtrl.errors import RunError
from gtrl.tasks import EPISODES_PER_GOAL


def evaluate_command(
    runs: Positional[tuple[Path, ...]],
    *,
    task: str | None = None,
    episodes: int = EPISODES_PER_GOAL,
    step: int | None = None,
    workers: int | None = None,
    seed: int = 0,
    video: bool = False,
    video_file: Path | None = None,
) -> None:
    """Evaluate run directories or policy files: all goals, mean action (FBC: a draw), success as the environment says.

    Args:
        runs: Run directories, or policy files (policy.npz); of several on one task, a last table compares them.
        task: One of 'gtrl tasks', or my_module:TASK; by default the one that a policy was trained for.
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
    tasks = {
        str(run): look_up(run, step, task).task.name for run in runs
    }  # all of them, before the first takes its time
    studio = None
    if video or video_file:
        from gtrl.report.video import Studio

        if video_file:
            check_output_file(video_file, "--video-file")
        studio = Studio.find(video_file, len(tasks))
    evaluations = {}
    for run in tasks:
        evaluations[run] = evaluate(run, task=task, episodes=episodes, step=step, workers=workers, base_seed=seed)
        console.print_table(summary(evaluations[run]))
        if studio:
            for path in studio.film(run, task=task, step=step, base_seed=seed, episodes=episodes, workers=workers):
                console.echo(f"written: {path}")
    for name in dict.fromkeys(tasks.values()):
        together = {run: rows for run, rows in evaluations.items() if tasks[run] == name}
        if len(together) > 1:
            console.print_table(comparison(name, together))
