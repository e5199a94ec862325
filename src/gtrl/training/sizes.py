"""Sizes for data without a task: network, batch, steps and discount that suit the amount of data and the device.

The paper's settings need about a million transitions and a GPU. `SMALL` was chosen on the arm of examples/arm, where
docs/own_robot.md has the measurements; between the two, sizes grow geometrically with the number of transitions.
"""

import math
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from gtrl.tasks import BATCH_SIZE, GRADIENT_STEPS, HIDDEN, LEARNING_RATE, TARGET_RATE, OwnTask, Task

if TYPE_CHECKING:
    from gtrl.algorithms.base import Algorithm
    from gtrl.data.dataset import Data, Dataset
    from gtrl.training.config import Training, Update

SMALL_TRANSITIONS, LARGE_TRANSITIONS = 20_000, 1_000_000  # outside this range, sizes are those of its ends
LAYERS = len(HIDDEN)
WIDTH_MULTIPLE, BATCH_MULTIPLE, STEPS_MULTIPLE = 32, 64, 1000  # sizes are rounded to these
HORIZONS_PER_EPISODE = 10  # an episode has this many times 1 / (1 - gamma) steps, as the paper's of 1,000 and 2,000
DISCOUNTS = (0.9, 0.995)  # limits of the discount
CALIBRATION_SECONDS = 0.3  # of the gradients that are timed, without their compilation
LONG_SECONDS = 3600.0  # a longer training gets a warning


def _rounded(value: float, multiple: int) -> int:
    return multiple * max(1, round(value / multiple))


def _two_digits(value: float) -> float:
    return float(f"{value:.2g}")


def _learning_rate(width: int) -> float:
    """Returns the learning rate for a width: larger for narrow networks, the paper's for the paper's width."""
    return _two_digits(LEARNING_RATE * HIDDEN[0] / width)


class Sizes(NamedTuple):
    """Fields of a method (`hidden`, `target_rate`) and of `Training`."""

    hidden: tuple[int, ...]
    batch_size: int
    learning_rate: float
    target_rate: float
    steps: int


SMALL = Sizes((64,) * LAYERS, 256, _learning_rate(64), 0.05, 8000)  # up to `SMALL_TRANSITIONS`, on any device
# From `LARGE_TRANSITIONS` on: on a CPU what takes an hour or two, on any other device what the paper uses.
LARGE_CPU = Sizes((256,) * LAYERS, 512, _learning_rate(256), 0.01, 50_000)
LARGE = Sizes(HIDDEN, BATCH_SIZE, LEARNING_RATE, TARGET_RATE, GRADIENT_STEPS)


def sizes(transitions: int, observation_dim: int, device: str = "cpu") -> Sizes:
    """Returns sizes for a number of transitions on a device ("cpu", "gpu" or "tpu").

    Hidden layers are at least four times as wide as the observation, up to the width of the paper's.
    """
    large = LARGE_CPU if device == "cpu" else LARGE
    fraction = math.log(max(transitions, 1) / SMALL_TRANSITIONS) / math.log(LARGE_TRANSITIONS / SMALL_TRANSITIONS)
    fraction = min(max(fraction, 0.0), 1.0)

    def between(small: float, large: float) -> float:
        return small ** (1 - fraction) * large**fraction

    wide_enough = min(WIDTH_MULTIPLE * math.ceil(4 * observation_dim / WIDTH_MULTIPLE), HIDDEN[0])
    width = max(_rounded(between(SMALL.hidden[0], large.hidden[0]), WIDTH_MULTIPLE), wide_enough)
    return Sizes(
        hidden=(width,) * LAYERS,
        batch_size=_rounded(between(SMALL.batch_size, large.batch_size), BATCH_MULTIPLE),
        learning_rate=_learning_rate(width),
        target_rate=_two_digits(between(SMALL.target_rate, large.target_rate)),
        steps=_rounded(between(SMALL.steps, large.steps), STEPS_MULTIPLE),
    )


def discount(episode_length: float) -> float:
    """Returns gamma for the mean number of transitions in an episode: 1 / (1 - gamma) is a tenth of it, within limits.

    Episodes of 1,000 and 2,000 steps get the paper's 0.99 and 0.995. The length only stands in for the steps to a goal,
    which matter: logs whose episodes pass several goals need less, and stitching tasks, whose episodes end long before
    the goal, need more.
    """
    low, high = DISCOUNTS
    return min(max(round(1 - HORIZONS_PER_EPISODE / max(episode_length, 1.0), 4), low), high)


LOG_ROWS = 20  # of a run on own data


def is_own(task: Task | None) -> bool:
    """Whether sizes are chosen by the amount of data: there is no task, or only an environment to evaluate in."""
    return task is None or isinstance(task, OwnTask)


