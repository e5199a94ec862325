"""The multilayer perceptron against formulas written out here, and how networks start."""

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gtrl.data.dataset import Spec
from gtrl.io import mlp
from gtrl.nn import speed
from gtrl.nn.fused import fused
from gtrl.nn.networks import ENSEMBLE, Actor, ActorCritic, Bilinear, Critic, Network, init_mlp

SPEC = Spec(observation_dim=5, action_dim=3, goal_dim=2)


def random_layers(seed: int, sizes: tuple[int, ...], lead: tuple[int, ...] = ()) -> tuple[mlp.Layer, ...]:
    """Weights with nothing left at its starting value; `lead` are leading axes."""
    rng = np.random.default_rng(seed)

    def draw(*shape: int) -> np.ndarray:
        return rng.normal(size=(*lead, *shape)).astype(np.float32)

    layers = []
    for depth, (fan_in, fan_out) in enumerate(itertools.pairwise(sizes)):
        norm = () if depth == len(sizes) - 2 else (draw(fan_out), draw(fan_out))
        layers.append(mlp.Layer(draw(fan_in, fan_out) / np.float32(fan_in**0.5), draw(fan_out), *norm))
    return tuple(layers)


def by_hand(layers: tuple[mlp.Layer, ...], row: np.ndarray) -> np.ndarray:
    """One row through one network, a unit at a time, in float64."""
    x = row.astype(np.float64)
    for weight, bias, scale, shift in layers:
        x = np.array([float(np.dot(x, weight[:, unit]) + bias[unit]) for unit in range(len(bias))])
        if scale is not None and shift is not None:
            # x times the tanh approximation of the normal distribution function
            cubic = np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)
            x = x * (0.5 + 0.5 * (np.exp(2 * cubic) - 1) / (np.exp(2 * cubic) + 1))
            mean = sum(x) / len(x)
            variance = sum((unit - mean) ** 2 for unit in x) / len(x)
            x = scale * (x - mean) / np.sqrt(variance + 1e-6) + shift
    return x


def on_device(layers: tuple[mlp.Layer, ...], dtype: type = jnp.float32) -> tuple[mlp.Layer, ...]:
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), layers)


def test_gelu():
    x = np.linspace(-6, 6, 101, dtype=np.float32)
    np.testing.assert_allclose(mlp.gelu(x, np), jax.nn.gelu(x, approximate=True), rtol=1e-5, atol=1e-6)
    # This is the approximation: the exact function differs by up to 5e-4.
    assert np.abs(mlp.gelu(x, np) - np.asarray(jax.nn.gelu(x, approximate=False))).max() > 1e-4


def test_layer_norm():
    x = np.array([[1.0, 3.0], [5.0, 5.0], [0.001, -0.001]], np.float32)
    scale, shift = np.array([2.0, 10.0], np.float32), np.array([0.5, 0.0], np.float32)
    small = 0.001 / np.sqrt(2e-6)  # here the constant under the root counts as much as the variance
    expected = [[0.5 - 2, 10], [0.5, 0], [0.5 + 2 * small, -10 * small]]
    np.testing.assert_allclose(mlp.layer_norm(x, scale, shift, np), expected, rtol=1e-5)
    np.testing.assert_allclose(mlp.layer_norm(jnp.asarray(x), scale, shift, jnp), expected, rtol=1e-5)


@pytest.mark.parametrize("sizes", [(4, 3), (4, 8, 2), (4, 16, 8, 3)])
def test_forward(sizes):
    layers = random_layers(0, sizes)
    x = np.random.default_rng(1).normal(size=(20, 4)).astype(np.float32)
    expected = np.stack([by_hand(layers, row) for row in x])
    for result in (mlp.forward(layers, x, np), mlp.forward(on_device(layers), jnp.asarray(x), jnp)):
        assert result.dtype == np.float32
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("xp", [np, jnp])
def test_forward_over_leading_axes(xp):
    """Stacked weights (seeds, members) are independent networks."""
    layers = random_layers(2, (4, 8, 8, 2), lead=(3, 2))
    x = np.random.default_rng(3).normal(size=(10, 4)).astype(np.float32)
    result = np.asarray(mlp.forward(jax.tree.map(xp.asarray, layers), xp.asarray(x), xp))
    assert result.shape == (3, 2, 10, 2)
    for seed in range(3):
        for member in range(2):
            one = jax.tree.map(lambda leaf, at=(seed, member): leaf[at], layers)
            np.testing.assert_allclose(result[seed, member], mlp.forward(one, x, np), rtol=1e-4, atol=1e-5)


