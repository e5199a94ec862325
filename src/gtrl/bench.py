"""Measures training speed (`gtrl bench`), next to the limits of the hardware and a conventional training loop.

Everything is measured in one run on one machine: the package's training step, a reference loop (sampling in NumPy on
the host, one dispatch per step, one seed), and the two rates that bound both, of a large matrix product and of memory.
Times are medians over repeats, after a warm-up; the first step, which compiles, is reported separately.
"""

import dataclasses
import json
import platform
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from gtrl import __version__, console
from gtrl.algorithms import Algorithm, make
from gtrl.data.dataset import Dataset, Spec, make_dataset
from gtrl.data.sampling import Batch
from gtrl.nn import speed
from gtrl.tasks import LEARNING_RATE, Goals, OGBenchTask
from gtrl.training import config, driver, loop

REPEAT_SECONDS = 0.5  # approximate duration of one repeat


@dataclasses.dataclass(frozen=True)
class Case:
    """A combination of method, sizes and optimisations that is timed."""

    method: str
    spec: Spec
    seeds: int  # how many are trained together
    batch_size: int
    precision: str
    fast: tuple[str, ...]
    hidden: tuple[int, ...]

    @property
    def algorithm(self) -> Algorithm:
        """The method with its default hyperparameters and this case's network widths."""
        return make(self.method, hidden=self.hidden)

    @property
    def update(self) -> config.Update:
        """The settings of the training step: batch size, precision and optimisations of this case."""
        return config.Update(
            batch_size=self.batch_size, learning_rate=LEARNING_RATE, precision=self.precision, fast=self.fast
        )


