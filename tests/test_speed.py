"""The optimised paths match the plain one, on one and on several devices; measurements of `gtrl bench`."""

import os
import re
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gtrl import bench
from gtrl.algorithms import make
from gtrl.data.dataset import Spec
from gtrl.data.sampling import Batch
from gtrl.errors import ConfigError
from gtrl.io import mlp
from gtrl.nn import kernels, speed, triton
from gtrl.nn.fused import fused
from gtrl.nn.networks import Actor, ActorCritic, Critic, Network, init_ensemble, init_mlp
from gtrl.training import config, devices, loop

SPEC = Spec(5, 3, 2)
GPU, CPU = speed.ON_GPU, speed.ON_CPU


@pytest.fixture(params=["kernels", "formulas"])
def both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU, the kernels run by Pallas's interpreter; and as on a CPU."""
    monkeypatch.setattr(speed, "INTERPRETED", request.param == "kernels")


def draw(seed: int, *shape: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def parameters(groups: int, width: int) -> tuple[jax.Array, ...]:
    """Bias, scale, shift and the weight of one output."""
    return draw(1, groups, width), 1 + 0.3 * draw(2, groups, width), draw(3, groups, width), draw(4, groups, width)


def in_numpy(z: Any, bias: Any, scale: Any, shift: Any) -> np.ndarray:
    """Layer norm of GELU(z + bias), in float64."""
    z, bias, scale, shift = (np.asarray(x, np.float64) for x in (z, bias, scale, shift))
    x = z + bias[:, None]
    x = 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    normal = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + mlp.LAYER_NORM_EPSILON)
    return normal * scale[:, None] + shift[:, None]


# With as many rows as units, a parameter was once mistaken for an array of rows.
@pytest.mark.parametrize(("groups", "rows", "width"), [(3, 32, 64), (1, 64, 64), (2, 16, 128)])
@pytest.mark.usefixtures("both_ways")
def test_one_pass_against_numpy(groups: int, rows: int, width: int) -> None:
    z, (bias, scale, shift, weight) = draw(0, groups, rows, width), parameters(groups, width)
    y = in_numpy(z, bias, scale, shift)
    np.testing.assert_allclose(kernels.activate(z, bias, scale, shift), y, atol=1e-5)
    np.testing.assert_allclose(
        kernels.value(z, bias, scale, shift, weight), np.einsum("gbw,gw->gb", y, np.asarray(weight)), atol=1e-4
    )


@pytest.mark.parametrize("operation", ["activate", "value"])
@pytest.mark.usefixtures("both_ways")
def test_gradients_match_finite_differences(operation: str) -> None:
    """Each gradient along a random direction is the central difference of the NumPy formula, in float64."""
    groups, rows, width = 2, 32, 16
    arguments = (draw(0, groups, rows, width), *parameters(groups, width)[: 3 if operation == "activate" else 4])
    into = draw(9, *((groups, rows, width) if operation == "activate" else (groups, rows)))

    def exact(*arguments: np.ndarray) -> float:
        y = in_numpy(*arguments[:4])
        out = y if operation == "activate" else np.einsum("gbw,gw->gb", y, arguments[4])
        return float((out * np.asarray(into, np.float64)).sum())

    out, back = jax.vjp(getattr(kernels, operation), *arguments)
    for index, gradient in enumerate(back(into.astype(out.dtype))):
        direction = np.asarray(draw(20 + index, *arguments[index].shape), np.float64)
        moved = [np.asarray(x, np.float64) for x in arguments]
        there, back_again = (
            exact(*moved[:index], moved[index] + step * direction, *moved[index + 1 :]) for step in (1e-5, -1e-5)
        )
        slope = (there - back_again) / 2e-5
        assert float((np.asarray(gradient, np.float64) * direction).sum()) == pytest.approx(slope, rel=2e-4, abs=1e-3)