def test_bfloat16():
    layers = random_layers(4, (6, 64, 64, 3))
    x = jnp.asarray(np.random.default_rng(5).normal(size=(50, 6)), jnp.float32)
    full = np.asarray(mlp.forward(on_device(layers), x, jnp))
    half = mlp.forward(on_device(layers, jnp.bfloat16), x, jnp)
    assert half.dtype == jnp.float32
    # Close, measured by the size of the outputs (single entries come near 0), and yet not the same computation.
    error = np.sqrt(np.mean((np.asarray(half) - full) ** 2) / np.mean(full**2))
    assert 1e-4 < error < 3e-2
    # The weights' precision is that of the whole computation: the input is rounded first.
    identity = (mlp.Layer(jnp.ones((1, 1), jnp.bfloat16), jnp.zeros(1, jnp.bfloat16)),)
    assert mlp.forward(identity, jnp.array([[1.001]]), jnp) == 1


def test_layer_norm_statistics_are_float32():
    """The mean 100.25 is not a bfloat16 number; rounded, it would be one of the entries or halfway between them."""
    high = np.arange(64) % 4 == 0
    x = jnp.asarray(100 + high, jnp.bfloat16)[None]
    result = mlp.layer_norm(x, jnp.ones(64, jnp.bfloat16), jnp.zeros(64, jnp.bfloat16), jnp)
    assert result.dtype == jnp.bfloat16
    expected = np.where(high, 0.75, -0.25) / np.sqrt(3 / 16)
    np.testing.assert_allclose(np.asarray(result, np.float32)[0], expected, rtol=1e-2)


@pytest.mark.parametrize("last_scale", [1.0, 0.01])
def test_init(last_scale):
    sizes = (100, 200, 200, 200, 50)
    layers = init_mlp(jax.random.key(0), sizes, last_scale)
    assert len(layers) == 4
    for depth, layer in enumerate(layers):
        fan_in, fan_out = sizes[depth : depth + 2]
        scale = last_scale if depth == 3 else 1.0
        weight = np.asarray(layer.weight)
        assert weight.shape == (fan_in, fan_out)
        limit = np.sqrt(6 * scale / (fan_in + fan_out))
        assert 0.99 * limit < np.abs(weight).max() <= limit
        # Variance scale / average fan; 10,000 entries or more give it to about 1 %.
        np.testing.assert_allclose(weight.var(), scale * 2 / (fan_in + fan_out), rtol=0.05)
        np.testing.assert_allclose(weight.mean(), 0, atol=0.05 * limit)
        np.testing.assert_array_equal(layer.bias, np.zeros(fan_out))
    for layer in layers[:-1]:
        np.testing.assert_array_equal(layer.scale, np.ones(200))
        np.testing.assert_array_equal(layer.shift, np.zeros(200))
    assert layers[-1].scale is None
    assert layers[-1].shift is None
    # Layers of one shape are drawn apart.
    assert abs(np.corrcoef(np.ravel(layers[1].weight), np.ravel(layers[2].weight))[0, 1]) < 0.05


def test_actor_init():
    actor = Actor.init(jax.random.key(1), SPEC, (200, 400))
    assert [layer.weight.shape for layer in actor.layers] == [(7, 200), (200, 400), (400, 3)]
    limit = np.sqrt(6 / 403)
    assert 0.098 * limit < np.abs(actor.layers[-1].weight).max() <= 0.1 * limit
    assert np.abs(actor.layers[1].weight).max() > 0.99 * np.sqrt(6 / 600)


def test_critic_init():
    critic = Critic.init(jax.random.key(2), 10, (200, 400))
    assert [layer.weight.shape for layer in critic.layers] == [(2, 10, 200), (2, 200, 400), (2, 400, 1)]
    for layer, fans in zip(critic.layers, (210, 600, 401), strict=True):
        limit = np.sqrt(6 / fans)  # the fans of one member, whatever the ensemble
        for member in range(ENSEMBLE):
            assert 0.97 * limit < np.abs(layer.weight[member]).max() <= limit
        np.testing.assert_array_equal(layer.bias, 0)
        first, second = (np.ravel(layer.weight[member]) for member in range(ENSEMBLE))
        assert abs(np.corrcoef(first, second)[0, 1]) < 0.2


