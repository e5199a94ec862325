"""Films: frames put together from pictures, and written as mp4 or gif."""

import contextlib
import io
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple

import matplotlib as mpl
import numpy as np
from PIL import Image, ImageColor, ImageDraw, ImageFont

from gtrl.errors import VideoError
from gtrl.io.atomic import atomic_write
from gtrl.report.figures import ARRIVED, FAILED, INK

Format = Literal["mp4", "gif"]
FORMATS: tuple[Format, ...] = ("mp4", "gif")
FRAMES_PER_SECOND = 25  # 40 ms: gif counts in hundredths of a second
GAP, HEADER, LABEL = 12, 58, 20  # pixels: around pictures, over all of them, over each
PAPER, QUIET = "#ebe8e1", "#6b7680"  # walls are white
PALETTE_SAMPLES = 32  # frames


class Picture(NamedTuple):
    """A picture (H, W, 3) uint8 and what it shows."""

    label: str
    pixels: np.ndarray


class Caption(NamedTuple):
    """What stands over the pictures; `success` is None while nobody knows."""

    title: str
    text: str
    success: bool | None = None

    @property
    def verdict(self) -> tuple[str, str]:
        """The last word, and its colour."""
        return {None: ("", INK), True: ("goal reached", ARRIVED), False: ("goal not reached", FAILED)}[self.success]


@lru_cache
def _font(size: int, bold: bool = False) -> ImageFont.FreeTypeFont:
    """Matplotlib's own, so that it is there on every machine and films look like figures."""
    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    return ImageFont.truetype(str(Path(mpl.get_data_path(), "fonts", "ttf", name)), size)


def compose(columns: Sequence[Sequence[Picture]], caption: Caption) -> Image.Image:
    """A frame: columns of pictures side by side, each picture under its label, all of them under the caption."""
    widths = [max(picture.pixels.shape[1] for picture in column) for column in columns]
    heights = [sum(LABEL + len(picture.pixels) for picture in column) + GAP * (len(column) - 1) for column in columns]
    width, height = sum(widths) + GAP * (len(columns) + 1), HEADER + max(heights) + GAP
    frame = Image.new("RGB", (width + width % 2, height + height % 2), PAPER)  # H.264 takes even sizes only
    draw = ImageDraw.Draw(frame)
    draw.text((GAP, 19), caption.title, INK, _font(15, bold=True), anchor="lm")
    draw.text((GAP, 43), caption.text, INK, _font(14), anchor="lm")
    word, colour = caption.verdict
    draw.text((width - GAP, 43), word, colour, _font(14, bold=True), anchor="rm")
    left = GAP
    for column, its_width in zip(columns, widths, strict=True):
        top = HEADER
        for label, pixels in column:
            draw.text((left, top + LABEL // 2), label, QUIET, _font(12), anchor="lm")
            frame.paste(Image.fromarray(pixels), (left, top + LABEL))
            top += LABEL + len(pixels) + GAP
        left += its_width + GAP
    return frame


def packed(frame: Image.Image) -> bytes:
    """A frame as a PNG file: a tenth of its pixels, so that a whole film fits into memory."""
    file = io.BytesIO()
    frame.save(file, "PNG", compress_level=1)
    return file.getvalue()


def unpacked(frame: bytes) -> Image.Image:
    return Image.open(io.BytesIO(frame)).convert("RGB")


def find_encoder() -> str | None:
    """The program that writes mp4: ffmpeg on the path, or the one that comes with imageio-ffmpeg."""
    if found := shutil.which("ffmpeg"):
        return found
    try:
        import imageio_ffmpeg

        return imageio_ffmpeg.get_ffmpeg_exe()
    except (ImportError, RuntimeError):
        return None


def choose_format(path: Path | None) -> Format:
    """By the file's ending; without a file, mp4 where there is an encoder and gif elsewhere."""
    encoder = find_encoder()
    if path is None:
        return "mp4" if encoder else "gif"
    for kind in FORMATS:
        if path.suffix.lower() == f".{kind}":
            if kind == "mp4" and not encoder:
                raise VideoError(
                    f"there is no encoder for {path.name}: install ffmpeg or the Python package imageio-ffmpeg "
                    "(the extra 'video'), or name a .gif file."
                )
            return kind
    raise VideoError(f"{path} is neither an .mp4 nor a .gif file.")


def write_film(path: Path, frames: Sequence[bytes], done: Callable[[int], None] | None = None) -> None:
    """Write packed frames of one size, in the format of the file's ending; `done` hears of each one."""
    write = {"mp4": _write_mp4, "gif": _write_gif}[choose_format(path)]
    path.parent.mkdir(parents=True, exist_ok=True)

    def images() -> Iterator[Image.Image]:
        for frame in frames:
            yield unpacked(frame)
            if done:
                done(1)

    with atomic_write(path) as file:
        write(file, images(), frames)


def _write_gif(file: BinaryIO, images: Iterator[Image.Image], frames: Sequence[bytes]) -> None:
    # One palette for the whole film: colours of its own in each frame would flicker, and weigh more than the picture.
    chosen = np.unique(np.linspace(0, len(frames) - 1, PALETTE_SAMPLES).astype(int))
    samples = [np.asarray(unpacked(frames[index]))[::2, ::2].reshape(-1, 3) for index in chosen]
    inks = np.array([ImageColor.getrgb(colour) for colour in (PAPER, INK, QUIET, ARRIVED, FAILED)], np.uint8)
    pixels = np.concatenate([inks, *samples])[None]
    palette = Image.fromarray(pixels).quantize(256, Image.Quantize.MAXCOVERAGE)
    reduced = (image.quantize(palette=palette, dither=Image.Dither.NONE) for image in images)
    duration = 1000 // FRAMES_PER_SECOND
    next(reduced).save(file, "GIF", save_all=True, append_images=reduced, duration=duration, loop=0)


def _write_mp4(file: BinaryIO, images: Iterator[Image.Image], frames: Sequence[bytes]) -> None:
    width, height = unpacked(frames[0]).size
    # The encoder's own choice for mp4 is H.264 where it can; yuv420p is what every player can show.
    command = [
        find_encoder() or "ffmpeg", "-y", "-loglevel", "error",
        "-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", str(FRAMES_PER_SECOND), "-i", "-",
        "-pix_fmt", "yuv420p", "-movflags", "+faststart", "-f", "mp4", file.name,
    ]  # fmt: skip
    with tempfile.TemporaryFile() as messages:
        encoder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=messages, stderr=messages)  # noqa: S603
        with contextlib.suppress(BrokenPipeError), encoder:  # one that ends early says why
            assert encoder.stdin is not None
            for image in images:
                encoder.stdin.write(image.tobytes())
        if encoder.returncode:
            messages.seek(0)
            last = messages.read().decode(errors="replace").strip().splitlines()[-1:] or ["it does not say why"]
            raise VideoError(f"{command[0]} could not write the film ({last[0]}); a .gif file does not need it.")
