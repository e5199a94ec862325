"""The one style of every figure: sizes, palette, line styles, maze plans, colour bars and files.

Figures are `WIDTH` inches wide, so that a point of text is 1.4 pixels where a page shows them 830 pixels wide. Whatever
differs in colour also differs in lightness, dash, marker or a printed number, for readers in grey.
"""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import matplotlib as mpl
import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path as Outline
from PIL import Image
from scipy.spatial import KDTree

# --- sizes ---

WIDTH = 8.3  # inches
DOTS_PER_INCH = 200  # twice the resolution of a page that is 830 pixels wide
SMALL = 7.0  # points, the smallest text: 10 pixels on such a page

# --- palette ---

INK = "#22303c"  # text, outlines, start and goal
GREY = "#7d858c"  # what stands in the background: reference lines, arrows
WALL = "#d9d4c7"
ENTRANCE, EXIT = "#e8a33d", "#4aa3df"  # of teleporters
SUCCESS, FAILURE = "#1a7f6b", "#d1492e"  # episodes, on white
SUCCESS_ON_MAP, FAILURE_ON_MAP = "#ffffff", "#ff8a5c"  # episodes, on a map of values
EPISODES = ("#17324d", "#b3402a", "#2e7d5b", "#7d4a9c", "#b8860b", "#5f9bd1")  # one for each drawn episode
# Colour maps: of values, and of signed differences. With so few colours, a file with a palette has all of them.
SEQUENTIAL, DIVERGING = mpl.colormaps["viridis"].resampled(64), mpl.colormaps["RdBu_r"].resampled(65)

# --- lines: one colour, dash and marker for each method or quantity ---

LINES: dict[str, dict[str, Any]] = {
    "GTRL": {"color": "#1b4f8a", "linestyle": "-", "marker": "o"},
    "TRL": {"color": "#d1603d", "linestyle": "--", "marker": "s"},
    "one step": {"color": GREY, "linestyle": "-.", "marker": "^"},
    "transitive": {"color": INK, "linestyle": ":", "marker": "D"},
}
REFERENCE: dict[str, Any] = {"color": GREY, "linewidth": 0.9, "linestyle": (0, (4, 3)), "zorder": 1}

# --- markers: of places in a maze ---

MARKERS: dict[str, dict[str, Any]] = {
    "start": {"marker": "o", "color": INK},
    "goal": {"marker": "*", "color": INK},
    "entrance": {"marker": "s", "color": ENTRANCE},
    "exit": {"marker": "D", "color": EXIT},
}

RC: dict[Any, Any] = {
    "font.family": "DejaVu Sans",  # Matplotlib brings it along, so figures are the same on every machine
    "font.size": 8.0,
    "axes.titlesize": 8.5,
    "axes.labelsize": 8.0,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "legend.fontsize": 7.5,
    "legend.frameon": False,
    "figure.titlesize": 9.5,
    "figure.titleweight": "bold",
    "figure.facecolor": "white",
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": "#dfe2e5",
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.6,
    "lines.markersize": 5.0,
    "hatch.linewidth": 0.7,
    "image.interpolation": "nearest",
    "mathtext.fontset": "dejavusans",
    "mathtext.default": "regular",
    "savefig.dpi": DOTS_PER_INCH,
    "svg.fonttype": "none",
    "svg.hashsalt": "gtrl",
}


@contextmanager
def applied() -> Iterator[None]:
    """Applies the style within a `with` block or, as a decorator, within a function that draws and saves."""
    with mpl.rc_context(RC):
        yield


def new_figure(height: float, width: float = WIDTH) -> Figure:
    """Returns an empty figure of that size in inches, whose parts are laid out without overlaps."""
    return Figure(figsize=(width, height), layout="constrained")


def save(figure: Figure, file: Path | BinaryIO) -> None:
    """Writes a figure in the format of the file's ending, or as PNG if there is none.

    Files have no dates: the same figure has the same bytes.
    """
    ending = file.suffix.lower() if isinstance(file, Path) else ""
    if ending not in ("", ".png"):
        dates = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
        figure.savefig(file, metadata=dates.get(ending))
        return
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": None})
    _with_palette(Image.open(buffer).convert("RGB")).save(file, "PNG", optimize=True)


