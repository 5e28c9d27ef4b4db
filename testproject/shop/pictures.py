"""Draw product pictures and shrink them, with Pillow."""

from __future__ import annotations

from pathlib import Path

from PIL import Image, ImageDraw, ImageOps

THUMBNAIL_SIZE = (96, 96)


def draw_picture(path: Path, number: int) -> None:
    """Write a picture that differs for every number."""
    hue = (number * 37) % 256
    shade = Image.linear_gradient("L").resize((480, 360))
    picture = ImageOps.colorize(shade, (hue, 80, 255 - hue), (255, 255 - hue // 2, 200))
    draw = ImageDraw.Draw(picture)
    draw.ellipse((120, 60, 360, 300), fill=(255 - hue, hue, 120), outline="white", width=8)
    draw.text((230, 170), str(number), fill="white")
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.save(path)


def write_thumbnail(source: Path, target: Path) -> None:
    """Write a small copy of a picture; doing it twice does no harm."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with Image.open(source) as picture:
        picture.thumbnail(THUMBNAIL_SIZE)
        picture.save(target)