def synthetic(spec: Spec, transitions: int, length: int = 1000, seed: int = 0) -> Dataset:
    """Returns a dataset of random numbers: the duration of a step depends on its dimensions only."""
    rng = np.random.default_rng(seed)
    rows = -(-transitions // length) * (length + 1)
    terminals = np.zeros(rows, bool)
    terminals[length :: length + 1] = True

    def normal(columns: int) -> np.ndarray:
        return rng.standard_normal((rows, columns), np.float32)

    actions = np.clip(normal(spec.action_dim), -1, 1)
    return make_dataset(normal(spec.observation_dim), actions, terminals, normal(spec.goal_dim))


# --- the package's training step ---


def timed(run: Callable[[int], Any], repeats: int, seconds: float = REPEAT_SECONDS) -> list[float]:
    """Returns the seconds per step of each repeat; `run(n)` takes n steps and waits for them to finish."""
    run(2)  # warm-up
    steps, elapsed = 1, 0.0
    while elapsed < seconds / 4:  # find how many steps fill a repeat
        steps = max(2 * steps, min(10 * steps, int(seconds / 2 / max(elapsed / steps, 1e-9)))) if elapsed else 2
        elapsed = _elapsed(run, steps)
    steps = max(driver.MIN_CHUNK_STEPS, round(seconds * steps / elapsed))
    return [_elapsed(run, steps) / steps for _ in range(repeats)]


def _elapsed(run: Callable[[int], Any], steps: int) -> float:
    """The seconds that `run(steps)` takes."""
    start_time = time.perf_counter()
    run(steps)
    return time.perf_counter() - start_time


def measure(case: Case, data: Dataset, repeats: int, seconds: float = REPEAT_SECONDS) -> dict[str, Any]:
    """Times the package's training step: the first, which compiles, and the following ones."""
    algorithm, update = case.algorithm, case.update
    keys = loop.seed_keys(range(case.seeds))
    parts = loop.divide(update, loop.init(algorithm, update, case.spec, keys, data))

    def run(steps: int) -> None:
        nonlocal parts
        parts = loop.advance_parts(algorithm, update, parts, keys, data, steps)

    first_seconds = _elapsed(run, 1)
    times = timed(run, repeats, seconds)
    if not all(bool(jnp.isfinite(leaf).all()) for part in parts for leaf in jax.tree.leaves(part.sums)):
        raise RuntimeError(f"{case}: a metric is not finite")  # the time of a wrong computation means nothing
    return {
        "seconds_per_step": statistics.median(times),
        "spread": (max(times) - min(times)) / statistics.median(times),
        "first_seconds": first_seconds,
    }


def memory(case: Case, data: Dataset) -> dict[str, int]:
    """Returns the bytes of the compiled program: of its arguments (dataset and states) and of its temporary arrays."""
    algorithm, update = case.algorithm, case.update
    keys = loop.seed_keys(range(case.seeds))
    states = loop.init(algorithm, update, case.spec, keys, data)
    parts = loop.divide(update, states)
    own_keys = keys[: len(keys) // len(parts)]
    program = loop.program(update).lower(algorithm, update, parts[0], own_keys, data, jnp.int32(1)).compile()
    analysis, dataset_bytes = program.memory_analysis(), sum(leaf.nbytes for leaf in jax.tree.leaves(data))
    states_bytes = len(parts) * (analysis.argument_size_in_bytes - dataset_bytes)
    return {
        "argument_bytes": dataset_bytes + states_bytes,
        "temporary_bytes": len(parts) * analysis.temp_size_in_bytes,
    }


# --- the reference: a conventional training loop ---


def host_goals(
    rng: np.random.Generator, row: np.ndarray, end: np.ndarray, rows: int, mixture: Goals, geometric: bool, gamma: float
) -> np.ndarray:
    """`gtrl.data.sampling.sample_goals` in NumPy, for comparison."""
    count = len(row)
    offset = rng.geometric(1 - gamma, count) if geometric else 1 + (rng.random(count) * (end - row)).astype(np.int64)
    ahead = np.minimum(row + offset, end)
    choice = rng.random(count)
    current, trajectory, _ = mixture
    anywhere = rng.integers(rows, size=count)
    return np.where(choice < current, row, np.where(choice < current + trajectory, ahead, anywhere))


def host_batch(rng: np.random.Generator, data: dict[str, np.ndarray], size: int, algorithm: Algorithm) -> Batch:
    """`gtrl.data.sampling.sample_batch` in NumPy, for methods with one-step targets."""
    observations, actions, goals = data["observations"], data["actions"], data["goals"]
    rows = len(observations)
    i = data["transitions"][rng.integers(len(data["transitions"]), size=size)]
    end = data["ends"][i]
    j = host_goals(rng, i, end, rows, algorithm.value_goals, algorithm.value_geometric, algorithm.gamma)
    actor_j = host_goals(rng, i, end, rows, algorithm.actor_goals, algorithm.actor_geometric, algorithm.gamma)
    ahead = (j > i) & (j <= end)
    k = i + (rng.random(size) * np.where(ahead, j - i, 1)).astype(np.int64)
    following, following_action = observations[i + 1], actions[i + 1]
    arrays: dict[str, Any] = {
        "observation": observations[i],
        "action": actions[i],
        "next_observation": following,
        "next_action": following_action,
        "value_goal": observations[j],
        "value_goal_oracle": goals[j],
        "actor_goal": goals[actor_j],
        "subgoal": observations[k],
        "subgoal_action": actions[k],
        "decomposable": ahead,
        "goal_offset": j - i,
        "subgoal_offset": k - i,
        "goal_is_state": j == i,
        "goal_is_next": j == i + 1,
        "subgoal_is_state": k == i,
        "subgoal_is_next": k == i + 1,
        "goal_is_subgoal": j == k,
        "goal_is_after_subgoal": j == k + 1,
        "ahead_observation": following,
        "ahead_action": following_action,
        "ahead_steps": np.ones(size, np.int64),
        "arrives": (j == i) | (j == i + 1),
        "arrival": np.where(j == i, 0, 1),
        "next_is_last": i + 1 == end,
    }
    return Batch(**arrays)


@partial(jax.jit, static_argnames="algorithm", donate_argnames="state")
def host_step(algorithm: Algorithm, state: tuple[Any, Any, Any], batch: Batch, key: Array) -> tuple[Any, Any]:
    """Takes one training step of one seed on a batch from the host, without optimisations, in float32."""
    nets, target, moments = state
    optimizer = optax.adam(LEARNING_RATE)
    grads, metrics = jax.grad(lambda nets: algorithm.loss(nets, target, batch, key), has_aux=True)(nets)
    updates, moments = optimizer.update(grads, moments)
    nets = optax.apply_updates(nets, updates)
    target = optax.incremental_update(algorithm.targets(nets), target, algorithm.target_rate)
    return (nets, target, moments), metrics


def measure_reference(case: Case, data: Dataset, repeats: int, seconds: float = REPEAT_SECONDS) -> dict[str, Any]:
    """Times the conventional loop: sample in NumPy, transfer, dispatch one step without waiting for its result."""
    algorithm = case.algorithm
    if algorithm.lookahead > 1:
        raise ValueError(
            f"{case.method} uses {algorithm.lookahead}-step targets; the reference loop has one-step targets"
        )
    host = {name: np.asarray(value) for name, value in data._asdict().items()}
    rng, key = np.random.default_rng(0), jax.random.key(0)
    nets = algorithm.init(key, case.spec)
    target = jax.tree.map(jnp.copy, algorithm.targets(nets))
    state = (nets, target, optax.adam(LEARNING_RATE).init(nets))

    def run(steps: int) -> None:
        nonlocal state, key
        for _ in range(steps):
            key, step_key = jax.random.split(key)
            state, _ = host_step(algorithm, state, host_batch(rng, host, case.batch_size, algorithm), step_key)
        jax.block_until_ready(state)

    sampling = [_elapsed(lambda size: host_batch(rng, host, size, algorithm), case.batch_size) for _ in range(10)]
    times = timed(run, repeats, seconds)
    return {"seconds_per_step": statistics.median(times), "sampling_seconds": statistics.median(sampling)}


# --- the limits of the hardware ---


def work(case: Case, data: Dataset) -> dict[str, int]:
    """Returns the minimum work of one step of all seeds: operations of its matrix products, and bytes moved.

    Each matrix product reads its operands and writes its result once; parameters, moments and targets are read and
    written once. Both are counted in the step without optimisations, so that the limit is the same for all of them.
    """
    update = case.update._replace(fast=())
    algorithm, key = case.algorithm, jax.random.key(0)
    state = jax.eval_shape(
        lambda: jax.tree.map(lambda x: x[0], loop.init(algorithm, update, case.spec, key[None], data))
    )
    jaxpr = jax.make_jaxpr(partial(loop.gradient_step, algorithm, update, data, key))(state)
    flops = moved = 0
    for equation in _equations(jaxpr.jaxpr):
        if equation.primitive.name == "dot_general":
            left, right = (variable.aval for variable in equation.invars)
            result = equation.outvars[0].aval
            contracted = prod(left.shape[axis] for axis in equation.params["dimension_numbers"][0][0])
            flops += 2 * prod(result.shape) * contracted
            moved += sum(prod(x.shape) * x.dtype.itemsize for x in (left, right, result))
    state_bytes = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))
    return {"flops": case.seeds * flops, "bytes": case.seeds * (moved + 2 * state_bytes)}