def _with_palette(image: Image.Image) -> Image.Image:
    """Reduces an image to 256 colours, which makes the file a third as large.

    Most of them are the most frequent ones, so that areas keep their exact colours. The others are spread over all
    colours, for smoothed edges.
    """
    pixels = np.asarray(image)
    red, green, blue = np.moveaxis(pixels.astype(np.int32), -1, 0)
    _, first, inverse, counts = np.unique(
        red << 16 | green << 8 | blue, return_index=True, return_inverse=True, return_counts=True
    )
    colours = pixels.reshape(-1, 3)[first]
    frequent = colours[np.argsort(-counts, kind="stable")[:192]]
    spread = Image.fromarray(colours[None]).quantize(64, Image.Quantize.MAXCOVERAGE).getpalette()
    palette = np.concatenate([frequent, np.array(spread, np.uint8).reshape(-1, 3)])
    nearest = np.asarray(KDTree(palette).query(colours)[1], np.uint8)
    reduced = Image.fromarray(nearest[inverse].reshape(red.shape))
    reduced.putpalette(palette.tobytes())
    return reduced


# --- maps ---


def draw_plan(axis: Any, free: np.ndarray, extent: tuple[float, float, float, float]) -> None:
    """Draws the plan of a maze: free cells in white, walls in grey above any image, and a line between them.

    `free` is (rows, columns), row 0 the lowest; `extent` is (left, right, bottom, top) of all cells. The view has y up
    and half of the outer walls.
    """
    rows, columns = free.shape
    left, right, bottom, top = extent
    xs, ys = np.linspace(left, right, columns + 1), np.linspace(bottom, top, rows + 1)
    axis.imshow(np.where(free, 0.0, np.nan), extent=extent, origin="lower", cmap="Greys", vmin=0, vmax=1, zorder=0)
    boxes = [
        np.array([[xs[j], ys[i]], [xs[j + 1], ys[i]], [xs[j + 1], ys[i + 1]], [xs[j], ys[i + 1]], [xs[j], ys[i]]])
        for i, j in np.argwhere(~free)
    ]
    walls = Outline.make_compound_path(*map(Outline, boxes))
    axis.add_patch(PathPatch(walls, facecolor=WALL, edgecolor=WALL, linewidth=0.4, zorder=2))
    upright, level = np.argwhere(free[:, 1:] != free[:, :-1]), np.argwhere(free[1:] != free[:-1])
    edges = [Outline([(xs[j + 1], ys[i]), (xs[j + 1], ys[i + 1])]) for i, j in upright]
    edges += [Outline([(xs[j], ys[i + 1]), (xs[j + 1], ys[i + 1])]) for i, j in level]
    if edges:
        line = {"edgecolor": INK, "linewidth": 0.9, "capstyle": "projecting", "antialiased": False}
        axis.add_patch(PathPatch(Outline.make_compound_path(*edges), fill=False, zorder=2.5, **line))
    half_x, half_y = (xs[1] - xs[0]) / 2, (ys[1] - ys[0]) / 2
    axis.set(xticks=[], yticks=[], aspect="equal")
    axis.set(xlim=(left + half_x, right - half_x), ylim=(bottom + half_y, top - half_y))
    axis.spines[:].set_visible(False)
    axis.set_facecolor(WALL)


def colour_bar(figure: Figure, image: Any, axes: Any, label: str, location: str = "right", **options: Any) -> Any:
    """Adds a colour bar for an image beside the axes it belongs to, and returns it."""
    options = {"aspect": 30, "shrink": 0.9, "pad": 0.02} | options
    bar = figure.colorbar(image, ax=axes, location=location, label=label, **options)
    bar.outline.set_linewidth(0.5)
    return bar


def text_colour(background: Any) -> str:
    """Returns black or white, whichever has the higher contrast to a background colour."""
    red, green, blue = (
        channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4 for channel in to_rgb(background)
    )
    luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue  # of WCAG, where contrasts are equal at 0.179
    return "black" if luminance > 0.179 else "white"
