"""What the propositions take for granted: each assumption with a small process in which it fails, and what follows."""

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
    """An assumption, where the paper needs it, and what happens without it: `found` instead of `expected`."""

    assumption: str
    needed_for: str
    shows: str
    found: float
    expected: float

    @property
    def shown(self) -> bool:
        """Whether the two differ by more than rounding."""
        return abs(self.found - self.expected) > 1e-6


def run() -> Iterable[Counterexample]:
    yield every_edge()
    yield sub_goal_is_not_the_state()
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
    """GTRL's draws from a log of Example 1 with one trajectory for each outcome."""
    return dataset_draws(examples.teleporter_log(), 13, 1, GAMMA)


# --- Proposition 1 ---


def every_edge() -> Counterexample:
    """Without the lucky trajectory in the data, its edges are not in the graph that the update sees."""
    log = examples.teleporter_log(lucky=0)
    seen = np.zeros((13, 1, 13))
    seen[log.states[:-1], 0, log.states[1:]] = 1
    seen[G, 0, G] = seen[A, 0, A] = 1
    return Counterexample(
        "every edge of G is in the data",
        "Proposition 1",
        "Example 1 without a lucky trajectory: V(s, g) is γ^11",
        float(divide_and_conquer_values(Process.from_dense(seen), GAMMA)[S, G]),
        float(divide_and_conquer_values(examples.teleporter(), GAMMA)[S, G]),
    )


def fork() -> Process:
    """Deterministic: from 0, action 0 leads to 1 and action 1 to 2; from 1 it is one step to 3, from 2 five."""
    p = np.zeros((8, 2, 8))
    p[0, 0, 1] = p[0, 1, 2] = 1
    for here, there in ((1, 3), (2, 4), (4, 5), (5, 6), (6, 7), (7, 3), (3, 3)):
        p[here, :, there] = 1
    return Process.from_dense(p)


def sub_goal_is_not_the_state() -> Counterexample:
    """Through w = s the first factor is 1 and the second may take any action: all actions look equally good."""
    process = fork()
    return Counterexample(
        "w = s is not among the sub-goals, and no action stays where it is",
        "equation 3 to converge to Q*",
        "A deterministic fork: the long way round gets the short way's value",
        float(iterate_actions(process, GAMMA)[0, 1, 3]),
        float(iterate_actions(process, GAMMA, through_itself=False)[0, 1, 3]),
    )


# --- Proposition 2 ---


def actions_are_covered_too() -> Counterexample:
    """(s, g) is in R by one action; the other action's entry has no target all the same."""
    log = Log.of([([0, 1, 3], [0, 0, 0]), ([2, 4], [0, 0]), ([0, 2], [1, 0])])
    draws = dataset_draws(log, 8, 2, GAMMA, TRAJECTORY_GOALS)
    start = np.full((8, 2, 8), 0.5)
    return Counterexample(
        "pairs are read with their action",
        "every pair in R to be trained",
        "The fork, (0, 3) in R by action 0: the entry of action 1 stays as it was initialised",
        float(transitive_fit(GAMMA).fixed_point(draws, start)[0, 1, 3]),
        float(state_action_values(fork(), optimal_values(fork(), GAMMA), GAMMA)[0, 1, 3]),
    )


# --- Proposition 3 ---


def successors_are_in_the_data() -> Counterexample:
    """A trajectory that breaks off: its last state has no transition, is never fitted, and others bootstrap from it."""
    log = Log.of([([0, 1], [0, 0]), ([2, 2], [0, 0])])  # of a corridor 0, 1, 2
    draws = dataset_draws(log, 3, 1, GAMMA)
    return Counterexample(
        "every state-action pair that is bootstrapped from has transitions",
        "Q^β ≤ Q_A",
        "A corridor of three, logged as 0 → 1 and apart from it 2: Q_A(0, 2) stays 0",
        float(Anchored(GAMMA).fixed_point(draws)[0, 0, 2]),
        GAMMA**2,
    )


def one_parameter_for_each_entry() -> Counterexample:
    """A and B with one parameter, as a network that cannot tell them apart: their entry is a compromise."""
    log = examples.teleporter_log()
    aliased = Log(np.where(log.states == B, A, log.states), log.actions, log.ends)
    draws = dataset_draws(aliased, 13, 1, GAMMA, decomposable="draw")
    return Counterexample(
        "each entry is fitted exactly, by itself",
        "Q^β ≤ Q_A",
        "Example 1 with one entry for A and B: Q_A(A, g) falls below Q^β",
        float(Anchored(GAMMA, hindsight=False).fixed_point(draws)[A, 0, G]),
        GAMMA,
    )


def every_outcome_reaches_the_goal() -> Counterexample:
    """After B nobody is at A, so goal A is only ever drawn after A; no finite weight brings B back."""
    process = examples.teleporter()
    d = model_draws(process, uniform(process), GAMMA, TRAJECTORY_GOALS)
    mine = (d.s == S) & (d.g == A)  # of one successor all have the same weight h, so that it is left out
    return Counterexample(
        "every outcome can reach g",
        "the weight to restore p",
        "Example 1, entry (s, A): the share of outcome B among hindsight draws, under any weight",
        float(d.probability[mine & (d.s_next == B)].sum() / d.probability[mine].sum()),
        0.5,
    )


# --- equation 9 ---


def weight_is_not_clipped(clip: float = 1.0) -> Counterexample:
    """The share of the lucky outcome among weighted hindsight draws, in the small maze, for a goal next to it."""
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
        "The small maze, from s into the teleporter, goal g: the lucky outcome's share, weighted",
        float(share[lucky].sum() / share.sum()),
        0.5,
    )


