"""`gtrl diagnose`: why a run fails, in one screen."""

from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg

from gtrl import console
from gtrl.evaluation.diagnostics import EPISODES


def diagnose_command(
    run: Annotated[Positional[Path], arg(metavar="RUN")],
    *,
    step: int | None = None,
    data: Path | None = None,
    episodes: int = EPISODES,
    workers: int | None = None,
    seed: int = 0,
) -> None:
    """Measure why a run fails: its values, policy and targets against what they should be.

    Also writes diagnostics.json and, for mazes, maps.npz to the run directory.

    Args:
        run: A run directory.
        step: The training step to diagnose; by default the last one with a checkpoint and policies.
        data: The dataset of the run, if it is no longer where it was.
        episodes: Episodes per goal and seed.
        workers: Number of processes; by default one per core. The result does not depend on it.
        seed: Determines the randomness of the episodes and which rows of the data are drawn.
    """
    from gtrl.evaluation.diagnostics.diagnose import diagnose
    from gtrl.runs.run import display_name

    found = diagnose(run, step=step, data=data, episodes=episodes, workers=workers, base_seed=seed)
    task = f" on {found['task']}" if found["task"] else ""
    seeds = ", ".join(map(str, found["seeds"]))
    console.echo(f"{display_name(found['method'])}{task}, step {found['step']:,}, seeds {seeds}")
    for section in found["sections"]:
        _print_section(section)
    for note in found["notes"]:
        console.warn(note)


def _print_section(section: dict[str, Any]) -> None:
    """Prints a section without lines around its cells, so that all sections fit on one screen."""
    texts = sum(isinstance(cell, str) for cell in section["rows"][0])
    rows = [[_format(cell) for cell in row] for row in section["rows"]]
    table = console.table("", section["columns"], rows, text=texts)
    table.title, table.box = None, None
    console.echo(f"\n{section['title']}")
    console.print_table(table)
    if section["finding"]:
        console.echo(f"→ {section['finding']}")


def _format(cell: Any) -> str:
    if cell is None:
        return "–"
    if isinstance(cell, float):
        return f"{cell:.3f}" if abs(cell) < 10 else f"{cell:,.1f}"
    return cell if isinstance(cell, str) else f"{cell:,}"