def test_nothing_is_summed_for_parameters_that_are_not_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the policy's loss; the gradient of the input is the same."""
    monkeypatch.setattr(speed, "INTERPRETED", True)
    sums = []
    summed = triton._call_summed
    monkeypatch.setattr(triton, "_call_summed", lambda *call: sums.append(call) or summed(*call))
    z, (bias, scale, shift, weight) = draw(0, 2, 32, 16), parameters(2, 16)
    fixed = lambda z: (kernels.value(kernels.activate(z, bias, scale, shift), bias, scale, shift, weight) ** 2).sum()  # noqa: E731
    alone = jax.grad(fixed)(z)
    assert not sums
    trained = lambda z, bias: (  # noqa: E731
        kernels.value(kernels.activate(z, bias, scale, shift), bias, scale, shift, weight) ** 2
    ).sum()
    np.testing.assert_allclose(jax.grad(trained, argnums=(0, 1))(z, bias)[0], alone, rtol=1e-5, atol=1e-6)
    assert len(sums) == 2


def test_result_does_not_depend_on_the_number_of_warps(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of programs determines how each loops over its rows, but not its result."""
    monkeypatch.setattr(speed, "INTERPRETED", True)
    warps, call = [], triton._call
    monkeypatch.setattr(triton, "_call", lambda *arguments: warps.append(arguments[-1]) or call(*arguments))
    z, dy, (bias, scale, *_) = draw(0, 2, 32, 16), draw(1, 2, 32, 16), parameters(2, 16)
    found = []
    for copies in (1, 1000):
        with speed.using(("kernels",), copies):
            found.append(triton.activate_gradients(z, dy, bias, scale))
    assert warps == [4, 1]
    for few, many in zip(*found, strict=True):
        np.testing.assert_allclose(few, many, rtol=1e-5, atol=1e-5)
    dz, sums = found[0]
    np.testing.assert_allclose(sums[:, 0], dz.sum(1), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(sums[:, 2], dy.sum(1), rtol=1e-5, atol=1e-5)


def test_layer_norm_far_from_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows whose mean is ten standard deviations up: exact on a CPU, five digits in a kernel."""
    z, (bias, scale, shift, _) = 10 + draw(0, 1, 32, 64), parameters(1, 64)
    expected = in_numpy(z, bias, scale, shift)
    np.testing.assert_allclose(kernels.activate(z, bias, scale, shift), expected, atol=2e-5)
    monkeypatch.setattr(speed, "INTERPRETED", True)
    np.testing.assert_allclose(kernels.activate(z, bias, scale, shift), expected, atol=3e-4)


@pytest.mark.parametrize(
    "sizes",
    [
        (7, 64, 32, 1),
        (7, 16, 3),
        *(pytest.param(sizes, marks=pytest.mark.soak) for sizes in ((7, 64, 32, 3), (7, 16, 1))),
    ],
)
@pytest.mark.parametrize("members", [None, 3])
@pytest.mark.usefixtures("both_ways")
def test_forward(sizes: tuple[int, ...], members: int | None) -> None:
    key = jax.random.key(0)
    layers = init_ensemble(key, sizes, members) if members else init_mlp(key, sizes)
    layers = jax.tree.map(lambda leaf: leaf + 0.1 * jax.random.normal(key, leaf.shape), layers)
    x = draw(0, 32, sizes[0])
    expected = jax.jit(lambda: mlp.forward(layers, x, jnp))()
    assert expected.shape == (*((members,) if members else ()), 32, sizes[-1])
    for fast in (("kernels",), ("kernels", "apart")):
        with speed.using(fast):
            np.testing.assert_allclose(jax.jit(lambda: Network(layers)(x))(), expected, atol=1e-5)


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.usefixtures("both_ways")
def test_no_hidden_layer(outputs: int) -> None:
    layers, x = init_ensemble(jax.random.key(0), (4, outputs)), draw(0, 32, 4)
    with speed.using(("kernels",)):
        np.testing.assert_array_equal(Network(layers)(x), mlp.forward(layers, x, jnp))


@pytest.mark.parametrize(("rows", "width"), [(20, 64), (32, 48), (32, 8)])
def test_unsupported_shapes_use_the_plain_formulas(rows: int, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "INTERPRETED", True)
    layers, x = init_mlp(jax.random.key(0), (4, width, 2)), draw(0, rows, 4)
    with speed.using(("kernels",)):
        np.testing.assert_array_equal(Network(layers)(x), mlp.forward(layers, x, jnp))


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize("hidden", [(32, 16), (40, 8)])
def test_fused_networks_match_separate_ones(hidden: tuple[int, ...]) -> None:
    """Networks of different input and output sizes, with and without members: values and gradients."""
    keys = jax.random.split(jax.random.key(0), 3)
    networks = (
        Critic.init(keys[0], 9, hidden),
        Critic.init(keys[1], 6, hidden),
        Actor.init(keys[2], SPEC, hidden),
    )
    inputs = ((draw(0, 32, 4), draw(1, 32, 5)), (draw(2, 32, 6),), (draw(3, 32, 5), draw(4, 32, 2)))

    def loss(networks: Any, run: Any) -> tuple[Any, Any]:
        outputs = run(networks)
        return sum(((k + 1) * jnp.sin(out)).sum() for k, out in enumerate(outputs)), outputs

    alone = lambda networks: [network(*x) for network, x in zip(networks, inputs, strict=True)]  # noqa: E731
    together = lambda networks: fused(*((network, *x) for network, x in zip(networks, inputs, strict=True)))  # noqa: E731
    gradient = jax.grad(loss, has_aux=True)
    expected, outputs = jax.jit(lambda: gradient(networks, alone))()
    for used in (("together",), ("together", "kernels")):
        with speed.using(used):
            found, results = jax.jit(lambda: gradient(networks, together))()
        for a, b in zip(jax.tree.leaves((found, results)), jax.tree.leaves((expected, outputs)), strict=True):
            assert a.shape == b.shape
            np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-4)


