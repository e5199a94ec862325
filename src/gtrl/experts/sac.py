"""Soft actor-critic on a replay buffer that lives on the device.

Haarnoja et al. 2018, with layer norm in all networks, standardised inputs, and batches turned by random angles: walking
east is walking north with the world turned, so every transition is an example for all directions. For a body with
left-right symmetry, half of the transitions are reflected.
"""

from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import Array

from gtrl.experts.mirror import Reflection
from gtrl.experts.settings import SAC
from gtrl.io.mlp_file import MLP, Header
from gtrl.io.mlp_file import Arrays as FileArrays
from gtrl.nn.networks import Critic, Network, init_mlp

LOG_DEVIATION = (-5.0, 2.0)  # range of the logarithm of the policy's standard deviation
INITIAL_TEMPERATURE = 0.1
MIN_DEVIATION = 1e-2  # of an input; smaller ones are not scaled up
ACTIONS_STREAM, MOMENTS_STREAM = 2**32 - 1, 2**32 - 2  # keys apart from those of the updates, which count from 0
NOISE_STREAM = 1  # of random bits, apart from those of the action
Metrics = dict[str, Array]


class Layout(NamedTuple):
    """What the learner knows of a skill.

    Attributes:
        inputs: The number of inputs.
        actions: The number of actions.
        reward_scale: Rewards are multiplied by it.
        vectors: Where horizontal vectors start in the inputs.
        quaternions: Where orientations start in the inputs.
        mirror: The left-right reflections of inputs and actions, for a symmetric body.
    """

    inputs: int
    actions: int
    reward_scale: float
    vectors: tuple[int, ...]
    quaternions: tuple[int, ...]
    mirror: tuple[Reflection, Reflection] | None = None


class Transitions(NamedTuple):
    """Steps of the simulator, in NumPy or on the device; the first axis numbers them."""

    inputs: Any
    actions: Any
    rewards: Any
    following: Any
    falls: Any


class Replay(NamedTuple):
    """The last steps of the simulator, in a ring."""

    steps: Transitions
    added: Array  # the number of steps ever added


class Moments(NamedTuple):
    """Mean and summed squared deviation of all inputs so far (Welford's algorithm)."""

    rows: Array
    mean: Array
    squares: Array

    def standardised(self, inputs: Array) -> Array:
        """Returns inputs with mean 0 and deviation 1."""
        return (inputs - self.mean) / self.deviation

    @property
    def deviation(self) -> Array:
        """The standard deviation of each input."""
        return jnp.maximum(jnp.sqrt(self.squares / jnp.maximum(self.rows, 1)), MIN_DEVIATION)

    def including(self, inputs: Array) -> "Moments":
        """Returns the moments after more inputs, (B, size)."""
        rows = self.rows + len(inputs)
        mean, gap = inputs.mean(0), inputs.mean(0) - self.mean
        squares = jnp.square(inputs - mean).sum(0) + gap**2 * self.rows * len(inputs) / rows
        return Moments(rows, self.mean + gap * len(inputs) / rows, self.squares + squares)


class Policy(Network):
    """A Gaussian whose samples pass through tanh; mean and deviation depend on the input."""

    def distribution(self, inputs: Array) -> tuple[Array, Array]:
        """Returns mean and logarithm of the standard deviation, before tanh."""
        mean, spread = jnp.split(self(inputs), 2, axis=-1)
        low, high = LOG_DEVIATION
        return mean, low + (high - low) * 0.5 * (1 + jnp.tanh(spread))

    def sample(self, inputs: Array, key: Array) -> tuple[Array, Array]:
        """Returns actions and the logarithms of their densities."""
        mean, log_deviation = self.distribution(inputs)
        noise = jax.random.normal(key, mean.shape)
        unbounded = mean + jnp.exp(log_deviation) * noise
        # log(1 - tanh(x)^2) = 2 (log 2 - x - softplus(-2x)), which does not lose precision where tanh is close to 1
        slope = 2 * (jnp.log(2.0) - unbounded - jax.nn.softplus(-2 * unbounded))
        density = -0.5 * noise**2 - log_deviation - 0.5 * jnp.log(2 * jnp.pi) - slope
        return jnp.tanh(unbounded), density.sum(-1)


class Nets(eqx.Module):
    """What is trained."""

    policy: Policy
    critic: Critic
    log_temperature: Array


class Learner(NamedTuple):
    """The state of learning. A checkpoint holds it; with it alone, training can go on elsewhere."""

    nets: Nets
    target: Critic
    optimizer: Any
    moments: Moments
    key: Array
    updates: Array