def own_defaults(data: "Data", device: str, steps: int | None = None) -> dict[str, Any]:
    """Returns defaults for data without a task, by name: fields of methods and of `Training`.

    `steps` are those that the user chose, if any, which are not checked yet.
    """
    transitions = data.counts["transitions"]
    chosen = sizes(transitions, data.train.spec.observation_dim, device)
    episodes = max(1, data.counts["rows"] - transitions)
    log_every = max(1, (steps if isinstance(steps, int) else chosen.steps) // LOG_ROWS)
    return {**chosen._asdict(), "gamma": discount(transitions / episodes), "log_every": log_every}


# --- expected time ---


def multiply_adds(algorithm: "Algorithm", update: "Update", dataset: "Dataset") -> int:
    """Returns the multiplications in the matrix products of one gradient step of one seed."""
    import jax

    from gtrl.training.loop import loss_of

    def gradient(nets: Any, target: Any, dataset: "Dataset", key: Any) -> Any:
        return jax.grad(lambda nets: loss_of(algorithm, update, nets, target, dataset, key)[0])(nets)

    key = jax.random.key(0)
    nets = jax.eval_shape(lambda key: algorithm.init(key, dataset.spec), key)
    target = jax.eval_shape(algorithm.targets, nets)
    return _multiply_adds_in(jax.make_jaxpr(gradient)(nets, target, dataset, key).jaxpr)


def _multiply_adds_in(jaxpr: Any) -> int:
    """Returns the multiplications in the matrix products of a program, those of its subprograms included."""
    from jax.extend.core import jaxprs_in_params

    total = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            shape = equation.invars[0].aval.shape
            total += math.prod(equation.outvars[0].aval.shape) * math.prod(shape[axis] for axis in contracted)
        repeats = equation.params["length"] if equation.primitive.name == "scan" else 1
        total += repeats * sum(map(_multiply_adds_in, jaxprs_in_params(equation.params)))
    return total


def multiply_adds_per_second(hidden: tuple[int, ...], batch_size: int, fast: tuple[str, ...] = ()) -> float:
    """Measures how fast this device computes gradients of one network with these widths. Takes less than a second.

    Activations and layer norms are part of the time, which they dominate where layers are narrow.
    """
    import jax
    import jax.numpy as jnp

    from gtrl.nn.networks import forward, init_mlp
    from gtrl.nn.speed import using

    rows = jnp.ones((batch_size, hidden[0]))
    layers = init_mlp(jax.random.key(0), (hidden[0], *hidden, 1))
    with using(fast):
        gradient = jax.grad(lambda layers: (forward(layers, rows) ** 2).mean())
        count = _multiply_adds_in(jax.make_jaxpr(gradient)(layers).jaxpr)
        compiled = jax.jit(gradient).lower(layers).compile()
    jax.block_until_ready(compiled(layers))  # the first call is slower
    start_time, calls = time.perf_counter(), 0
    while time.perf_counter() - start_time < CALIBRATION_SECONDS:
        jax.block_until_ready(compiled(layers))
        calls += 1
    return count * calls / (time.perf_counter() - start_time)


def expected_seconds(algorithm: "Algorithm", update: "Update", dataset: "Dataset", steps: int, seeds: int = 1) -> float:
    """Returns about how long training will take on this machine, without compilation: right within a factor of two.

    The matrix products of a step are counted, and their rate is measured on a network of the same size.
    """
    from gtrl.training.loop import parallel_parts

    work = multiply_adds(algorithm, update, dataset) * steps
    rate = multiply_adds_per_second(algorithm.hidden, update.batch_size, update.fast)
    at_once = parallel_parts(algorithm, update, seeds) if "apart" in update.fast else 1
    return work * math.ceil(seeds / at_once) / rate


def plan_message(algorithm: "Algorithm", training: "Training", data: "Data", seeds: int, seconds: float) -> str:
    """Returns the sentence that is printed before training on own data starts."""
    widths = "×".join(map(str, algorithm.hidden))
    sizes = f"{widths} units, batches of {training.batch_size}, {training.steps:,} steps, gamma {algorithm.gamma:g}"
    several = f" for {seeds} seeds" if seeds > 1 else ""
    transitions = data.counts["transitions"]
    change = "--hidden, --batch-size, --steps and --gamma change them"
    return f"{transitions:,} transitions: {sizes}{several}; about {_duration(seconds)} on this machine ({change})"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:,.1f} hours"


def long_training_warning(seconds: float, seeds: int, device: str, precision: str) -> str | None:
    """Returns what would be faster, as a sentence, where more than an hour is expected; else None."""
    if seconds <= LONG_SECONDS:
        return None
    faster = ["a smaller network (--hidden 128 128 128)", "a smaller --batch-size", "fewer --steps"]
    if seeds > 1:
        faster.append(f"one seed instead of {seeds} (--seeds 0)")
    if device == "cpu":
        faster.append("a GPU")
    elif precision == "float32":
        faster.append("--precision bfloat16")
    hours = f"training is expected to take {seconds / 3600:,.1f} hours"
    return f"{hours}; faster would be {', '.join(faster[:-1])} or {faster[-1]}."