def test_networks_of_different_widths_are_not_fused() -> None:
    keys = jax.random.split(jax.random.key(0), 2)
    networks = Network(init_mlp(keys[0], (4, 32, 2))), Network(init_mlp(keys[1], (4, 16, 2)))
    x = draw(0, 8, 4)
    with speed.using(("together",)):
        for found, network in zip(fused(*((network, x) for network in networks)), networks, strict=True):
            np.testing.assert_array_equal(found, network(x))


# --- whole steps ---


def trained(name: str, fast: tuple[str, ...], precision: str = "float32", seeds: int = 2, steps: int = 3) -> Any:
    algorithm = make(name, hidden=(32,))
    how = config.Update(batch_size=32, learning_rate=1e-3, precision=precision, fast=fast)
    keys, data = loop.seed_keys(range(seeds)), bench.synthetic(SPEC, 400, 50)
    states = loop.init(algorithm, how, SPEC, keys, data)
    # Not at the start, where target and critic agree and the sign of their difference is rounding error.
    states = states._replace(target=jax.tree.map(lambda leaf: leaf * 1.05, states.target))
    return jax.device_get(loop.advance(algorithm, how, states, keys, data, steps))


def assert_close(a: Any, b: Any, tolerance: float) -> None:
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", ["gtrl", *(pytest.param(name, marks=pytest.mark.soak) for name in ("iql", "fbc"))])
def test_all_optimisations_train_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = trained(name, ())
    assert_close(trained(name, CPU), plain, 2e-5)
    monkeypatch.setattr(speed, "INTERPRETED", True)
    assert_close(trained(name, GPU), plain, 2e-5)