def init_learner(key: Array, config: SAC, layout: Layout) -> Learner:
    """Returns the state before the first update."""
    policy_key, critic_key, key = jax.random.split(key, 3)
    sizes = (layout.inputs, *config.hidden, 2 * layout.actions)
    nets: Any = Nets(
        Policy(init_mlp(policy_key, sizes, last_scale=0.01)),
        Critic.init(critic_key, layout.inputs + layout.actions, config.hidden),
        jnp.log(INITIAL_TEMPERATURE),
    )
    moments = Moments(jnp.zeros(()), jnp.zeros(layout.inputs), jnp.zeros(layout.inputs))
    target = jax.tree.map(jnp.copy, nets.critic)  # a copy, because both are donated
    return Learner(nets, target, optax.adam(config.lr).init(nets), moments, key, jnp.zeros((), jnp.int32))


def init_replay(config: SAC, layout: Layout) -> Replay:
    """Returns an empty replay buffer."""
    rows = min(config.replay, -(-config.steps // config.copies) * config.copies)
    shapes = Transitions((rows, layout.inputs), (rows, layout.actions), (rows,), (rows, layout.inputs), (rows,))
    return Replay(Transitions(*(jnp.zeros(shape) for shape in shapes)), jnp.zeros((), jnp.int32))


def turn(inputs: Array, angle: Array, layout: Layout) -> Array:
    """Returns inputs as they would be if the world were turned about the vertical axis by angles (B,)."""
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    for start in layout.vectors:
        x, y = inputs[:, start], inputs[:, start + 1]
        inputs = inputs.at[:, start : start + 2].set(jnp.stack([cos * x - sin * y, sin * x + cos * y], -1))
    cos, sin = jnp.cos(angle / 2), jnp.sin(angle / 2)
    for start in layout.quaternions:  # the product of the turn's quaternion (cos, 0, 0, sin) and the orientation's
        w, x, y, z = (inputs[:, start + k] for k in range(4))
        product = jnp.stack([cos * w - sin * z, cos * x - sin * y, cos * y + sin * x, cos * z + sin * w], -1)
        inputs = inputs.at[:, start : start + 4].set(product)
    return inputs


def random_angles(key: Array, count: int) -> Array:
    """Draws angles from two full turns: one turn maps an orientation's quaternion q to -q, two map it to itself."""
    return jax.random.uniform(key, (count,), maxval=4 * jnp.pi)


def augmented(steps: Transitions, key: Array, config: SAC, layout: Layout) -> Transitions:
    """Returns steps turned by random angles, and half of them reflected."""
    angle_key, mirror_key = jax.random.split(key)
    inputs, actions, following = steps.inputs, steps.actions, steps.following
    if config.turn:
        angle = random_angles(angle_key, len(inputs))
        inputs, following = turn(inputs, angle, layout), turn(following, angle, layout)
    if config.mirror and layout.mirror:
        reflected = jax.random.bernoulli(mirror_key, shape=(len(inputs), 1))
        of_inputs, of_actions = layout.mirror
        inputs, following = (jnp.where(reflected, of_inputs.of(rows), rows) for rows in (inputs, following))
        actions = jnp.where(reflected, of_actions.of(actions), actions)
    return steps._replace(inputs=inputs, actions=actions, following=following)


def loss(
    nets: Nets, target: Critic, moments: Moments, batch: Transitions, key: Array, config: SAC, layout: Layout
) -> tuple[Array, Metrics]:
    """Returns the sum of the losses of critic, policy and temperature."""
    next_key, key = jax.random.split(key)
    inputs, following = moments.standardised(batch.inputs), moments.standardised(batch.following)
    temperature = jnp.exp(nets.log_temperature)
    frozen = jax.lax.stop_gradient((nets.policy, nets.critic, temperature))

    # --- critic ---
    action, density = frozen[0].sample(following, next_key)
    value = target(following, action).min(0) - frozen[2] * density
    y = jax.lax.stop_gradient(layout.reward_scale * batch.rewards + config.gamma * (1 - batch.falls) * value)
    q = nets.critic(inputs, batch.actions)
    critic_loss = jnp.square(q - y).mean()

    # --- policy ---
    action, density = nets.policy.sample(inputs, key)
    policy_loss = (frozen[2] * density - frozen[1](inputs, action).min(0)).mean()

    # --- temperature ---
    excess = jax.lax.stop_gradient(-density.mean()) - config.target_entropy * layout.actions
    temperature_loss = temperature * excess

    metrics = {
        "critic_loss": critic_loss,
        "q": q.mean(),
        "entropy": -density.mean(),
        "temperature": temperature,
    }
    return critic_loss + policy_loss + temperature_loss, metrics


def _update(learner: Learner, replay: Replay, config: SAC, layout: Layout) -> tuple[Learner, Metrics]:
    key = jax.random.fold_in(learner.key, learner.updates)
    row_key, augmentation_key, loss_key = jax.random.split(key, 3)
    size = config.batch_size
    rows = jax.random.randint(row_key, (size,), 0, jnp.minimum(replay.added, len(replay.steps.rewards)))
    batch = augmented(jax.tree.map(lambda column: column[rows], replay.steps), augmentation_key, config, layout)
    of_nets = jax.grad(loss, has_aux=True)
    gradient, metrics = of_nets(learner.nets, learner.target, learner.moments, batch, loss_key, config, layout)
    change, optimizer = optax.adam(config.lr).update(gradient, learner.optimizer)
    old: Any = learner.nets
    nets: Any = optax.apply_updates(old, change)
    target = jax.tree.map(lambda old, new: old + config.tau * (new - old), learner.target, nets.critic)
    return Learner(nets, target, optimizer, learner.moments, learner.key, learner.updates + 1), metrics


@partial(jax.jit, static_argnums=(3, 4), donate_argnums=(0, 1))
def advance(
    learner: Learner, replay: Replay, taken: Transitions, config: SAC, layout: Layout
) -> tuple[Learner, Replay, Metrics]:
    """Adds steps of the simulator to the buffer, then takes the gradient steps; returns the means of their metrics."""
    learner, replay = add_only(learner, replay, taken, config, layout)
    learner, metrics = jax.lax.scan(
        lambda state, _: _update(state, replay, config, layout), learner, None, config.updates
    )
    return learner, replay, jax.tree.map(jnp.mean, metrics)


def add(replay: Replay, taken: Transitions) -> Replay:
    """Returns the buffer with more steps in it; they replace the oldest ones when it is full."""
    rows = (replay.added + jnp.arange(len(taken.rewards))) % len(replay.steps.rewards)
    steps = jax.tree.map(lambda column, new: column.at[rows].set(new), replay.steps, taken)
    return Replay(steps, replay.added + len(taken.rewards))


@partial(jax.jit, static_argnums=(3, 4), donate_argnums=(0, 1))
def add_only(
    learner: Learner, replay: Replay, taken: Transitions, config: SAC, layout: Layout
) -> tuple[Learner, Replay]:
    """Adds steps of the simulator to the buffer, and their inputs, augmented as in batches, to the moments."""
    key = jax.random.fold_in(jax.random.fold_in(learner.key, MOMENTS_STREAM), replay.added)
    inputs = augmented(taken, key, config, layout).inputs
    return learner._replace(moments=learner.moments.including(inputs)), add(replay, taken)


@partial(jax.jit, static_argnums=3)
def explore(learner: Learner, inputs: Array, number: Array, noise: float = 0.0) -> tuple[Array, Array]:
    """Returns actions drawn from the policy, or before the first update uniformly; and with noise, as they are taken.

    `number` is that of the step. The learner sees the actions without the noise, which is a part of the world to it.
    """
    key = jax.random.fold_in(jax.random.fold_in(learner.key, ACTIONS_STREAM), number)
    drawn = learner.nets.policy.sample(learner.moments.standardised(inputs), key)[0]
    actions = jnp.where(learner.updates > 0, drawn, jax.random.uniform(key, drawn.shape, minval=-1.0))
    if not noise:
        return actions, actions
    added = noise * jax.random.normal(jax.random.fold_in(key, NOISE_STREAM), drawn.shape)
    return actions, jnp.clip(actions + added, -1, 1)


@jax.jit
def mean_action(learner: Learner, inputs: Array) -> Array:
    """Returns the policy's mean actions, those of the exported expert."""
    return jnp.tanh(learner.nets.policy.distribution(learner.moments.standardised(inputs))[0])


def export(learner: Learner, actions: int) -> tuple[FileArrays, Header]:
    """Returns the arrays, in float16, and the header of the expert: the mean of the policy."""
    layers = jax.device_get(learner.nets.policy.layers)
    last = layers[-1]._replace(weight=layers[-1].weight[:, :actions], bias=layers[-1].bias[:actions])
    mean, deviation = jax.device_get((learner.moments.mean, learner.moments.deviation))
    arrays, header = MLP((*layers[:-1], last), "gelu", "tanh", mean, deviation).export()
    return {name: array.astype("float16") for name, array in arrays.items()}, {"kind": "gaussian", **header}
