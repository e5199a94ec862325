"""`gtrl expert train` and `gtrl expert measure`: the policies that walk and dribble in data collection."""

from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from gtrl import console
from gtrl.cli.outputs import check_output_file, check_output_folder
from gtrl.envs.simulator import require_simulator
from gtrl.errors import ConfigError

Skill = Literal["ant", "humanoid", "dribble"]


def expert_train_command(
    skill: Annotated[Positional[Skill], arg(metavar="SKILL")],
    *,
    out: Path | None = None,
    seed: int = 0,
    threads: int | None = None,
    steps: int | None = None,
    copies: int | None = None,
    updates: int | None = None,
    batch_size: int | None = None,
    hidden: tuple[int, ...] | None = None,
    lr: float | None = None,
    gamma: float | None = None,
    entropy: float | None = None,
    warmup: int | None = None,
    replay: int | None = None,
    refill: int | None = None,
    log_every: int | None = None,
    checkpoint_every: int | None = None,
    evaluate_every: int | None = None,
) -> None:
    """Train an expert: ant and humanoid walk in any direction, dribble is an ant with a ball.

    Ctrl-C stops it; the same command continues. All defaults depend on the skill.

    Args:
        skill: What to learn: ant, humanoid or dribble.
        out: The folder of the run; by default experts/SKILL.
        seed: Random seed.
        threads: Threads that simulate; by default one per core. The expert does not depend on it.
        steps: Simulator steps, all copies together; more of them continue a run that has ended.
        copies: Copies of the simulator.
        updates: Gradient steps per step of all copies.
        batch_size: Batch size.
        hidden: Widths of the networks' layers.
        lr: Learning rate.
        gamma: Discount.
        entropy: The policy's entropy is kept at minus this, per dimension of the action.
        warmup: Steps of random actions before the first gradient step.
        replay: Steps that the replay buffer holds.
        refill: Steps before the next gradient step when a run continues without its replay buffer, on another machine.
        log_every: Steps between two rows of metrics.jsonl.
        checkpoint_every: Steps between two checkpoints.
        evaluate_every: Steps between two evaluations, each with an expert file.
    """
    given = {
        "steps": steps,
        "copies": copies,
        "updates": updates,
        "batch_size": batch_size,
        "hidden": hidden,
        "lr": lr,
        "gamma": gamma,
        "entropy": entropy,
        "warmup": warmup,
        "replay": replay,
        "refill": refill,
    }
    times = {"log_every": log_every, "checkpoint_every": checkpoint_every, "evaluate_every": evaluate_every}
    folder = check_output_folder(out or Path("experts", skill))
    require_simulator("training an expert")
    from gtrl.experts.train import Schedule, default_config, train_expert

    config = default_config(skill, **{name: value for name, value in given.items() if value is not None})
    schedule = Schedule(**{name: value for name, value in times.items() if value is not None})
    path = train_expert(skill, folder, config, seed=seed, threads=threads, schedule=schedule)
    console.echo(f"the expert is in {path}; 'gtrl expert measure {path}' says how good it is")


def expert_measure_command(
    file: Annotated[Positional[Path], arg(metavar="FILE")],
    *,
    skill: Skill | None = None,
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
        write_text(card.expanduser(), card_text(file.expanduser(), figures))
        console.echo(f"written: {card}")