@pytest.mark.usefixtures("both_ways")
def test_losses_and_gradients_in_bfloat16() -> None:
    """Against plain float32, on a random batch: within what seven bits allow. docs/performance.md has larger ones."""
    algorithm, data = make("gtrl", hidden=(64,)), bench.synthetic(SPEC, 2000, 100)
    nets: ActorCritic = algorithm.init(jax.random.key(0), SPEC)
    target = jax.tree.map(lambda leaf: leaf * 1.1, nets.critic)
    norm = lambda tree: float(jnp.sqrt(sum((leaf.astype(jnp.float32) ** 2).sum() for leaf in jax.tree.leaves(tree))))  # noqa: E731

    def found(precision: str, fast: tuple[str, ...], key: jax.Array) -> tuple[float, Any]:
        how = config.Update(batch_size=128, learning_rate=1e-3, precision=precision, fast=fast)
        loss = lambda nets: loop.loss_of(algorithm, how, nets, target, data, key)[0]  # noqa: E731
        with speed.using(fast):
            value, grads = jax.jit(jax.value_and_grad(loss))(nets)
        return float(value), grads

    key = jax.random.key(1)
    loss, grads = found("float32", (), key)
    for precision, tolerance in (("float32", 1e-4), ("bfloat16", 0.08)):
        fast_loss, fast_grads = found(precision, ("kernels", "together"), key)
        assert fast_loss == pytest.approx(loss, rel=tolerance)
        for part in ("critic", "oracle_critic", "actor"):
            exact, quick = getattr(grads, part), getattr(fast_grads, part)
            assert norm(jax.tree.map(jnp.subtract, quick, exact)) < tolerance * norm(exact), (precision, part)


def test_seeds_apart_are_independent() -> None:
    """To the last bit, since they run the same program."""
    two, one = trained("gtrl", CPU), trained("gtrl", CPU, seeds=1)
    for among_others, alone in zip(jax.tree.leaves(two), jax.tree.leaves(one), strict=True):
        np.testing.assert_array_equal(among_others[:1], alone)
    assert not np.allclose(two.nets.actor.layers[0].weight[0], two.nets.actor.layers[0].weight[1])


def test_optimisations_of_a_run() -> None:
    assert config.Training().update.fast == tuple(sorted(CPU))
    assert config.Training(fast=()).update.fast == ()
    assert speed.defaults_for("gpu") == GPU
    with speed.using(("flat",)):
        assert speed.is_enabled("flat")
        assert not speed.is_enabled("kernels")
    assert not speed.is_enabled("flat")
    with pytest.raises(ConfigError, match="fast has 'magic'"):
        config.Training(fast=("magic",))  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigError, match="devices is 99; this machine has 1"):
        config.Training(devices=99)
    with pytest.raises(ConfigError, match="4 seeds and batches of 32 do not divide evenly"):
        devices.make_mesh(config.Update(batch_size=32, learning_rate=1e-3, devices=3), 4)


