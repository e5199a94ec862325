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


def make_mesh(update: Update, seeds: int) -> Mesh | None:
    """Returns the mesh of devices, (seeds, batch), or None for a single device.

    The seeds are divided over as many devices as possible; the devices that are left divide the batch. If `devices` is
    not set, the batch is not divided, because that costs more time than it saves.
    """
    across_seeds = gcd(seeds, update.devices or jax.local_device_count())
    across_batch = (update.devices or across_seeds) // across_seeds
    if update.batch_size % across_batch:
        reason = f"{seeds} seeds and batches of {update.batch_size} do not divide evenly over them"
        raise ConfigError(f"devices is {update.devices}, but {reason}.")
    if across_seeds * across_batch == 1:
        return None
    devices = np.array(jax.local_devices()[: across_seeds * across_batch]).reshape(across_seeds, across_batch)
    return Mesh(devices, ("seeds", "batch"), axis_types=(AxisType.Auto, AxisType.Auto))


def replicate(update: Update, dataset: Dataset, seeds: int) -> Dataset:
    """Copies the dataset to each device of the mesh, once rather than with every chunk of steps."""
    mesh = make_mesh(update, seeds)
    return dataset if mesh is None else jax.device_put(dataset, NamedSharding(mesh, PartitionSpec()))


def shard_batch(batch: Batch) -> Batch:
    """Divides the rows over the mesh axis `batch`, if there is one. The rows are the same as without."""
    mesh = jax.sharding.get_abstract_mesh()
    if dict(mesh.shape).get("batch", 1) == 1:
        return batch
    return jax.tree.map(lambda leaf: jax.lax.with_sharding_constraint(leaf, PartitionSpec("batch")), batch)


def map_seeds(update: Update, function: Callable[..., Any], states: Any, keys: Array, *shared: Any) -> Any:
    """Applies `function(state, key, *shared)` to every seed, in one program on all devices of the mesh."""
    mesh, fast = make_mesh(update, len(keys)), update.fast
    if mesh is not None and mesh.shape["batch"] > 1:
        fast = tuple(name for name in fast if name != "kernels")  # XLA cannot partition custom kernels
    copies = len(keys) // (mesh.shape["seeds"] if mesh else 1)

    def side_by_side(states: Any, keys: Array, *shared: Any) -> Any:
        with using(fast, copies):
            if "apart" in fast and len(keys) == 1:
                state = function(jax.tree.map(lambda leaf: leaf[0], states), keys[0], *shared)
                return jax.tree.map(lambda leaf: leaf[None], state)
            return jax.vmap(lambda state, key: function(state, key, *shared))(states, keys)

    if mesh is None:
        return side_by_side(states, keys, *shared)
    by_seed, replicated = PartitionSpec("seeds"), PartitionSpec()
    return jax.shard_map(
        side_by_side,
        mesh=mesh,
        in_specs=(by_seed, by_seed, *(replicated for _ in shared)),
        out_specs=by_seed,
        axis_names={"seeds"} if mesh.shape["batch"] > 1 else {"seeds", "batch"},
        check_vma=False,
    )(states, keys, *shared)
