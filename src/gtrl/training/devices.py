"""Seeds side by side in one program, on one device or several."""

from collections.abc import Callable
from math import gcd
from typing import Any

import jax
import numpy as np
from jax import Array
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from gtrl.data.dataset import Dataset
from gtrl.data.sampling import Batch
from gtrl.errors import ConfigError
from gtrl.nn.speed import using
from gtrl.training.config import Update


def mesh(how: Update, seeds: int) -> Mesh | None:
    """Devices as (seeds, batch): as many shares of the seeds as divide them, and of the batch what is left.

    Unless `devices` says how many, the batch stays whole: dividing it costs more than it brings.
    """
    across = gcd(seeds, how.devices or jax.local_device_count())
    within = (how.devices or across) // across
    if how.batch_size % within:
        reason = f"{seeds} seeds and batches of {how.batch_size} do not divide evenly over them"
        raise ConfigError(f"devices is {how.devices}, but {reason}.")
    if across * within == 1:
        return None
    devices = np.array(jax.local_devices()[: across * within]).reshape(across, within)
    return Mesh(devices, ("seeds", "batch"), axis_types=(AxisType.Auto, AxisType.Auto))


def everywhere(how: Update, dataset: Dataset, seeds: int) -> Dataset:
    """The dataset on each device that is used; sent there once, not with every chunk."""
    found = mesh(how, seeds)
    return dataset if found is None else jax.device_put(dataset, NamedSharding(found, PartitionSpec()))


def divided(batch: Batch) -> Batch:
    """Each device's share of the rows, where the batch is spread; every row is drawn as if it were not."""
    mesh = jax.sharding.get_abstract_mesh()
    if dict(mesh.shape).get("batch", 1) == 1:
        return batch
    return jax.tree.map(lambda leaf: jax.lax.with_sharding_constraint(leaf, PartitionSpec("batch")), batch)


def each_seed(how: Update, function: Callable[..., Any], states: Any, keys: Array, *shared: Any) -> Any:
    """`function(state, key, *shared)` of every seed, in one program on however many devices."""
    over, fast = mesh(how, len(keys)), how.fast
    if over is not None and over.shape["batch"] > 1:
        fast = tuple(name for name in fast if name != "kernels")  # XLA cannot divide what it has not made
    copies = len(keys) // (over.shape["seeds"] if over else 1)

    def side_by_side(states: Any, keys: Array, *shared: Any) -> Any:
        with using(fast, copies):
            if "apart" in fast and len(keys) == 1:
                state = function(jax.tree.map(lambda leaf: leaf[0], states), keys[0], *shared)
                return jax.tree.map(lambda leaf: leaf[None], state)
            return jax.vmap(lambda state, key: function(state, key, *shared))(states, keys)

    if over is None:
        return side_by_side(states, keys, *shared)
    each, all_of_it = PartitionSpec("seeds"), PartitionSpec()
    return jax.shard_map(
        side_by_side,
        mesh=over,
        in_specs=(each, each, *(all_of_it for _ in shared)),
        out_specs=each,
        axis_names={"seeds"} if over.shape["batch"] > 1 else {"seeds", "batch"},
        check_vma=False,
    )(states, keys, *shared)
