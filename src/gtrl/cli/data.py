"""`gtrl data get`, `gtrl data collect` and `gtrl data check`."""

from pathlib import Path

from tyro.conf import Positional

from gtrl import console
from gtrl.cli.outputs import check_output_file, check_output_folder
from gtrl.errors import DataError
from gtrl.tasks import find_task, ogbench_task


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
    """A task's dataset, from the cache, a download, or collected here.

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
    from gtrl.data.sources.get import cached_file, get_dataset

    experts = Experts(expert, dribble_expert)
    if not cached_file(ogbench_task(task), folder).exists():
        check_output_folder(cached_file(ogbench_task(task), folder).parent, "--folder")
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

    Ctrl-C stops it; the same command continues where it stopped.

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
    check_output_folder(where) if shards > 1 else check_output_file(where)
    experts = Experts(expert, dribble_expert)
    path = collect(chosen, where, episodes=episodes, shards=shards, workers=workers, seed=seed, experts=experts)
    console.echo(f"the data is in {path}")


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
    if picture:
        check_output_file(picture, "--picture")
    if file.expanduser().is_dir():
        shards = shards_of(file.expanduser())
        if picture:
            raise DataError(f"{file} is a folder of {len(shards)} shards; --picture draws one file.")
        table, wrong = examine_folder(shards, chosen)
        console.print_table(table)
        return 2 if wrong else 0
    report = examine(file.expanduser(), chosen, picture)
    print_report(report)
    return 2 if report.problems else 0
