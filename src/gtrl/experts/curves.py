"""The curves of an expert's training."""

from pathlib import Path
from typing import Any

from gtrl.io.jsonl import read_rows
from gtrl.report import style

# Panels: the figure to draw and its label, from evaluations.
PANELS = (
    ("return", "return of an episode"),
    ("m per 100 steps in the direction", "m per 100 steps in the direction"),
    ("ball within 0.5 m of its goal", "share of episodes with the ball at its goal"),
    ("episodes with a fall", "share of episodes with a fall"),
)


@style.applied()
def curves_picture(folder: Path) -> Path | None:
    """Draws the evaluations of a run against the simulator's steps; returns the picture, or None without any."""
    rows: list[dict[str, Any]] = list(read_rows(folder / "eval.jsonl"))
    if not rows:
        return None
    panels = [panel for panel in PANELS if panel[0] in rows[0]]
    figure = style.new_figure(2.2)
    for axis, (name, label) in zip(figure.subplots(1, len(panels)), panels, strict=True):
        values = [row[name] for row in rows]
        axis.plot([row["step"] / 1e6 for row in rows], values, marker=".")
        axis.set(xlabel="million simulator steps", title=label)
        axis.set_ylim(*((-0.02, 1.02) if label.startswith("share") else (min(0.0, *values), None)))
        axis.grid(visible=True)
    path = folder / "curves.png"
    style.save(figure, path)
    return path