def test_actor_critic_init():
    nets = jax.eval_shape(lambda: ActorCritic.init(jax.random.key(3), SPEC, (8,), distill=True))
    assert nets.oracle_critic is not None
    assert nets.acting_critic is nets.oracle_critic
    # The critic reads a whole state as goal, the oracle critic the task's goal.
    assert nets.critic.layers[0].weight.shape == (2, 5 + 3 + 5, 8)
    assert nets.oracle_critic.layers[0].weight.shape == (2, 5 + 3 + 2, 8)
    alone = jax.eval_shape(lambda: ActorCritic.init(jax.random.key(3), SPEC, (8,), distill=False))
    assert alone.oracle_critic is None
    assert alone.acting_critic is alone.critic


def random_inputs(seed: int, rows: int, goal_dim: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    rng = np.random.default_rng(seed)
    observation, action, goal = (jnp.asarray(rng.normal(size=(rows, width)), jnp.float32) for width in (5, 3, goal_dim))
    return observation, action, goal


def test_fused_passes_of_one_network():
    critic = Critic(on_device(random_layers(6, (13, 16, 1), lead=(ENSEMBLE,))))
    queries = [random_inputs(seed, 7, goal_dim=5) for seed in range(4)]
    together = fused(*((critic, *query) for query in queries))
    assert len(together) == 4
    for result, query in zip(together, queries, strict=True):
        assert result.shape == (ENSEMBLE, 7)
        np.testing.assert_allclose(result, critic(*query), rtol=1e-5, atol=1e-6)


def random_network(kind: type, seed: int, sizes: tuple[int, ...], members: int = 0) -> Any:
    return kind(on_device(random_layers(seed, sizes, lead=(members,) if members else ())))


def rows_of(seed: int, *shape: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


class Doubled(Network):
    """A network whose call is more than its layers."""

    def __call__(self, *inputs: jax.Array) -> jax.Array:
        return 2 * super().__call__(*inputs)


def several_passes_of_one_network() -> list[Any]:
    critic = random_network(Critic, 20, (6, 16, 1), ENSEMBLE)
    return [(critic, rows_of(seed, 8, 4), rows_of(10 + seed, 8, 2)) for seed in range(3)]


def other_numbers_of_rows_in_one_network() -> list[Any]:
    critic = random_network(Critic, 21, (6, 16, 1), ENSEMBLE)
    return [(critic, rows_of(seed, count, 6)) for seed, count in enumerate((8, 4, 16))]


def different_networks() -> list[Any]:
    critic, actor = random_network(Critic, 22, (6, 16, 1), ENSEMBLE), random_network(Actor, 23, (4, 16, 3))
    return [(critic, rows_of(0, 8, 4), rows_of(1, 8, 2)), (actor, rows_of(2, 8, 4))]


def different_networks_and_numbers_of_rows() -> list[Any]:
    critic, actor = random_network(Critic, 24, (6, 16, 1), ENSEMBLE), random_network(Actor, 25, (4, 16, 3))
    return [(critic, rows_of(0, 8, 6)), (actor, rows_of(1, 4, 4)), (critic, rows_of(2, 8, 6))]


def different_precisions() -> list[Any]:
    actor, other = random_network(Actor, 26, (4, 16, 3)), random_network(Network, 27, (4, 16, 2))
    return [(actor, rows_of(0, 8, 4)), (Network(on_device(other.layers, jnp.bfloat16)), rows_of(1, 8, 4))]


def no_network_among_them() -> list[Any]:
    critic = random_network(Critic, 28, (6, 16, 1), ENSEMBLE)
    return [(None, rows_of(0, 8, 6)), (critic, rows_of(1, 8, 6)), (None, rows_of(2, 3, 1))]


def callables() -> list[Any]:
    bilinear = Bilinear(random_network(Network, 29, (6, 16, 4), 2), random_network(Network, 30, (2, 16, 4), 2))
    function = jax.tree_util.Partial(jnp.subtract)
    inputs = [rows_of(seed, 8, size) for seed, size in enumerate((4, 2, 2))]
    return [(bilinear, *inputs), (function, *inputs[1:]), (bilinear, *(2 * x for x in inputs))]


def all_kinds() -> list[Any]:
    doubled = Doubled(random_network(Network, 31, (6, 16, 4)).layers)
    parts = (callables(), different_networks(), no_network_among_them(), [(doubled, rows_of(5, 8, 6))])
    return [each for passes in zip(*(itertools.chain(part, part) for part in parts), strict=False) for each in passes]


@pytest.mark.parametrize(
    "case",
    [
        several_passes_of_one_network,
        other_numbers_of_rows_in_one_network,
        different_networks,
        different_networks_and_numbers_of_rows,
        different_precisions,
        no_network_among_them,
        callables,
        all_kinds,
    ],
    ids=lambda case: case.__name__,
)
def test_fused_passes_are_separate_calls(case: Callable[[], list[Any]]) -> None:
    """Values, and gradients at networks and inputs, with every set of optimisations."""
    passes = case()
    networks = {id(network): network for network, *_ in passes}
    inputs = [arguments for _, *arguments in passes]

    def loss(arguments: Any, run: Any) -> tuple[Any, Any]:
        networks, inputs = arguments
        again = [(networks[id(network)], *own) for (network, *_), own in zip(passes, inputs, strict=True)]
        results = run(again)
        return sum(((k + 1) * jnp.sin(x)).sum() for k, x in enumerate(results) if x is not None), results

    separately = lambda passes: [network and network(*inputs) for network, *inputs in passes]  # noqa: E731
    gradient = jax.grad(loss, has_aux=True)
    expected = jax.jit(lambda: gradient((networks, inputs), separately))()
    for fast in ((), ("together",), ("together", "kernels"), ("kernels", "apart")):
        with speed.using(fast):
            found = jax.jit(lambda: gradient((networks, inputs), lambda passes: fused(*passes)))()
        assert [x is None for x in found[1]] == [network is None for network, *_ in passes]
        rounded = case is different_precisions and "kernels" in fast  # kernels round bfloat16 in other places
        for a, b in zip(*map(jax.tree.leaves, (found, expected)), strict=True):
            assert (a.shape, a.dtype) == (b.shape, b.dtype)
            largest = float(jnp.abs(b).max(initial=0.0))
            rtol, atol = (0.03, 0.03 * largest) if rounded else (1e-4, 1e-4)
            np.testing.assert_allclose(a, b, rtol=rtol, atol=atol, err_msg=str(fast))


@pytest.mark.parametrize(
    ("case", "products"),
    [
        (several_passes_of_one_network, 2),
        (other_numbers_of_rows_in_one_network, 2),
        (different_networks, 2),
        (different_networks_and_numbers_of_rows, 4),
        (different_precisions, 4),
        (no_network_among_them, 2),
    ],
    ids=lambda case: getattr(case, "__name__", ""),
)
def test_fused_passes_are_few_matrix_products(case: Callable[[], list[Any]], products: int) -> None:
    """One for each layer, where nothing keeps networks apart."""
    with speed.using(("together",)):
        text = str(jax.make_jaxpr(lambda: fused(*case()))())
    assert text.count("dot_general") == products


def test_no_passes():
    assert fused() == []


def test_critic_and_value():
    """Inputs in their order, one network per member; V is the smaller value at the clipped action."""
    oracle, actor = random_layers(7, (10, 16, 1), lead=(ENSEMBLE,)), random_layers(8, (7, 16, 3))
    critic = Critic(on_device(random_layers(9, (13, 16, 1), lead=(ENSEMBLE,))))  # must not be read
    nets = ActorCritic(critic, Critic(on_device(oracle)), Actor(on_device(actor)))
    observation, _, goal = (np.asarray(part) for part in random_inputs(10, 30, goal_dim=2))
    members = [jax.tree.map(lambda leaf, at=member: leaf[at], oracle) for member in range(ENSEMBLE)]
    expected = []
    for s, g in zip(observation, goal, strict=True):
        action = np.clip(by_hand(actor, np.concatenate([s, g])), -1, 1)
        q = [1 / (1 + np.exp(-by_hand(member, np.concatenate([s, action, g]))[0])) for member in members]
        expected.append(min(q))
    np.testing.assert_allclose(nets.value(jnp.asarray(observation), jnp.asarray(goal)), expected, rtol=1e-4)
