"""From the bytes of a PNG, JPEG or TIFF to a grey image. Pillow is imported here only."""

from __future__ import annotations

import io
import warnings
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bigforest.errors import ConfigError, system_error
from bigforest.images.imageset import DamagedImage, check_shape

SUFFIXES = (".png", ".jpg", ".jpeg", ".tif", ".tiff")
_FORMATS = ("PNG", "JPEG", "TIFF")
_DEEP = ("I;16", "I;16L", "I;16B", "I;16N")
_TOO_DEEP = ("I", "F")


def check_pillow() -> None:
    """Raise ConfigError when Pillow is not installed."""
    try:
        import PIL.Image  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            "encoded images are read with Pillow, which is not installed: pip install 'bigforest[images]'"
        ) from error


def decode_image(content: Path | bytes) -> NDArray[np.uint8]:
    """Decode the first frame of an image to grey values, uint8 [rows, columns], turned upright as its EXIF data says.

    Colours are weighed as in ITU-R BT.601, transparency is ignored, and 16 bits are cut to the upper 8. Raises
    DamagedImage for other files, and OSError, naming the file, for an error of the system.
    """
    from PIL import Image, ImageOps

    if isinstance(content, Path) and not content.is_file():  # reading a pipe would wait
        raise DamagedImage("it is a link to a file that does not exist, a pipe or a device")
    try:
        with warnings.catch_warnings():
            # Sizes are checked below, and Pillow's warnings about odd metadata do not matter here.
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(content) if isinstance(content, bytes) else content, formats=_FORMATS) as image:
                check_shape(image.height, image.width)
                if image.mode in _TOO_DEEP:
                    raise DamagedImage("its pixels have 32 bits; convert it to 8 or 16")
                image.load()
                upright = ImageOps.exif_transpose(image)
                if upright.mode in _DEEP:
                    return (np.asarray(upright) >> 8).astype(np.uint8)
                return np.array(upright.convert("L"), dtype=np.uint8)
    except (DamagedImage, MemoryError):
        raise
    except Exception as error:  # decoders raise any error for damaged bytes
        if isinstance(content, Path) and (named := system_error(error, content)) is not None:
            raise named from error
        detail = f"{type(error).__name__}: {error}".splitlines()[0]
        raise DamagedImage(f"it cannot be decoded ({detail})") from error
