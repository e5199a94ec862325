"""`gtrl data convert`: reads a log of another tool and writes it as a dataset."""

from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from gtrl import console
from gtrl.cli.outputs import check_output_file

LISTED_COLUMNS = 12  # in the summary


def convert_command(
    source: Annotated[Positional[str], arg(metavar="SOURCE")],
    out: Annotated[Positional[str], arg(metavar="OUT")],
    *,
    observation: tuple[str, ...] | None = None,
    goal: tuple[str, ...] | None = None,
    action: tuple[str, ...] | None = None,
    episode: str | None = None,
    action_low: tuple[float, ...] | None = None,
    action_high: tuple[float, ...] | None = None,
) -> None:
    """Convert a log to a dataset file: from Minari, LeRobot, HDF5 (D4RL, robomimic), npz, parquet or CSV.

    Columns are chosen by NAME, NAME[SLICE] or SLICE (of the default observation or action; for the goal, of the
    observation); a slice is 3, 0:5, -2: or 0,3,5. The output may also be a new Minari dataset.

    Args:
        source: A file, a folder, or minari:ID; the format is detected.
        out: The file to write (.npz), or minari:ID.
        observation: Columns of the observation; by default those that the format suggests.
        goal: Columns of the goal that a state has reached; by default the format's achieved goal, or the observation.
        action: Columns of the action.
        episode: For tables: the column that names the episode; by default episode, episode_index, … are tried.
        action_low: The lowest action, one number or one per column; by default what the format knows.
        action_high: The highest action.
    """
    from gtrl.data.formats.convert import convert
    from gtrl.data.formats.minari import PREFIX

    if not out.startswith(PREFIX):
        check_output_file(Path(out), "output")
    log = convert(
        source, out, observation=observation, goal=goal, action=action, episode=episode,
        action_low=action_low, action_high=action_high,
    )  # fmt: skip
    arrays = log.arrays
    episodes = int(arrays["terminals"].sum())
    console.echo(f"format       {log.source['format']}")
    console.echo(f"episodes     {episodes:,}, with {len(arrays['terminals']) - episodes:,} transitions")
    for role, names in log.columns.items():
        if role == "goal" and "goals" not in arrays:
            console.echo("goal         the whole observation")
            continue
        more = f" and {len(names) - LISTED_COLUMNS} more" if len(names) > LISTED_COLUMNS else ""
        console.echo(f"{role:<12} {len(names)} columns: {', '.join(names[:LISTED_COLUMNS])}{more}")
    for note in log.source["notes"]:
        console.echo(f"note: {note}")
    console.echo(f"the data is in {out}")
