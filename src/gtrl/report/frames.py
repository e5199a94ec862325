"""Video files: composes frames from pictures and writes them as mp4 or gif."""

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
from gtrl.report import style

Format = Literal["mp4", "gif"]
FORMATS: tuple[Format, ...] = ("mp4", "gif")
FRAMES_PER_SECOND = 25  # a frame lasts 40 ms: gif files have a resolution of 10 ms
GAP, HEADER, LABEL = 12, 58, 20  # pixels: around pictures, height of the caption, height of each label
BACKGROUND, LABEL_COLOUR = "#ebe8e1", "#6b7680"  # not white: rendered walls are
PALETTE_FRAMES = 32  # frames that a gif's palette is chosen from


class Picture(NamedTuple):
    """Pixels (H, W, 3) uint8 and the label above them."""

    label: str
    pixels: np.ndarray


class Caption(NamedTuple):
    """The text above the pictures; `success` is None until the episode has ended."""

    title: str
    text: str
    success: bool | None = None

    @property
    def verdict(self) -> tuple[str, str]:
        """The outcome as text, and its colour."""
        if self.success is None:
            return "", style.INK
        return ("goal reached", style.SUCCESS) if self.success else ("goal not reached", style.FAILURE)


@lru_cache
def _font(size: int, bold: bool = False) -> ImageFont.FreeTypeFont:
    """The font of the figures, from the files that Matplotlib brings along."""
    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    return ImageFont.truetype(str(Path(mpl.get_data_path(), "fonts", "ttf", name)), size)


def compose(columns: Sequence[Sequence[Picture]], caption: Caption) -> Image.Image:
    """Returns a frame: columns of pictures side by side, a label above each picture, the caption above all."""
    widths = [max(picture.pixels.shape[1] for picture in column) for column in columns]
    heights = [sum(LABEL + len(picture.pixels) for picture in column) + GAP * (len(column) - 1) for column in columns]
    width, height = sum(widths) + GAP * (len(columns) + 1), HEADER + max(heights) + GAP
    frame = Image.new("RGB", (width + width % 2, height + height % 2), BACKGROUND)  # H.264 needs even sizes
    draw = ImageDraw.Draw(frame)
    draw.text((GAP, 19), caption.title, style.INK, _font(15, bold=True), anchor="lm")
    draw.text((GAP, 43), caption.text, style.INK, _font(14), anchor="lm")
    verdict, colour = caption.verdict
    draw.text((width - GAP, 43), verdict, colour, _font(14, bold=True), anchor="rm")
    left = GAP
    for column, column_width in zip(columns, widths, strict=True):
        top = HEADER
        for label, pixels in column:
            draw.text((left, top + LABEL // 2), label, LABEL_COLOUR, _font(12), anchor="lm")
            frame.paste(Image.fromarray(pixels), (left, top + LABEL))
            top += LABEL + len(pixels) + GAP
        left += column_width + GAP
    return frame


def compress(frame: Image.Image) -> bytes:
    """Returns a frame as PNG, a tenth of the size of its pixels: all frames of a video are in memory at once."""
    file = io.BytesIO()
    frame.save(file, "PNG", compress_level=1)
    return file.getvalue()


def decompress(frame: bytes) -> Image.Image:
    """Returns the image that `compress` was given."""
    return Image.open(io.BytesIO(frame)).convert("RGB")


def find_encoder() -> str | None:
    """Returns the program that writes mp4: ffmpeg on the path, else that of imageio-ffmpeg; None without either."""
    if found := shutil.which("ffmpeg"):
        return found
    try:
        import imageio_ffmpeg

        return imageio_ffmpeg.get_ffmpeg_exe()
    except (ImportError, RuntimeError):
        return None


def choose_format(path: Path | None) -> Format:
    """Returns the format by the file's suffix; without a file, mp4 if there is an encoder, else gif.

    Raises a VideoError for other suffixes, and for mp4 without an encoder.
    """
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


def write_video(path: Path, frames: Sequence[bytes], on_frames: Callable[[int], None] | None = None) -> None:
    """Writes compressed frames of one size, in the format of the file's suffix.

    `on_frames` is called with 1 after each frame, for a progress bar.
    """
    write = {"mp4": _write_mp4, "gif": _write_gif}[choose_format(path)]
    path.parent.mkdir(parents=True, exist_ok=True)

    def images() -> Iterator[Image.Image]:
        for frame in frames:
            yield decompress(frame)
            if on_frames:
                on_frames(1)

    with atomic_write(path) as file:
        write(file, images(), frames)


def _write_gif(file: BinaryIO, images: Iterator[Image.Image], frames: Sequence[bytes]) -> None:
    # One palette for all frames: with one per frame, colours would flicker, and the file would be larger.
    chosen = np.unique(np.linspace(0, len(frames) - 1, PALETTE_FRAMES).astype(int))
    samples = [np.asarray(decompress(frames[index]))[::2, ::2].reshape(-1, 3) for index in chosen]
    names = (BACKGROUND, style.INK, LABEL_COLOUR, style.SUCCESS, style.FAILURE)
    fixed = np.array([ImageColor.getrgb(colour) for colour in names], np.uint8)
    pixels = np.concatenate([fixed, *samples])[None]
    palette = Image.fromarray(pixels).quantize(256, Image.Quantize.MAXCOVERAGE)
    reduced = (image.quantize(palette=palette, dither=Image.Dither.NONE) for image in images)
    duration = 1000 // FRAMES_PER_SECOND
    next(reduced).save(file, "GIF", save_all=True, append_images=reduced, duration=duration, loop=0)


def _write_mp4(file: BinaryIO, images: Iterator[Image.Image], frames: Sequence[bytes]) -> None:
    width, height = decompress(frames[0]).size
    # The encoder's default for mp4 is H.264 where it has it; every player can show yuv420p.
    command = [
        find_encoder() or "ffmpeg", "-y", "-loglevel", "error",
        "-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", str(FRAMES_PER_SECOND), "-i", "-",
        "-pix_fmt", "yuv420p", "-movflags", "+faststart", "-f", "mp4", file.name,
    ]  # fmt: skip
    with tempfile.TemporaryFile() as messages:
        encoder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=messages, stderr=messages)  # noqa: S603
        with contextlib.suppress(BrokenPipeError), encoder:  # an encoder that ends early has written why
            assert encoder.stdin is not None
            for image in images:
                encoder.stdin.write(image.tobytes())
        if encoder.returncode:
            messages.seek(0)
            last = messages.read().decode(errors="replace").strip().splitlines()[-1:] or ["no message"]
            raise VideoError(f"{command[0]} could not write the video ({last[0]}); a .gif file does not need it.")
