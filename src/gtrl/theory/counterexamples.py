"""The assumptions of the propositions, each with a small process in which the statement fails without it."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from gtrl.tasks import TRAJECTORY_GOALS
from gtrl.theory import examples
from gtrl.theory.anchored import Anchored, transitive_fit
from gtrl.theory.draws import Draws, dataset_draws, model_draws
from gtrl.theory.process import Log, Process, sample_log, uniform
from gtrl.theory.transitive import iterate_actions
from gtrl.theory.values import (
    behaviour_values,
    divide_and_conquer_values,
    occupancy,
    optimal_values,
    state_action_values,
)

GAMMA = 0.99
S, A, B, G = (examples.TELEPORTER[name] for name in "sABg")


@dataclass(frozen=True)
class Counterexample:
    """An assumption, the statement that needs it, and a number that is wrong without it."""

    assumption: str
    needed_for: str
    shows: str  # the example and the number
    found: float  # without the assumption
    expected: float  # with it

    @property
    def differs(self) -> bool:
        """Whether `found` and `expected` differ by more than rounding."""
        return abs(self.found - self.expected) > 1e-6


def run() -> Iterable[Counterexample]:
    """Yields all counterexamples, in the order of the table in docs/theory.md."""
    yield every_edge()
    yield subgoal_is_not_the_state()
    yield actions_are_covered_too()
    yield successors_are_in_the_data()
    yield one_parameter_for_each_entry()
    yield random_goals_ahead_count_as_random()
    yield every_outcome_reaches_the_goal()
    yield weight_is_not_clipped()
    yield next_action_is_not_hindsight()
    yield trajectories_do_not_end()
    yield normalised_after_clipping()
    yield rho_reads_the_critic()
    yield weight_does_not_move()
    yield optimal_value_is_no_bound()


def example_draws() -> Draws:
    """Returns GTRL's draws from a log of Example 1 with one trajectory per outcome."""
    return dataset_draws(examples.teleporter_log(), 13, 1, GAMMA)


# --- Proposition 1 ---


def every_edge() -> Counterexample:
    """Without the lucky trajectory, its edges are missing from the graph of the data."""
    log = examples.teleporter_log(lucky=0)
    seen = np.zeros((13, 1, 13))
    seen[log.states[:-1], 0, log.states[1:]] = 1
    seen[G, 0, G] = seen[A, 0, A] = 1
    return Counterexample(
        "every edge of G is in the data",
        "Proposition 1",
        "Example 1 without a lucky trajectory, V(s, g) = γ^11",
        float(divide_and_conquer_values(Process.from_dense(seen), GAMMA)[S, G]),
        float(divide_and_conquer_values(examples.teleporter(), GAMMA)[S, G]),
    )


def fork() -> Process:
    """Deterministic: from 0, action 0 leads to 1 and action 1 to 2; from 1 it is one step to 3, from 2 five steps."""
    p = np.zeros((8, 2, 8))
    p[0, 0, 1] = p[0, 1, 2] = 1
    for here, there in ((1, 3), (2, 4), (4, 5), (5, 6), (6, 7), (7, 3), (3, 3)):
        p[here, :, there] = 1
    return Process.from_dense(p)


def subgoal_is_not_the_state() -> Counterexample:
    """With w = s the first factor is 1 and the second may take any action, so all actions get the same value."""
    process = fork()
    return Counterexample(
        "w = s is not a subgoal, and no action stays where it is",
        "equation 3 to converge to Q*",
        "a deterministic fork, the action of the longer path, which gets the value of the shorter one",
        float(iterate_actions(process, GAMMA)[0, 1, 3]),
        float(iterate_actions(process, GAMMA, through_itself=False)[0, 1, 3]),
    )


# --- Proposition 2 ---


def actions_are_covered_too() -> Counterexample:
    """(s, g) is in R through one action; the entry of the other action still has no target."""
    log = Log.of([([0, 1, 3], [0, 0, 0]), ([2, 4], [0, 0]), ([0, 2], [1, 0])])
    draws = dataset_draws(log, 8, 2, GAMMA, TRAJECTORY_GOALS)
    start = np.full((8, 2, 8), 0.5)
    return Counterexample(
        "R contains state-action pairs, not only states",
        "every pair in R to be trained",
        "the fork, (0, 3) in R through action 0 only, the entry of action 1, which keeps its initial value",
        float(transitive_fit(GAMMA).fixed_point(draws, start)[0, 1, 3]),
        float(state_action_values(fork(), optimal_values(fork(), GAMMA), GAMMA)[0, 1, 3]),
    )