def crossing() -> Process:
    """0 leads to 1; there action 0 leads to 2 and action 1 to 3; both lead back to 0."""
    p = np.zeros((4, 2, 4))
    p[0, :, 1] = p[1, 0, 2] = p[1, 1, 3] = p[2, :, 0] = p[3, :, 0] = 1
    return Process.from_dense(p)


def next_action_is_not_hindsight() -> Counterexample:
    """With V(s', g) below the line, as equation 9 is written, a' stays hindsight: it led to g.

    Algorithm 1 has Q(s', a', g) there, which restores a' as well; then h is not 1 even though all is deterministic.
    """
    process, gamma = crossing(), 0.8
    beta = uniform(process)
    d = model_draws(process, beta, gamma, TRAJECTORY_GOALS)
    v = behaviour_values(process, beta, gamma)
    mine = (d.s == 0) & (d.g == 2)
    weight = d.probability[mine] / v[d.s_next, d.g][mine]  # h up to a factor that is the entry's own
    return Counterexample(
        "h has Q(s', a', g) below the line, not V(s', g)",
        "a' to follow β",
        "A deterministic crossing, goal 2: by V, the share of a' that lead there, which β takes half the time",
        float(weight[d.a_next[mine] == 0].sum() / weight.sum()),
        0.5,
    )


def trajectories_do_not_end(length: int = 8) -> Counterexample:
    """Offsets clipped at a trajectory's end: goals are no samples of mu, and the ratio of mu corrects another law."""
    maze = examples.small_maze()
    process, s, right, gamma = maze.process, maze.names["s"], 3, 0.9
    chain, mu = process.under(uniform(process)), occupancy(process, uniform(process), gamma)
    clipped, power = np.zeros_like(chain), np.eye(len(chain))
    for left in range(length, 0, -1):  # goals 1 to `length` steps after s
        passed = length - left
        clipped += gamma**passed * (1 - gamma if left > 1 else 1) * power
        power = power @ chain
    to, chance = process.successors[s, right], process.probabilities[s, right]
    goal = maze.names["g"]
    share = chance * clipped[to, goal] * (chance @ mu[to, goal]) / mu[to, goal]
    return Counterexample(
        "trajectories go on for ever",
        "goals to be samples of μ",
        f"The small maze, {length} steps left: the lucky outcome's share, weighted by the exact ratio",
        float(share[to == maze.names["A"]].sum() / share.sum()),
        0.5,
    )


def normalised_after_clipping() -> Counterexample:
    """At a pair drawn both ways, how much m = 1 counts against m = 0 depends on the scale that h is given."""
    process, gamma = examples.small_maze().process, 0.9
    log = sample_log(process, uniform(process), np.arange(process.states), 12, np.random.default_rng(0))
    draws = dataset_draws(log, process.states, process.actions, gamma)
    entry = (6, 3, 9)  # one of those that differ most; without any normalisation it is .337
    return Counterexample(
        "h is clipped first and normalised then",
        "the fixed point of Algorithm 1",
        "A walk in the small maze, one entry, normalised first and clipped then",
        float(Anchored(gamma, normalise="before").fixed_point(draws)[entry]),
        float(Anchored(gamma).fixed_point(draws)[entry]),
    )


def weight_does_not_move() -> Counterexample:
    """With h read off the table, a larger table can have a smaller fit.

    Where the composition is the larger target, a larger y_TD changes nothing but the weight.
    """
    draws = example_draws()
    operator, rng = Anchored(GAMMA, normalise="never"), np.random.default_rng(0)
    falls = []
    for _ in range(200):
        low = rng.random((13, 1, 13))
        high = np.maximum(low, rng.random(low.shape))
        falls.append((operator(high, draws) - operator(low, draws)).min())
    return Counterexample(
        "h does not depend on Q",
        "the operator to be monotone, on which the proof of convergence rests",
        "Example 1, 200 random tables and larger ones: the deepest fall from a table's fit to a larger one's",
        float(min(falls)),
        0.0,
    )


def random_goals_ahead_count_as_random() -> Counterexample:
    """With few trajectories many random goals lie ahead, and m = 1 takes them out of the average over outcomes.

    It takes the weight too: with h = 1, Q_A(s, A) is .611.
    """
    draws = example_draws()
    return Counterexample(
        "random goals rarely lie ahead on the same trajectory",
        "Q^β ≤ Q_A",
        "Example 1 logged once each way: goal A with m = 0 shows outcome B only, and h halves the rest; Q_A(s, A)",
        float(Anchored(GAMMA).fixed_point(draws)[S, 0, A]),
        GAMMA / 2,
    )


def rho_reads_the_critic() -> Counterexample:
    """The paper's rho is one number for an entry and cannot move its fit; read off the target, it favours the lucky."""
    draws = example_draws()
    return Counterexample(
        "ρ reads the critic, not the target",
        "λ not to move a table's fixed point",
        "Example 1, λ = 1, Q(s, A): ρ of the target, as public TRL code has it, gives unlucky targets no weight",
        float(Anchored(GAMMA, lambda_=1.0, rho_reads="target").fixed_point(draws)[S, 0, A]),
        float(Anchored(GAMMA, lambda_=1.0).fixed_point(draws)[S, 0, A]),
    )


def optimal_value_is_no_bound() -> Counterexample:
    """Proposition 3 has Q* and Q_A in one bracket; it does not say which is larger. The maximum alone is optimistic."""
    draws = example_draws()
    return Counterexample(
        "no optimism over sub-goals, neither the maximum nor κ = 0.7",
        "Q_A ≤ Q*, which Proposition 3 does not say",
        "Example 1, even with κ = ½ everywhere: Q_A(s, g)",
        float(Anchored(GAMMA, kappa=0.5).fixed_point(draws)[S, 0, G]),
        float(optimal_values(examples.teleporter(), GAMMA)[S, G]),
    )