@pytest.mark.parametrize(
    ("capability", "kernels_there"),
    [("9.0", True), ("10.3", True), ("8.0", True), ("7.5", False), ("gfx942", False), (None, False)],
)
def test_which_devices_have_kernels(
    capability: str | None, kernels_there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NVIDIA GPUs from Ampere on; AMD and older ones use the formulas."""
    device = SimpleNamespace() if capability is None else SimpleNamespace(compute_capability=capability)
    monkeypatch.setattr(jax, "devices", lambda: [device])
    assert kernels._gpu_kernels() is (triton if kernels_there else None)


WITHOUT_TRITON = """
import logging, sys
import jax, numpy as np

handler = logging.StreamHandler(sys.stdout)
handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
logging.getLogger("gtrl").addHandler(handler)
logging.getLogger("gtrl").setLevel(logging.INFO)
sys.modules["MISSING"] = None
from gtrl.io import mlp
from gtrl.nn import speed
from gtrl.nn.networks import Network, init_ensemble

speed.INTERPRETED = True  # as on a GPU that has kernels
x = jax.random.normal(jax.random.key(1), (32, 4))
for outputs in (1, 3):
    network = Network(init_ensemble(jax.random.key(0), (4, 16, outputs)))
    found, plain = [], []
    for fast, results in ((speed.ON_GPU, found), ((), plain)):
        with speed.using(fast):
            gradient = jax.grad(lambda network: (network(x) ** 2).sum())
            results += jax.tree.leaves(jax.jit(lambda network: (network(x), gradient(network)))(network))
    for a, b in zip(found, plain, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
assert "gtrl.nn.triton" not in sys.modules
"""


@pytest.mark.parametrize("missing", ["jax.experimental.pallas", "jax.experimental.pallas.triton"])
def test_jax_without_triton_uses_the_plain_formulas(missing: str) -> None:
    """A GPU that could run the kernels uses the plain formulas, and one log line gives the reason."""
    program = WITHOUT_TRITON.replace("MISSING", missing)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(rf"INFO no GPU kernels, .*{re.escape(missing)}.*\n", done.stdout)


def test_kernels_lower_for_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lowers to Triton without a GPU: Pallas raises the same errors as on one."""
    mesh_module = pytest.importorskip("jax._src.mesh")
    monkeypatch.setattr(kernels, "_gpu_kernels", lambda: triton)
    algorithm = make("gtrl", hidden=(32, 32, 32))
    how = config.Update(batch_size=32, learning_rate=1e-3, precision="bfloat16", fast=GPU)
    data, keys, one = bench.synthetic(SPEC, 400, 50), loop.seed_keys(range(2)), jnp.int32(1)
    states = loop.init(algorithm, how, SPEC, keys, data)
    device = mesh_module.AbstractDevice("NVIDIA H200", None, "gpu")
    mesh = jax.sharding.AbstractMesh((1,), ("one",), abstract_device=device)
    allowed = [jax.export.DisabledSafetyCheck.custom_call("__gpu$xla.gpu.triton")]
    with jax.sharding.use_abstract_mesh(mesh):
        program = jax.jit(lambda *arguments: loop._advance(algorithm, how, *arguments))
        exported = jax.export.export(program, platforms=["cuda"], disabled_checks=allowed)(states, keys, data, one)
    # Three networks' two hidden layers and last one: targets, all five at once, the policy's; and back.
    assert exported.mlir_module().count("__gpu$xla.gpu.triton") == 15


DEVICES = """
import jax, jax.numpy as jnp, numpy as np
from gtrl import bench
from gtrl.data.dataset import Spec
from gtrl.nn import speed
from gtrl.algorithms import make
from gtrl.training import config, devices, loop, monitor

spec = Spec(5, 3, 2)
data = bench.synthetic(spec, 400, 50)
assert jax.local_device_count() == 4
speed.INTERPRETED = True  # used where the batch is whole

def update(devices):
    return config.Update(batch_size=32, learning_rate=1e-3, fast=speed.ON_GPU, devices=devices)

def trained(algorithm, how, seeds):
    keys = loop.seed_keys(range(seeds))
    states = loop.init(algorithm, how, spec, keys, data)
    states = states._replace(target=jax.tree.map(lambda leaf: leaf * 1.05, states.target))
    states = loop.advance(algorithm, how, states, keys, data, 3)
    return states, keys, jax.device_get((states, monitor.validate(algorithm, how, states, keys, data)))

assert tuple(devices.make_mesh(update(2), 4).shape.values()) == (2, 1)
for method, seeds, meshes in CASES:  # each mesh against one device
    algorithm = make(method, hidden=(16,))
    expected = trained(algorithm, update(1), seeds)[-1]
    for count, shape in meshes:
        how = update(count)
        states, keys, found = trained(algorithm, how, seeds)
        mesh = devices.make_mesh(how, seeds)
        assert tuple(mesh.shape.values()) == shape, mesh
        used = {shard.device for shard in jax.tree.leaves(states.nets)[0].addressable_shards}
        assert len(used) == shape[0] * shape[1], used
        for alone, spread in zip(*map(jax.tree.leaves, (expected, found)), strict=True):
            np.testing.assert_allclose(spread, alone, rtol=2e-5, atol=2e-6)

import tempfile
import gtrl
from gtrl.data.dataset import Data
rows = []
for count in (1, 2, 4):  # two: seeds alone over devices
    with tempfile.TemporaryDirectory() as folder:
        run = gtrl.train(
            "bc", Data(data), out=folder + "/run", seeds=[0, 1], steps=4, log_every=2, batch_size=32, hidden=(8,),
            devices=count, show=False,
        )
        assert run.config["training"]["devices"] == count
        rows.append([list(row.values()) for row in run.metrics()])
np.testing.assert_allclose(rows[1:], rows[:1] * 2, rtol=2e-5)
algorithm, how, keys = make("bc", hidden=(8,)), update(4), loop.seed_keys(range(2))
states = loop.init(algorithm, how, spec, keys, data)
text = loop.program(how).lower(algorithm, how, states, keys, data, jnp.int32(1)).compile().as_text()
assert "all-reduce" in text  # gradients are summed over the devices
print("spread")
"""


BOTH_OVER_DEVICES = '("td", 2, ((4, (2, 2)),)),'
# GTRL's weights have a mean over the batch.
EITHER_OVER_DEVICES = '("td", 2, ((None, (2, 1)),)), ("gtrl", 1, ((2, (1, 2)),)),'


@pytest.mark.parametrize(
    "cases", [BOTH_OVER_DEVICES, pytest.param(EITHER_OVER_DEVICES, marks=pytest.mark.soak)], ids=["both", "either"]
)
def test_several_devices_match_one(cases: str) -> None:
    """Seeds, batch, or both over four devices of the host give the same numbers as one device."""
    flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=4"
    done = subprocess.run(
        [sys.executable, "-c", DEVICES.replace("CASES", f"({cases})")],
        env={**os.environ, "XLA_FLAGS": flags},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == "spread", done.stderr


# --- the benchmark ---


def test_flops_by_hand() -> None:
    """One GTRL step is 27 passes of 1024 rows, less the gradients at the inputs of what is trained."""
    case = bench.Case("gtrl", Spec(29, 8, 2), 4, 1024, "float32", GPU, (512, 512, 512))
    of = lambda inputs, outputs: 2 * 1024 * (512 * inputs + 2 * 512 * 512 + 512 * outputs)  # noqa: E731
    first = lambda inputs: 2 * 1024 * 512 * inputs  # noqa: E731
    critic, oracle, actor = of(66, 1), of(39, 1), of(31, 8)
    trained = 2 * (3 * critic - first(66)) + 2 * (3 * oracle - first(39)) + (3 * actor - first(31))
    flops = 8 * critic + trained + 2 * 2 * oracle
    assert bench.work(case, bench.synthetic(case.spec, 3000))["flops"] == 4 * flops


def test_bytes_by_hand() -> None:
    """Behaviour cloning with one hidden layer: three forward operands a product, and the state read and written."""
    case = bench.Case("bc", SPEC, 1, 32, "float32", (), (16,))
    inputs, outputs = SPEC.observation_dim + SPEC.goal_dim, SPEC.action_dim
    first, last = (32 * inputs, inputs * 16, 32 * 16), (32 * 16, 16 * outputs, 32 * outputs)
    moved = 4 * (2 * sum(first) + 3 * sum(last))  # forward and weights of both, and back through the last
    count = inputs * 16 + 16 + 16 * outputs + outputs  # no layer norm in its policy
    found = bench.work(case, bench.synthetic(SPEC, 100, 50))["bytes"]
    small = found - moved - 2 * 4 * 3 * count  # step, counters, sums of metrics
    assert 0 < small < 100


def test_reference_sampler_matches_the_package() -> None:
    """Rows are recovered from observations that are their own numbers; every other field follows from them."""
    rows, length = 600, 20
    terminals = np.arange(rows) % length == length - 1
    numbers = np.arange(rows, dtype=np.float32)[:, None]
    from gtrl.data.dataset import make_dataset
    from gtrl.data.sampling import gather

    data = make_dataset(numbers, np.clip(numbers / rows, -1, 1), terminals, numbers)
    algorithm = make("gtrl", actor_goals=(0.2, 0.4, 0.4), gamma=0.9)
    host = {name: np.asarray(value) for name, value in data._asdict().items()}
    batch = bench.host_batch(np.random.default_rng(0), host, 4000, algorithm)
    i, j, k, actor_j = (
        np.asarray(x)[:, 0].astype(int) for x in (batch.observation, batch.value_goal, batch.subgoal, batch.actor_goal)
    )
    expected = gather(data, jnp.asarray(i), jnp.asarray(j), jnp.asarray(k), jnp.asarray(actor_j))
    for name in Batch._fields:
        if name not in ("arrival",):  # only meaningful where it arrives
            np.testing.assert_array_equal(getattr(batch, name), getattr(expected, name), err_msg=name)
    expected_batch = algorithm.sample(jax.random.key(0), data, 4000)
    for name in ("decomposable", "goal_is_next", "subgoal_is_state", "goal_is_after_subgoal", "goal_is_state"):
        both = [float(np.mean(getattr(each, name))) for each in (batch, expected_batch)]
        assert both[0] == pytest.approx(both[1], abs=0.04), name
    ahead = batch.decomposable
    offsets = [np.asarray(each.goal_offset)[np.asarray(each.decomposable)].mean() for each in (batch, expected_batch)]
    assert offsets[0] == pytest.approx(offsets[1], rel=0.1)
    assert (k[ahead] >= i[ahead]).all()
    assert (k[ahead] < j[ahead]).all()


def test_reference_step_matches_the_package() -> None:
    """On the same batch, from the same networks: the same step."""
    algorithm, data = make("gtrl", hidden=(16,)), bench.synthetic(SPEC, 400, 50)
    how = config.Update(batch_size=32, learning_rate=3e-4)
    keys = loop.seed_keys([0])
    states = loop.init(algorithm, how, SPEC, keys, data)
    first = jax.tree.map(lambda leaf: leaf[0], states)
    batch_key, _ = jax.random.split(jax.random.fold_in(keys[0], 0))
    batch = jax.jit(algorithm.sample, static_argnums=2)(batch_key, data, 32)
    (nets, target, _), _ = bench.host_step(algorithm, (first.nets, first.target, first.optimizer), batch, keys[0])
    after = loop.advance(algorithm, how, states, keys, data, 1)
    assert_close((nets, target), jax.tree.map(lambda leaf: leaf[0], (after.nets, after.target)), 1e-5)


def test_variants() -> None:
    assert bench.variants(("b", "a"), ablate=False) == [("a", "b")]
    assert bench.variants(("b", "a"), ablate=True) == [("a", "b"), ("b",), ("a",), ()]
    assert bench.variants(("a",), ablate=True) == [("a",), ()]


def test_timed_repeats_the_same_number_of_steps() -> None:
    calls: list[int] = []
    found = bench.timed(lambda steps: (calls.append(steps), [sum(range(2000)) for _ in range(steps)]), 3, 0.02)
    assert len(found) == 3
    assert len(set(calls[-3:])) == 1
    assert all(0 < each < 0.02 for each in found)


def test_this_version_of_xla_knows_the_options_of_a_graph() -> None:
    assert jax.jit(lambda x: x + 1, compiler_options=speed.GRAPH_OPTIONS)(1) == 2
    with pytest.raises(jax.errors.JaxRuntimeError, match="No such compile option"):
        jax.jit(lambda x: x + 1, compiler_options={"xla_gpu_dot_merger_threshold": "0"})(1)