# --- Proposition 3 ---


def successors_are_in_the_data() -> Counterexample:
    """The last state of a trajectory has no transition and is never fitted, but other states bootstrap from it."""
    log = Log.of([([0, 1], [0, 0]), ([2, 2], [0, 0])])  # of a corridor 0, 1, 2
    draws = dataset_draws(log, 3, 1, GAMMA)
    return Counterexample(
        "every state-action pair that is bootstrapped from has transitions",
        "Q^β ≤ Q_A",
        "a corridor 0, 1, 2, logged as 0 → 1 and a separate trajectory at 2, Q_A(0, 2), which stays 0",
        float(Anchored(GAMMA).fixed_point(draws)[0, 0, 2]),
        GAMMA**2,
    )


def one_parameter_for_each_entry() -> Counterexample:
    """A and B share one entry, as in a network that cannot distinguish them; its value is a compromise."""
    log = examples.teleporter_log()
    aliased = Log(np.where(log.states == B, A, log.states), log.actions, log.ends)
    draws = dataset_draws(aliased, 13, 1, GAMMA, decomposable="draw")
    return Counterexample(
        "each entry is fitted exactly and separately",
        "Q^β ≤ Q_A",
        "Example 1 with one entry for A and B, Q_A(A, g), which is below Q^β",
        float(Anchored(GAMMA, hindsight=False).fixed_point(draws)[A, 0, G]),
        GAMMA,
    )


def every_outcome_reaches_the_goal() -> Counterexample:
    """A cannot be reached after outcome B, so goal A is never drawn after B, and no weight can correct that."""
    process = examples.teleporter()
    d = model_draws(process, uniform(process), GAMMA, TRAJECTORY_GOALS)
    entry = (d.s == S) & (d.g == A)  # h is omitted: it is the same for all draws with the same successor
    return Counterexample(
        "every outcome can reach g",
        "the weight to restore p",
        "Example 1, entry (s, A), the weighted frequency of outcome B in hindsight draws, for any weight",
        float(d.probability[entry & (d.s_next == B)].sum() / d.probability[entry].sum()),
        0.5,
    )


# --- equation 9 ---


def weight_is_not_clipped(clip: float = 1.0) -> Counterexample:
    """The weighted frequency of the lucky outcome in hindsight draws, in the small maze, for a goal next to it."""
    maze = examples.small_maze()
    process, s, right, gamma = maze.process, maze.names["s"], 3, 0.9
    mu = occupancy(process, uniform(process), gamma)[process.successors[s, right]][:, maze.names["g"]]
    chance = process.probabilities[s, right]
    h = np.clip(chance @ mu / mu, 1 / (1 + clip), 1 + clip)
    share = chance * mu * h
    lucky = process.successors[s, right] == maze.names["A"]
    return Counterexample(
        "h is not clipped",
        "the weight to restore p",
        "the small maze, from s into the teleporter, goal g, the weighted frequency of the lucky outcome",
        float(share[lucky].sum() / share.sum()),
        0.5,
    )


def crossing() -> Process:
    """A deterministic process: 0 leads to 1; from there action 0 leads to 2 and action 1 to 3; both lead back to 0."""
    p = np.zeros((4, 2, 4))
    p[0, :, 1] = p[1, 0, 2] = p[1, 1, 3] = p[2, :, 0] = p[3, :, 0] = 1
    return Process.from_dense(p)


def next_action_is_not_hindsight() -> Counterexample:
    """With V(s', g) in the denominator, as in equation 9, a' keeps its hindsight bias: it is the action that led to g.

    Algorithm 1 has Q(s', a', g) there, which also restores the distribution of a'; then h is not 1 even in a
    deterministic process.
    """
    process, gamma = crossing(), 0.8
    beta = uniform(process)
    d = model_draws(process, beta, gamma, TRAJECTORY_GOALS)
    v = behaviour_values(process, beta, gamma)
    entry = (d.s == 0) & (d.g == 2)
    weight = d.probability[entry] / v[d.s_next, d.g][entry]  # h up to a factor that is the same for the whole entry
    return Counterexample(
        "the denominator of h is Q(s', a', g), not V(s', g)",
        "a' to follow β",
        "a deterministic crossing, goal 2, the weighted frequency of the a' that leads there",
        float(weight[d.a_next[entry] == 0].sum() / weight.sum()),
        0.5,
    )