def _equations(jaxpr: Any) -> Iterator[Any]:
    """Yields all equations of a jaxpr, including those of nested jaxprs."""
    for equation in jaxpr.eqns:
        yield equation
        for inner in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda x: hasattr(x, "eqns")):
            if hasattr(inner, "eqns") or hasattr(inner, "jaxpr"):
                yield from _equations(getattr(inner, "jaxpr", inner))


def machine_rates(precision: str) -> dict[str, float]:
    """Measures the FLOP/s of a large matrix product and the bytes/s, read and written, of a large copy."""
    on_cpu = jax.default_backend() == "cpu"
    size = 2048 if on_cpu else 8192
    x = jax.random.normal(jax.random.key(0), (size, size), precision)
    product = jax.jit(lambda x, y, n: jax.lax.fori_loop(0, n, lambda _, x: (x @ y) * jnp.asarray(0.01, x.dtype), x))
    per_product = min(timed(lambda n: jax.block_until_ready(product(x, x, n)), 3, 0.3))
    vector = jnp.ones(2**26 if on_cpu else 2**29, jnp.float32)
    copy = jax.jit(lambda x, n: jax.lax.fori_loop(0, n, lambda _, x: x + 1, x))
    per_copy = min(timed(lambda n: jax.block_until_ready(copy(vector, n)), 3, 0.3))
    return {"flops_per_second": 2 * size**3 / per_product, "bytes_per_second": 2 * vector.nbytes / per_copy}


# --- the command ---


def variants(fast: Sequence[str], ablate: bool) -> list[tuple[str, ...]]:
    """Returns the sets of optimisations to time: all of them; with `ablate` also all but one of them, and none."""
    chosen = tuple(sorted(fast))
    if not ablate:
        return [chosen]
    all_but_one = [tuple(name for name in chosen if name != omitted) for omitted in chosen]
    return list(dict.fromkeys([chosen, *all_but_one, ()]))


