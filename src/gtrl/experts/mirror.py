"""Left-right symmetry: inputs and actions of a body reflected at its sagittal plane, where y changes its sign.

If the left side of a body is the reflection of its right side, the reflection of a step is a step that it can take.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np


class Reflection(NamedTuple):
    """A signed permutation: number k of the reflection is `signs[k]` times number `sources[k]` of the original."""

    sources: tuple[int, ...]
    signs: tuple[int, ...]

    def of(self, rows: Any) -> Any:
        """Returns the reflection of rows (B, size), which are NumPy's or JAX's."""
        return rows[:, np.array(self.sources)] * np.array(self.signs, np.float32)


SCALAR = Reflection((0,), (1,))
HORIZONTAL = Reflection((0, 1), (1, -1))  # a horizontal vector
VECTOR = Reflection((0, 1, 2), (1, -1, 1))
AXIAL = Reflection((0, 1, 2), (-1, 1, -1))  # a rotation axis or an angular velocity


def concatenated(*parts: Reflection) -> Reflection:
    """Returns the reflection of a concatenation from those of its parts."""
    starts = np.cumsum([0, *(len(part.sources) for part in parts)])
    sources = tuple(int(start) + source for start, part in zip(starts, parts, strict=False) for source in part.sources)
    return Reflection(sources, tuple(sign for part in parts for sign in part.signs))


def opposite_indices(names: Sequence[str]) -> tuple[int, ...]:
    """Returns for each name the index of the same part on the other side: for left_knee that of right_knee."""
    return tuple(list(names).index(_opposite(name)) for name in names)


def positions(names: Sequence[str]) -> Reflection:
    """Returns the reflection of the positions of named parts, three numbers for each."""
    sources = tuple(3 * other + k for other in opposite_indices(names) for k in range(3))
    return Reflection(sources, VECTOR.signs * len(names))


def joint_angles(joints: Sequence[str], axes: np.ndarray) -> Reflection:
    """Returns the reflection of the angles of hinges: the sign is -1 where a joint's axis, reflected, is reversed."""
    opposite = opposite_indices(joints)
    signs = np.rint((axes[list(opposite)] * AXIAL.of(axes)).sum(-1)).astype(int)
    return Reflection(opposite, tuple(signs.tolist()))


def _opposite(name: str) -> str:
    sides = {"left": "right", "right": "left"}
    side, _, rest = name.partition("_")
    return f"{sides[side]}_{rest}" if side in sides else name
