"""Draws one logged episode with its achieved and commanded goals: `python picture.py [achieved-goal.png]`."""

import sys

import matplotlib.pyplot as plt
import numpy as np
from record import record

EPISODE = 3  # of the log with seed 0
COMMANDED, ACHIEVED = "#b5541c", "#1f5f8b"


def draw(path: str) -> None:
    """Writes the picture: the path of the tip in the plane, and both goals over time."""
    arrays, commanded = record(EPISODE + 1)
    ends = np.flatnonzero(arrays["terminals"])
    rows = slice(ends[EPISODE - 1] + 1, ends[EPISODE] + 1)
    tip, target = arrays["observations"][rows, 9:11], commanded[rows]
    figure, (plane, over_time) = plt.subplots(1, 2, figsize=(9.5, 3.9), width_ratios=(1, 1.45), layout="constrained")

    plane.plot(*tip.T, color=ACHIEVED, linewidth=1.5)
    plane.plot(*tip[0], "o", color=ACHIEVED, markersize=5)
    plane.annotate("start", tip[0], xytext=(6, 6), textcoords="offset points", color=ACHIEVED)
    for number, point in enumerate(dict.fromkeys(map(tuple, target.tolist())), start=1):
        plane.plot(*point, "x", color=COMMANDED, markersize=9, markeredgewidth=2)
        plane.annotate(str(number), point, xytext=(7, 4), textcoords="offset points", color=COMMANDED)
    plane.set(title="Where the tip was, and where it was sent", xlabel="x in m", ylabel="y in m", aspect="equal")
    plane.margins(0.12)

    steps = np.arange(len(tip))
    for column, style in ((0, "-"), (1, "--")):
        name = "xy"[column]
        over_time.plot(steps, tip[:, column], style, color=ACHIEVED, label=f"achieved {name}: the tip's position")
        label = f"commanded {name}: its target"
        over_time.plot(steps, target[:, column], style, color=COMMANDED, drawstyle="steps-post", label=label)
    over_time.set(title="The same episode over time", xlabel="step of 50 ms", ylabel="m")
    low, high = over_time.get_ylim()
    over_time.set_ylim(low, high + 0.45 * (high - low))
    over_time.legend(loc="upper left", ncols=2, fontsize="small", frameon=False)
    for axes in (plane, over_time):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    draw(*(sys.argv[1:] or ["achieved-goal.png"]))