def bench(
    task: OGBenchTask,
    methods: Sequence[str] = ("gtrl", "trl"),
    *,
    seeds: Sequence[int] = (1, 4),
    batch_sizes: Sequence[int] = (1024,),
    precisions: Sequence[str] = ("float32", "bfloat16"),
    fast: Sequence[str] | None = None,
    ablate: bool = False,
    hidden: Sequence[int] = (512, 512, 512),
    transitions: int = 1_000_000,
    repeats: int = 5,
    reference: bool = True,
    show: bool = True,
) -> dict[str, Any]:
    """Times all combinations of methods, seeds, batch sizes, precisions and optimisations.

    The reference loop is timed once per method and batch size. The arguments are those of `gtrl bench`.

    Returns:
        The task, the machine, and one row per combination with its speed, limits and ratio to the reference.
    """
    spec = Spec(task.observation_dim, task.action_dim, task.goal_dim)
    chosen = speed.defaults_for(jax.default_backend()) if fast is None else fast
    data = synthetic(spec, transitions, min(task.trajectory_length, transitions))
    rates = {precision: machine_rates(precision) for precision in precisions}
    references: dict[tuple[str, int], dict[str, Any]] = {}
    cases = [
        Case(method, spec, count, size, precision, variant, tuple(hidden))
        for method in methods
        for size in batch_sizes
        for precision in precisions
        for count in seeds
        for variant in variants(chosen, ablate)
    ]
    rows = []
    with console.bar("bench", len(cases), "cases", show) as bar:
        for case in cases:
            row = _measure_with_limits(case, data, rates[case.precision], repeats)
            if reference and case.algorithm.lookahead == 1:
                key = (case.method, case.batch_size)
                references[key] = references.get(key) or measure_reference(case, data, repeats)
                row["reference_steps_per_second"] = 1 / references[key]["seconds_per_step"]
                row["reference_sampling_seconds"] = references[key]["sampling_seconds"]
                row["ratio"] = row["seed_steps_per_second"] / row["reference_steps_per_second"]
            rows.append(row)
            bar(1, f"{case.method} {row['seed_steps_per_second']:,.0f}/s")
    machine = _machine() | {"rates": rates}
    return {"task": task.name, "transitions": len(data.transitions), "machine": machine, "rows": rows}


def _measure_with_limits(case: Case, data: Dataset, limits: dict[str, float], repeats: int) -> dict[str, Any]:
    row: dict[str, Any] = dataclasses.asdict(case) | {"spec": list(case.spec)} | measure(case, data, repeats)
    needed = work(case, data)
    matrix_seconds = needed["flops"] / limits["flops_per_second"]
    memory_seconds = needed["bytes"] / limits["bytes_per_second"]
    return row | {
        "seed_steps_per_second": case.seeds / row["seconds_per_step"],
        **needed,
        "matrix_seconds": matrix_seconds,
        "memory_seconds": memory_seconds,
        "limit_seed_steps_per_second": case.seeds / max(matrix_seconds, memory_seconds),
    }


def _machine() -> dict[str, Any]:
    return {
        "device": jax.devices()[0].device_kind,
        "devices": jax.local_device_count(),
        "processor": platform.processor() or platform.machine(),
        "jax": jax.__version__,
        "gtrl": __version__,
    }


def results_table(result: dict[str, Any]) -> Any:
    """Returns the results of `bench` as a table for the console."""
    columns = [
        "method", "precision", "fast", "seeds", "batch", "seed-steps/s", "ms/step", "±", "first step s", "matrix ms",
        "memory ms", "limit", "reference/s", "ratio",
    ]  # fmt: skip
    lines = [
        [
            row["method"],
            row["precision"],
            " ".join(row["fast"]) or "plain",
            row["seeds"],
            row["batch_size"],
            f"{row['seed_steps_per_second']:,.0f}",
            f"{1e3 * row['seconds_per_step']:.3f}",
            f"{100 * row['spread']:.0f} %",
            f"{row['first_seconds']:.1f}",
            f"{1e3 * row['matrix_seconds']:.3f}",
            f"{1e3 * row['memory_seconds']:.3f}",
            f"{row['limit_seed_steps_per_second']:,.0f}",
            f"{row['reference_steps_per_second']:,.1f}" if "ratio" in row else "",
            f"{row['ratio']:.1f} ×" if "ratio" in row else "",
        ]
        for row in result["rows"]
    ]
    machine = result["machine"]
    rates = ", ".join(
        f"{name} {rate['flops_per_second'] / 1e12:.3g} TFLOP/s, {rate['bytes_per_second'] / 1e12:.2g} TB/s"
        for name, rate in machine["rates"].items()
    )
    title = f"{result['task']}, {result['transitions']:,} transitions, {machine['device']}; measured: {rates}"
    return console.table(title, columns, lines, text=3)


def save(result: dict[str, Any], path: Path) -> None:
    """Writes the results of `bench` to a JSON file, whose folder is created if necessary."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=2) + "\n")
