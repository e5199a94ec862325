"""`gtrl bench`: how fast training is, beside what the machine could do and beside a loop as others write it.

Everything is measured in one run on one machine: our program, a reference-style loop (sampling in NumPy on the host,
one dispatch a step, one seed), and the two rates that bound both: of a large matrix product and of memory. Times are
medians over repeats, after a warm-up; the first step, which compiles, is reported separately.
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

REPEAT_SECONDS = 0.5  # that one repeat takes, about


@dataclasses.dataclass(frozen=True)
class Case:
    """What is timed."""

    method: str
    spec: Spec
    seeds: int
    batch_size: int
    precision: str
    fast: tuple[str, ...]
    hidden: tuple[int, ...]

    @property
    def algorithm(self) -> Algorithm:
        return make(self.method, hidden=self.hidden)

    @property
    def update(self) -> config.Update:
        return config.Update(
            batch_size=self.batch_size, learning_rate=LEARNING_RATE, precision=self.precision, fast=self.fast
        )


def synthetic(spec: Spec, transitions: int, length: int = 1000, seed: int = 0) -> Dataset:
    """Noise in the shape of a task: what is in a dataset does not change how long a step takes."""
    rng = np.random.default_rng(seed)
    rows = -(-transitions // length) * (length + 1)
    terminals = np.zeros(rows, bool)
    terminals[length :: length + 1] = True
    draw = lambda size: rng.standard_normal((rows, size), np.float32)  # noqa: E731
    actions = np.clip(draw(spec.action_dim), -1, 1)
    return make_dataset(draw(spec.observation_dim), actions, terminals, draw(spec.goal_dim))


# --- our program ---


def timed(run: Callable[[int], Any], repeats: int, seconds: float = REPEAT_SECONDS) -> list[float]:
    """Seconds a step, of each repeat; `run(n)` takes n steps and waits for them."""
    run(2)
    steps, took = 1, 0.0
    while took < seconds / 4:  # how many steps fill a repeat
        steps = max(2 * steps, min(10 * steps, int(seconds / 2 / max(took / steps, 1e-9)))) if took else 2
        began = time.perf_counter()
        run(steps)
        took = time.perf_counter() - began
    steps = max(driver.CHUNK_STEPS, round(seconds * steps / took))
    found = []
    for _ in range(repeats):
        began = time.perf_counter()
        run(steps)
        found.append((time.perf_counter() - began) / steps)
    return found


def measure(case: Case, data: Dataset, repeats: int, seconds: float = REPEAT_SECONDS) -> dict[str, Any]:
    """Our program: how long the first step takes, which compiles, and each of the others."""
    algorithm, how = case.algorithm, case.update
    keys = loop.seed_keys(range(case.seeds))
    parts = loop.divide(how, loop.init(algorithm, how, case.spec, keys, data))

    def run(steps: int) -> None:
        nonlocal parts
        parts = loop.advance_parts(algorithm, how, parts, keys, data, steps)

    began = time.perf_counter()
    run(1)
    first = time.perf_counter() - began
    times = timed(run, repeats, seconds)
    if not all(bool(jnp.isfinite(leaf).all()) for part in parts for leaf in jax.tree.leaves(part.sums)):
        raise RuntimeError(f"{case}: a metric is not finite")  # a wrong program may be a fast one
    return {
        "seconds_per_step": statistics.median(times),
        "spread": (max(times) - min(times)) / statistics.median(times),
        "first_seconds": first,
    }


def memory(case: Case, data: Dataset) -> dict[str, int]:
    """Bytes the compiled program holds: its arguments (the dataset once, the states), and what it needs besides."""
    algorithm, how = case.algorithm, case.update
    keys = loop.seed_keys(range(case.seeds))
    states = loop.init(algorithm, how, case.spec, keys, data)
    parts = loop.divide(how, states)
    own_keys = keys[: len(keys) // len(parts)]
    program = loop.program(how).lower(algorithm, how, parts[0], own_keys, data, jnp.int32(1)).compile()
    needed, dataset = program.memory_analysis(), sum(leaf.nbytes for leaf in data)
    states_bytes = len(parts) * (needed.argument_size_in_bytes - dataset)
    return {"argument_bytes": dataset + states_bytes, "temporary_bytes": len(parts) * needed.temp_size_in_bytes}


# --- a loop as others write it ---


def host_goals(
    rng: np.random.Generator, row: np.ndarray, end: np.ndarray, rows: int, mixture: Goals, geometric: bool, gamma: float
) -> np.ndarray:
    """`gtrl.data.sampling.sample_goals` in NumPy."""
    count = len(row)
    offset = rng.geometric(1 - gamma, count) if geometric else 1 + (rng.random(count) * (end - row)).astype(np.int64)
    ahead = np.minimum(row + offset, end)
    choice = rng.random(count)
    current, trajectory, _ = mixture
    anywhere = rng.integers(rows, size=count)
    return np.where(choice < current, row, np.where(choice < current + trajectory, ahead, anywhere))


def host_batch(rng: np.random.Generator, data: dict[str, np.ndarray], size: int, algorithm: Algorithm) -> Batch:
    """`gtrl.data.sampling.sample_batch` in NumPy, for methods that look one step ahead."""
    observations, actions, goals = data["observations"], data["actions"], data["goals"]
    rows = len(observations)
    i = data["transitions"][rng.integers(len(data["transitions"]), size=size)]
    end = data["ends"][i]
    how = (rows, algorithm.value_goals, algorithm.value_geometric, algorithm.gamma)
    j = host_goals(rng, i, end, *how)
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
    }
    return Batch(**arrays)


@partial(jax.jit, static_argnames="algorithm", donate_argnames="state")
def host_step(algorithm: Algorithm, state: tuple[Any, Any, Any], batch: Batch, key: Array) -> tuple[Any, Any]:
    """One step of one seed on a batch that came from the host: plain formulas, float32."""
    nets, target, moments = state
    optimizer = optax.adam(LEARNING_RATE)
    loss = lambda nets: algorithm.loss(nets, target, batch, key)  # noqa: E731
    grads, metrics = jax.grad(loss, has_aux=True)(nets)
    changes, moments = optimizer.update(grads, moments)
    nets = optax.apply_updates(nets, changes)
    target = optax.incremental_update(algorithm.targets(nets), target, algorithm.target_rate)
    return (nets, target, moments), metrics


def measure_reference(case: Case, data: Dataset, repeats: int, seconds: float = REPEAT_SECONDS) -> dict[str, Any]:
    """The loop of public code: draw in NumPy, send, dispatch one step; nothing waits for its result."""
    algorithm = case.algorithm
    if algorithm.lookahead > 1:
        raise ValueError(f"{case.method} looks {algorithm.lookahead} steps ahead; the reference loop looks one")
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

    drawing = []
    for _ in range(10):
        began = time.perf_counter()
        host_batch(rng, host, case.batch_size, algorithm)
        drawing.append(time.perf_counter() - began)
    times = timed(run, repeats, seconds)
    return {"seconds_per_step": statistics.median(times), "sampling_seconds": statistics.median(drawing)}


# --- what the machine could do ---


def work(case: Case, data: Dataset) -> dict[str, int]:
    """What one step of all seeds cannot do without: operations of its matrix products, and bytes.

    Each matrix product reads its operands and writes its result once; parameters, moments and targets are read and
    written once. Counted in the plain program, so that no optimisation can flatter itself.
    """
    how = case.update._replace(fast=())
    algorithm, key = case.algorithm, jax.random.key(0)
    state = jax.eval_shape(lambda: jax.tree.map(lambda x: x[0], loop.init(algorithm, how, case.spec, key[None], data)))
    jaxpr = jax.make_jaxpr(partial(loop.update, algorithm, how, data, key))(state)
    flops = moved = 0
    for equation in _equations(jaxpr.jaxpr):
        if equation.primitive.name == "dot_general":
            left, right = (variable.aval for variable in equation.invars)
            result = equation.outvars[0].aval
            contracted = prod(left.shape[axis] for axis in equation.params["dimension_numbers"][0][0])
            flops += 2 * prod(result.shape) * contracted
            moved += sum(prod(x.shape) * x.dtype.itemsize for x in (left, right, result))
    kept = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))
    return {"flops": case.seeds * flops, "bytes": case.seeds * (moved + 2 * kept)}


def _equations(jaxpr: Any) -> Iterator[Any]:
    """All equations, those inside others too."""
    for equation in jaxpr.eqns:
        yield equation
        for inner in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda x: hasattr(x, "eqns")):
            if hasattr(inner, "eqns") or hasattr(inner, "jaxpr"):
                yield from _equations(getattr(inner, "jaxpr", inner))


def machine_rates(precision: str) -> dict[str, float]:
    """Measured: operations a second of a large matrix product, bytes a second of a large copy (read and written)."""
    on_cpu = jax.default_backend() == "cpu"
    size = 2048 if on_cpu else 8192
    x = jax.random.normal(jax.random.key(0), (size, size), precision)
    product = jax.jit(lambda x, y, n: jax.lax.fori_loop(0, n, lambda _, x: (x @ y) * jnp.asarray(0.01, x.dtype), x))
    per_product = min(timed(lambda n: jax.block_until_ready(product(x, x, n)), 3, 0.3))
    wide = jnp.ones(2**26 if on_cpu else 2**29, jnp.float32)
    copy = jax.jit(lambda x, n: jax.lax.fori_loop(0, n, lambda _, x: x + 1, x))
    per_copy = min(timed(lambda n: jax.block_until_ready(copy(wide, n)), 3, 0.3))
    return {"flops_per_second": 2 * size**3 / per_product, "bytes_per_second": 2 * wide.nbytes / per_copy}


# --- the command ---


def variants(fast: Sequence[str], ablate: bool) -> list[tuple[str, ...]]:
    """What to switch on: all asked for; to see what each brings, also all but one, and none."""
    chosen = tuple(sorted(fast))
    if not ablate:
        return [chosen]
    fewer = [tuple(name for name in chosen if name != out) for out in chosen]
    return list(dict.fromkeys([chosen, *fewer, ()]))


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
    """All combinations: rows with rates, limits and ratios. The reference is timed once a method and batch size."""
    spec = Spec(task.observation_dim, task.action_dim, task.goal_dim)
    chosen = speed.best(jax.default_backend()) if fast is None else fast
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
            row = _measured_beside_limits(case, data, rates[case.precision], repeats)
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


def _measured_beside_limits(case: Case, data: Dataset, limits: dict[str, float], repeats: int) -> dict[str, Any]:
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


def shown(result: dict[str, Any]) -> Any:
    """The rows as a table."""
    columns = [
        "method", "precision", "fast", "seeds", "batch", "seed-steps/s", "ms a step", "±", "first step s", "matrix ms",
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
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=2) + "\n")
