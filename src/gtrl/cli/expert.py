"""`gtrl expert train` and `gtrl expert measure`: the policies that walk and dribble in data collection."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import OmitArgPrefixes, Positional, arg

from gtrl import console
from gtrl.cli.flags import parse
from gtrl.cli.outputs import check_output_file, check_output_folder
from gtrl.envs.simulator import require_simulator
from gtrl.errors import ConfigError
from gtrl.experts.settings import SAC, SKILL_NAMES, Schedule, check_skill, default_config, default_schedule

COLLECTION_FLAGS = {"ant": "--expert", "humanoid": "--expert", "dribble": "--dribble-expert"}


@dataclasses.dataclass(frozen=True)
class Flags:
    """Where to write the run, and what to run it on."""

    out: Path  # the folder of the run
    seed: int = 0  # random seed
    threads: int | None = None  # threads that simulate; by default one per core. The expert does not depend on it


def expert_train_command(args: Sequence[str]) -> None:
    """Train an expert: ant and humanoid walk in any direction, dribble is an ant with a ball.

    Usage: `gtrl expert train SKILL [flags]`. Ctrl-C stops it; the same command continues.
    """
    if not args or args[0] in ("-h", "--help"):
        print("usage: gtrl expert train SKILL [flags]\n")
        print(f"SKILL is one of {', '.join(SKILL_NAMES)}. Ctrl-C stops the training; the same command continues it.")
        print("Run 'gtrl expert train SKILL --help' for the flags and their defaults.")
        return
    if args[0].startswith("-"):
        raise ConfigError(
            f"name a skill first: gtrl expert train SKILL ..., where SKILL is one of {', '.join(SKILL_NAMES)}."
        )
    skill = check_skill(args[0])
    flags, config, schedule = parse_flags(skill, args[1:])
    folder = check_output_folder(flags.out)
    require_simulator("training an expert")
    from gtrl.experts.train import train_expert

    path = train_expert(skill, folder, config, seed=flags.seed, threads=flags.threads, schedule=schedule)
    console.echo(f"the expert is in {path}; its curves are in {folder / 'curves.png'}")
    console.echo(f"how good it is: gtrl expert measure {path}")
    console.echo(f"data with it: gtrl data collect TASK {COLLECTION_FLAGS[skill]} {path}")


def parse_flags(skill: str, args: Sequence[str]) -> tuple[Flags, SAC, Schedule]:
    """Parses the flags of a training on top of the defaults of the skill."""
    groups = {
        "run": Flags(Path("experts", skill)),
        "training": default_config(skill),
        "schedule": default_schedule(skill),
    }
    train: Any = dataclasses.make_dataclass(
        "Train",
        [(name, OmitArgPrefixes[type(group)], dataclasses.field(default=group)) for name, group in groups.items()],
        frozen=True,
    )
    fields = [field.name for group in groups.values() for field in dataclasses.fields(group)]
    description = f"Train an expert: {skill}. Ctrl-C stops it; the same command continues."
    parsed = parse(train, args, f"gtrl expert train {skill}", description, fields)
    return parsed.run, parsed.training, parsed.schedule


def expert_measure_command(
    file: Annotated[Positional[Path], arg(metavar="FILE")],
    *,
    skill: Literal["ant", "humanoid", "dribble"] | None = None,
    episodes: int = 50,
    seed: int = 0,
    threads: int | None = None,
    card: Path | None = None,
) -> None:
    """Measure an expert: speed, direction and falls in 20 directions, with and without the noise of data collection.

    Args:
        file: The file of the expert.
        skill: What it has learned; by default what the file says.
        episodes: Episodes in each direction.
        seed: Random seed.
        threads: Threads that simulate; by default one per core.
        card: Also write the figures to this Markdown file, with how the expert was trained.
    """
    if episodes < 1:
        raise ConfigError(f"episodes is {episodes} and must be at least 1.")
    if card:
        check_output_file(card, "--card")
    require_simulator("measuring an expert")
    from gtrl.experts.card import card_text, figures_of, figures_table
    from gtrl.experts.train import thread_count
    from gtrl.io.atomic import write_text

    figures = figures_of(file.expanduser(), skill, episodes=episodes, threads=thread_count(threads), seed=seed)
    console.print_table(figures_table(str(file), figures))
    if card:
        write_text(card.expanduser(), card_text(file.expanduser(), figures, skill))
        console.echo(f"written: {card}")
