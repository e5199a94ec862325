"""`gtrl data get`, `gtrl data collect` and `gtrl data check`: the commands for datasets."""

from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from gtrl import console
from gtrl.cli.outputs import check_output_file, check_output_folder
from gtrl.errors import DataError
from gtrl.tasks import find_task, ogbench_task

TaskName = Annotated[Positional[str], arg(metavar="TASK")]


def get_command(
    task: TaskName,
    *,
    folder: Path | None = None,
    mirror: str | None = None,
    workers: int | None = None,
    seed: int = 0,
    expert: Path | None = None,
    dribble_expert: Path | None = None,
) -> None:
    """Get the dataset of a task: from the cache, or by download, or by collecting it.

    Args:
        task: One of 'gtrl tasks'.
        folder: Where datasets are stored; by default OGBench's cache, ~/.ogbench/data.
        mirror: URL of the folder with the files on a second server, tried after OGBench's; by default $GTRL_MIRROR.
        workers: Number of processes for collecting; by default one per core.
        seed: Random seed for collecting. The same seed gives bit-identical data.
        expert: For ant, humanoid and soccer data: the file of an expert that walks; by default the package's.
        dribble_expert: For soccer data: the file of an expert that dribbles; by default the package's.
    """
    from gtrl.data.collect.expert import Experts
    from gtrl.data.sources.get import cached_file, get_dataset

    experts = Experts(expert, dribble_expert)
    if not cached_file(ogbench_task(task), folder).exists():
        check_output_folder(cached_file(ogbench_task(task), folder).parent, "--folder")
    get_dataset(task, folder, mirror=mirror, workers=workers, seed=seed, experts=experts)


def collect_command(
    task: TaskName,
    *,
    episodes: int | None = None,
    shards: int = 1,
    workers: int | None = None,
    seed: int = 0,
    out: Path | None = None,
    expert: Path | None = None,
    dribble_expert: Path | None = None,
) -> None:
    """Collect a dataset by OGBench's protocol: a training file and a validation file in the same folder.

    Ctrl-C stops it; the same command resumes it.

    Args:
        task: One of 'gtrl tasks'. Ants and humanoids are driven by an expert (docs/experts.md).
        episodes: Number of training episodes; by default that of the task's public dataset.
        shards: Number of files to split the training data into, for data larger than memory; --out is then a folder.
        workers: Number of processes; by default one per core. The data does not depend on it.
        seed: Random seed. The same seed gives bit-identical data.
        out: The file to write; by default in OGBench's cache folder, or in collected/ with --episodes or --shards.
        expert: For ant, humanoid and soccer tasks: the file of an expert that walks; by default the package's.
        dribble_expert: For soccer tasks: the file of an expert that dribbles; by default the package's.
    """
    from gtrl.data.collect.expert import Experts
    from gtrl.data.collect.files import collect
    from gtrl.data.sources.get import cached_file

    chosen = ogbench_task(task)
    # Only a full dataset is written to OGBench's cache folder by default: OGBench would mistake a part for its own.
    count = chosen.trajectories if episodes is None else episodes
    folder = f"{count}-episodes" + (f"-seed-{seed}" if seed else "")
    partial = Path("collected", folder, chosen.dataset if shards > 1 else f"{chosen.dataset}.npz")
    target = out or (cached_file(chosen) if episodes is None and shards == 1 else partial)
    check_output_folder(target) if shards > 1 else check_output_file(target)
    experts = Experts(expert, dribble_expert)
    path = collect(chosen, target, episodes=episodes, shards=shards, workers=workers, seed=seed, experts=experts)
    console.echo(f"the data is in {path}")


def check_command(
    file: Annotated[Positional[str], arg(metavar="FILE")],
    *,
    task: str | None = None,
    observation: tuple[str, ...] | None = None,
    goal: tuple[str, ...] | None = None,
    action: tuple[str, ...] | None = None,
    episode: str | None = None,
    picture: Path | None = None,
) -> int:
    """Check a dataset against its task, or a log of your own: prints its contents and problems.

    The exit status is 2 if there are problems.

    Args:
        file: An npz file in OGBench's format, a folder of such files (shards), or a log as for 'gtrl train --data'.
        task: The task it should fit; by default the one it is named after or was collected for, if any.
        observation: Which columns are the observation: NAME, NAME[0:3] or 0:3; as for 'gtrl train'.
        goal: Which columns are the goal; a slice is one of the observation.
        action: Which columns are the action.
        episode: For tables: the column that numbers the episodes.
        picture: For mazes: the file for a picture of the data; by default <name>.check.png next to the data.
    """
    from gtrl.data.origin import shards_of
    from gtrl.data.reading import is_folder_of_shards, selection_of
    from gtrl.report.dataset import examine, examine_folder, print_report

    chosen = find_task(task) if task else None
    selection = selection_of(observation=observation, goal=goal, action=action, episode=episode)
    if picture:
        check_output_file(picture, "--picture")
    if is_folder_of_shards(file) and not selection:
        shards = shards_of(Path(file).expanduser())
        if picture:
            raise DataError(f"{file} is a folder of {len(shards)} shards; --picture draws one file.")
        table, has_problems = examine_folder(shards, chosen)
        console.print_table(table)
        return 2 if has_problems else 0
    report = examine(file, chosen, picture, selection=selection)
    print_report(report)
    return 2 if report.problems else 0