def trajectories_do_not_end(length: int = 8) -> Counterexample:
    """With goal offsets clipped at the end of a trajectory, goals are not samples of mu, for which h is derived."""
    maze = examples.small_maze()
    process, s, right, gamma = maze.process, maze.names["s"], 3, 0.9
    chain, mu = process.transition_matrix(uniform(process)), occupancy(process, uniform(process), gamma)
    clipped, power = np.zeros_like(chain), np.eye(len(chain))
    for left in range(length, 0, -1):  # goals 1 to `length` steps after s
        passed = length - left
        clipped += gamma**passed * (1 - gamma if left > 1 else 1) * power
        power = power @ chain
    to, chance = process.successors[s, right], process.probabilities[s, right]
    goal = maze.names["g"]
    share = chance * clipped[to, goal] * (chance @ mu[to, goal]) / mu[to, goal]
    return Counterexample(
        "trajectories never end",
        "goals to be samples of μ",
        f"the small maze, {length} steps before the end, the frequency of the lucky outcome, weighted by the exact h",
        float(share[to == maze.names["A"]].sum() / share.sum()),
        0.5,
    )


def normalised_after_clipping() -> Counterexample:
    """In an entry with draws of both kinds, the scale of h determines the weight of m = 1 relative to m = 0."""
    process, gamma = examples.small_maze().process, 0.9
    log = sample_log(process, uniform(process), np.arange(process.states), 12, np.random.default_rng(0))
    draws = dataset_draws(log, process.states, process.actions, gamma)
    entry = (6, 3, 9)  # one of those with the largest difference; without normalisation its value is .337
    return Counterexample(
        "h is clipped first and normalised afterwards",
        "the fixed point of Algorithm 1",
        "the small maze, one entry, in the reverse order",
        float(Anchored(gamma, normalise="before").fixed_point(draws)[entry]),
        float(Anchored(gamma).fixed_point(draws)[entry]),
    )


def weight_does_not_move() -> Counterexample:
    """If h is computed from the table, a larger table can have a smaller fit.

    Where the composition is the larger target, a larger y_TD changes only the weight.
    """
    draws = example_draws()
    operator, rng = Anchored(GAMMA, normalise="never"), np.random.default_rng(0)
    differences = []
    for _ in range(200):
        low = rng.random((13, 1, 13))
        high = np.maximum(low, rng.random(low.shape))
        differences.append((operator(high, draws) - operator(low, draws)).min())
    return Counterexample(
        "h does not depend on Q",
        "the operator to be monotone, on which the proof of convergence rests",
        "Example 1, 200 pairs of a random table and a larger one, the minimum difference of their fits",
        float(min(differences)),
        0.0,
    )


def random_goals_ahead_count_as_random() -> Counterexample:
    """With few trajectories many random goals lie ahead; they have m = 1 and drop out of the average over outcomes.

    The weight h contributes to the difference: with h = 1, Q_A(s, A) is .611.
    """
    draws = example_draws()
    return Counterexample(
        "random goals rarely lie ahead on the same trajectory",
        "Q^β ≤ Q_A",
        "Example 1, one trajectory per outcome, Q_A(s, A): goal A with m = 0 comes with outcome B only",
        float(Anchored(GAMMA).fixed_point(draws)[S, 0, A]),
        GAMMA / 2,
    )


def rho_reads_the_critic() -> Counterexample:
    """Computed from the critic, rho is constant in an entry and does not change its fit; from the target it does."""
    draws = example_draws()
    return Counterexample(
        "ρ is computed from the critic, not from the target",
        "λ not to change a table's fixed point",
        "Example 1, λ = 1, Q(s, A), with ρ of the target, as in public TRL code",
        float(Anchored(GAMMA, lambda_=1.0, rho_reads="target").fixed_point(draws)[S, 0, A]),
        float(Anchored(GAMMA, lambda_=1.0).fixed_point(draws)[S, 0, A]),
    )


def optimal_value_is_no_bound() -> Counterexample:
    """Proposition 3 has the same bounds for Q* and Q_A and does not order them. The maximum alone is optimistic."""
    draws = example_draws()
    return Counterexample(
        "no optimism over subgoals, neither the maximum nor κ = 0.7",
        "Q_A ≤ Q*, which Proposition 3 does not state",
        "Example 1, even with κ = ½ everywhere, Q_A(s, g)",
        float(Anchored(GAMMA, kappa=0.5).fixed_point(draws)[S, 0, G]),
        float(optimal_values(examples.teleporter(), GAMMA)[S, G]),
    )
