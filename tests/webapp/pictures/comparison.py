"""Compares a picture of a page with an accepted one, so that fonts may be drawn a little differently and nothing else.

Both are compared scaled down, and kept so if they are wide: the average of nine pixels hardly changes with
anti-aliasing. A picture differs if in one block of it too many pixels have another colour, so a small thing that is
missing counts on a long page as on a short one.
"""

from io import BytesIO
from pathlib import Path

from PIL import Image, ImageChops, ImageStat

SCALE = 3
BLOCK = 12  # pixels of the scaled picture, which are 36 of the page
TOLERATED_DISTANCE = 32  # of 255, in the channel that differs most
TOLERATED_SHARE = 0.12  # of the pixels of a block
GAP = 10


def scaled(screenshot: bytes, by: int = SCALE) -> Image.Image:
    return Image.open(BytesIO(screenshot)).convert("RGB").reduce(by)


def save(picture: Image.Image, path: Path) -> None:
    """Write a picture as lossless WebP. With a palette of 64 colors it is a third smaller, and differs by itself."""
    picture.save(path, lossless=True, quality=80, method=5)


def fault(actual: Image.Image, accepted: Image.Image, scaled_by: int = SCALE) -> str:
    """Return what differs, empty where nothing does. scaled_by: what both were scaled down by already."""
    actual, accepted = (each.reduce(SCALE // scaled_by) for each in (actual, accepted))
    if actual.size != accepted.size:
        return f"{_size(actual)} instead of {_size(accepted)}"
    differing = _differing(actual, accepted)
    share = differing.reduce(BLOCK).getextrema()[1] / 255
    if share <= TOLERATED_SHARE:
        return ""
    total = ImageStat.Stat(differing).mean[0] / 255
    return f"{total:.1%} of the pixels differ, in one block of {BLOCK * SCALE} px {share:.0%}"


def side_by_side(actual: Image.Image, accepted: Image.Image) -> Image.Image:
    """Return the actual picture, the accepted one, and a pale accepted one with red where they differ."""
    size = (accepted.width, max(actual.height, accepted.height))
    actual, accepted = (each.crop((0, 0, *size)) for each in (actual, accepted))
    marked = accepted.convert("L").point(lambda light: 128 + light // 2).convert("RGB")
    marked.paste((220, 0, 0), mask=_differing(actual, accepted))
    together = Image.new("RGB", (3 * size[0] + 2 * GAP, size[1]), "gray")
    for place, each in enumerate((actual, accepted, marked)):
        together.paste(each, (place * (size[0] + GAP), 0))
    return together


def _size(picture: Image.Image) -> str:
    return f"{SCALE * picture.width} x {SCALE * picture.height} px"


def _differing(actual: Image.Image, accepted: Image.Image) -> Image.Image:
    red, green, blue = ImageChops.difference(actual, accepted).split()
    distance = ImageChops.lighter(ImageChops.lighter(red, green), blue)
    return distance.point(lambda size: 255 if size > TOLERATED_DISTANCE else 0)
