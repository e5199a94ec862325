"""Finite Markov decision processes, behaviour policies, and logs of trajectories."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from gtrl.errors import ProcessError


@dataclass(frozen=True, eq=False)
class Process:
    """States 0 to S-1, actions 0 to A-1: action a in state s leads to successors[s, a, k] with probabilities[s, a, k].

    Every action can be taken in every state; a state with fewer choices has the same choice under several numbers. A
    successor may be listed more than once, and with probability 0 (padding).
    """

    successors: np.ndarray  # (S, A, K)
    probabilities: np.ndarray  # (S, A, K)

    def __post_init__(self) -> None:
        if not np.array_equal(self.successors, np.asarray(self.successors).astype(int)):
            raise ProcessError("successors must be integers, the numbers of states.")
        object.__setattr__(self, "successors", np.asarray(self.successors).astype(int))
        object.__setattr__(self, "probabilities", np.asarray(self.probabilities, float))
        if self.successors.ndim != 3 or self.successors.shape != self.probabilities.shape or not self.successors.size:
            raise ProcessError(
                "successors and probabilities must both have shape (states, actions, successors), "
                f"not {self.successors.shape} and {self.probabilities.shape}."
            )
        if self.successors.min() < 0 or self.successors.max() >= self.states:
            raise ProcessError(f"a successor is not one of the {self.states} states.")
        check_distribution("the probabilities of an action's successors", self.probabilities)

    @classmethod
    def from_dense(cls, p: np.ndarray) -> "Process":
        """Creates a process from an array p[s, a, s']."""
        p = np.asarray(p, float)
        if p.ndim != 3 or p.shape[0] != p.shape[2]:
            raise ProcessError(f"dense probabilities must have shape (states, actions, states), not {p.shape}.")
        most = max(1, int((p != 0).sum(-1).max(initial=0)))
        successors = np.argsort(p == 0, axis=-1, kind="stable")[..., :most]
        return cls(successors, np.take_along_axis(p, successors, -1))

    @classmethod
    def from_sparse(cls, matrices: Sequence[Any]) -> "Process":
        """Creates a process from one SciPy sparse matrix p[s, s'] per action, without dense (S, S) arrays."""
        rows: list[Any] = [sparse.csr_array(matrix) for matrix in matrices]
        if len({matrix.shape for matrix in rows}) != 1 or rows[0].shape[0] != rows[0].shape[1] or not rows[0].shape[0]:
            raise ProcessError("sparse probabilities must be square matrices of one shape, one for each action.")
        states, most = rows[0].shape[0], max(int(np.diff(matrix.indptr).max()) for matrix in rows)
        successors = np.zeros((states, len(rows), max(1, most)), int)
        probabilities = np.zeros(successors.shape)
        for action, matrix in enumerate(rows):
            state = np.repeat(np.arange(states), np.diff(matrix.indptr))
            place = np.arange(matrix.nnz) - matrix.indptr[state]
            successors[state, action, place] = matrix.indices
            probabilities[state, action, place] = matrix.data
        return cls(successors, probabilities)

    @property
    def states(self) -> int:
        """The number of states, S."""
        return self.successors.shape[0]

    @property
    def actions(self) -> int:
        """The number of actions, A."""
        return self.successors.shape[1]

    @cached_property
    def dense(self) -> np.ndarray:
        """The transition probabilities p[s, a, s'], (S, A, S)."""
        p = np.zeros((self.states, self.actions, self.states))
        s, a, _ = np.indices(self.successors.shape)
        np.add.at(p, (s, a, self.successors), self.probabilities)
        return p

    @cached_property
    def graph(self) -> Any:
        """G: a sparse (S, S) matrix with a 1 where some action can lead from s to s'."""
        s, _, _ = np.nonzero(self.probabilities)
        edges = sparse.csr_array((np.ones(len(s)), (s, self.successors[self.probabilities > 0])), (self.states,) * 2)
        edges.sum_duplicates()
        edges.data[:] = 1
        return edges

    @property
    def deterministic(self) -> bool:
        """Whether every action has a single outcome in every state."""
        first = np.take_along_axis(self.successors, self.probabilities.argmax(-1, keepdims=True), -1)
        return bool((self.probabilities[self.successors != first] == 0).all())

    def transition_matrix(self, beta: np.ndarray) -> np.ndarray:
        """Returns the transition probabilities between states (S, S) under a behaviour policy beta[s, a]."""
        check_behaviour(self, beta)
        chain = np.zeros((self.states, self.states))
        s, _, _ = np.indices(self.successors.shape)
        np.add.at(chain, (s, self.successors), beta[..., None] * self.probabilities)
        return chain

    def step(self, state: np.ndarray, action: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Samples the successor of each state and action."""
        place = _draw(self.probabilities[state, action], rng)
        return self.successors[state, action, place]


def uniform(process: Process) -> np.ndarray:
    """Returns the behaviour policy that takes every action with the same probability, (S, A)."""
    return np.full((process.states, process.actions), 1 / process.actions)


def check_behaviour(process: Process, beta: np.ndarray) -> None:
    """Raises a ProcessError unless `beta` is a policy of this process: (S, A), a distribution in each state."""
    if beta.shape != (process.states, process.actions):
        raise ProcessError(
            f"a behaviour must have shape (states, actions) = {process.states, process.actions}, not {beta.shape}."
        )
    check_distribution("the probabilities of a behaviour's actions", beta)


def check_distribution(what: str, p: np.ndarray) -> None:
    """Raises a ProcessError unless the last axis of `p` holds probabilities that sum to 1."""
    if not (np.isfinite(p).all() and (p >= 0).all() and np.allclose(p.sum(-1), 1, atol=1e-9)):
        raise ProcessError(f"{what} must not be negative and must sum to 1.")


def check_discount(gamma: float) -> None:
    """Raises a ProcessError unless 0 <= gamma < 1."""
    if not 0 <= gamma < 1:
        raise ProcessError(f"gamma is {gamma} and must be at least 0 and below 1.")


def check_within(what: str, numbers: np.ndarray, count: int) -> None:
    """Raises a ProcessError unless there are numbers and all are from 0 to `count` - 1."""
    if not numbers.size or numbers.min() < 0 or numbers.max() >= count:
        raise ProcessError(f"{what} must be numbers from 0 to {count - 1}, and at least one.")


def _draw(p: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Samples one index from each row of probabilities."""
    reached = np.cumsum(p, -1) > rng.random((*p.shape[:-1], 1)) * p.sum(-1, keepdims=True)
    return reached.argmax(-1)


class Log(NamedTuple):
    """Logged trajectories, concatenated. The last row of each is a state whose successor was not recorded."""

    states: np.ndarray  # (N,)
    actions: np.ndarray  # (N,)
    ends: np.ndarray  # (N,) the last row of each row's trajectory

    @classmethod
    def of(cls, trajectories: Sequence[tuple[Sequence[int], Sequence[int]]]) -> "Log":
        """Creates a log from the (states, actions) of each trajectory, as many actions as states."""
        if not trajectories:
            raise ProcessError("a log needs at least one trajectory.")
        states, actions, ends, rows = [], [], [], 0
        for s, a in trajectories:
            if len(s) != len(a) or not len(s):
                raise ProcessError(f"a trajectory has {len(s)} states and {len(a)} actions; it needs as many of both.")
            rows += len(s)
            states.append(np.asarray(s, int))
            actions.append(np.asarray(a, int))
            ends.append(np.full(len(s), rows - 1))
        return cls(np.concatenate(states), np.concatenate(actions), np.concatenate(ends))

    @property
    def transitions(self) -> np.ndarray:
        """The indices of the rows that have a successor."""
        return np.flatnonzero(np.arange(len(self.ends)) < self.ends)

    def check(self, states: int, actions: int) -> None:
        """Raises a ProcessError unless it fits a process of this size and has at least one transition."""
        check_within("the states of a log", self.states, states)
        check_within("the actions of a log", self.actions, actions)
        if not len(self.transitions):
            raise ProcessError("no trajectory of the log has a transition.")

    def pairs(self, states: int) -> np.ndarray:
        """Returns R of Proposition 2, (S, S): whether there is (s_i, s_j) with i <= j on one trajectory."""
        check_within("the states of a log", self.states, states)
        connected = np.zeros((states, states), bool)
        for row, end in enumerate(self.ends):
            connected[self.states[row], self.states[row : end + 1]] = True
        return connected

    def behaviour(self, states: int, actions: int) -> np.ndarray:
        """Returns the empirical behaviour policy (S, A); uniform in states that were not logged."""
        self.check(states, actions)
        counts = np.zeros((states, actions))
        np.add.at(counts, (self.states, self.actions), 1)
        total = counts.sum(1, keepdims=True)
        return np.where(total > 0, counts / np.maximum(total, 1), 1 / actions)


def sample_log(process: Process, beta: np.ndarray, starts: np.ndarray, length: int, rng: np.random.Generator) -> Log:
    """Samples one trajectory of `length` transitions from each start, under the behaviour policy."""
    check_behaviour(process, beta)
    check_within("the starts of trajectories", np.asarray(starts), process.states)
    if length < 1:
        raise ProcessError(f"a trajectory must have at least one transition, not {length}.")
    states, actions = (np.empty((len(starts), length + 1), int) for _ in range(2))
    states[:, 0] = starts
    for t in range(length + 1):
        actions[:, t] = _draw(beta[states[:, t]], rng)
        if t < length:
            states[:, t + 1] = process.step(states[:, t], actions[:, t], rng)
    ends = np.repeat(np.arange(1, len(starts) + 1) * (length + 1) - 1, length + 1)
    return Log(states.ravel(), actions.ravel(), ends)


def random_process(
    rng: np.random.Generator, states: int, actions: int, branching: int = 3, absorbing: float = 0.1
) -> Process:
    """Samples a process in which every action has 1 to `branching` outcomes.

    Each state is absorbing with probability `absorbing`.
    """
    branching = min(branching, states)
    successors = rng.permuted(np.tile(np.arange(states), (states, actions, 1)), axis=-1)[..., :branching]
    count = rng.integers(1, branching + 1, (states, actions, 1))
    trapped = np.flatnonzero(rng.random(states) < absorbing)
    successors[trapped, :, 0], count[trapped] = trapped[:, None], 1
    weight = rng.exponential(size=successors.shape) * (np.arange(branching) < count)
    return Process(successors, weight / weight.sum(-1, keepdims=True))


def random_behaviour(rng: np.random.Generator, process: Process) -> np.ndarray:
    """Samples a behaviour policy: in each state, uniformly among all distributions over actions."""
    return rng.dirichlet(np.ones(process.actions), process.states)
