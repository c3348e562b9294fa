"""Draws small pictures in every supported and unsupported form, and writes the results of Pillow and transformers.

A developer's tool; building and testing Cognate need neither Python nor this file.

    pip install pillow==13.0.0 numpy safetensors transformers==4.57.6
    python generate.py
"""

import io
import pathlib
import struct
import zlib

import numpy as np
from PIL import Image
from safetensors.numpy import save_file
from transformers import DeiTImageProcessor, ViTImageProcessor
from transformers.image_utils import load_image

HERE = pathlib.Path(__file__).resolve().parent
WIDTH, HEIGHT = 53, 37


def drawn():
    """Ramps, hard edges and a pattern of single pixels."""
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
    a = np.stack([255 * x / (WIDTH - 1), 255 * y / (HEIGHT - 1), 127.5 + 127.5 * np.sin(x * y / 40)], -1)
    a[4:14, 5:15], a[4:14, 15:25] = 255, 0
    a[24:34, 5:35] = (((x + y)[24:34, 5:35] % 2) * 255)[..., None]
    return a.round().astype(np.uint8)


def png(path, mode, bits, rows, interlaced=0):
    """A PNG in a form that Pillow does not write."""
    chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    header = struct.pack(">IIBBBBB", WIDTH, HEIGHT, bits, mode, 0, 0, interlaced)
    data = zlib.compress(b"".join(b"\0" + row for row in rows))
    made = [chunk(b"IHDR", header), chunk(b"IDAT", data), chunk(b"IEND", b"")]
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(made))


rgb = drawn()
picture = Image.fromarray(rgb)
alpha = Image.fromarray(np.broadcast_to(np.linspace(0, 255, WIDTH).round().astype(np.uint8), (HEIGHT, WIDTH)).copy())
grey, palette = picture.convert("L"), picture.quantize(16)
with_alpha, grey_alpha = picture.copy(), grey.copy()
with_alpha.putalpha(alpha)
grey_alpha.putalpha(alpha)

picture.save(HERE / "rgb.png")
with_alpha.save(HERE / "rgba.png")
grey.save(HERE / "grey.png")
grey_alpha.save(HERE / "grey-alpha.png")
palette.save(HERE / "palette.png", transparency=3)
picture.convert("1").save(HERE / "one-bit.png")
wide = rgb.astype(">u2") * 257 - (rgb.astype(">u2") > 0) * 100
png(HERE / "rgb-16.png", 2, 16, [row.astype(">u2").tobytes() for row in wide])
png(HERE / "grey-16.png", 0, 16, [row[..., 0].astype(">u2").tobytes() for row in wide])
passes = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
png(HERE / "interlaced.png", 2, 8, [row.tobytes() for x, y, dx, dy in passes for row in rgb[y::dy, x::dx]], interlaced=1)
exif = Image.Exif()
exif[0x0112] = 6
picture.save(HERE / "turned.png", exif=exif)
picture.save(HERE / "rgb.jpg", quality=92, subsampling=0)
picture.save(HERE / "progressive-420.jpg", quality=85, subsampling=2, progressive=True)
grey.save(HERE / "grey.jpg", quality=90)
picture.convert("CMYK").save(HERE / "cmyk.jpg", quality=92)
for orientation in range(1, 9):
    exif[0x0112] = orientation
    picture.save(HERE / f"orientation-{orientation}.jpg", quality=80, subsampling=0, exif=exif)

answers = {}
for path in sorted(HERE.iterdir()):
    if path.suffix in (".png", ".jpg") and path.stem != "grey-16":
        answers[path.name] = np.asarray(load_image(str(path)))

PROCESSORS = {
    "vit": ViTImageProcessor(size={"height": 24, "width": 32}),
    "vit-larger": ViTImageProcessor(size={"height": 80, "width": 60}, resample=3),
    # Pillow filters the height first if it shrinks by more than twice as many pixels as the width, as in the first two.
    "vit-flatter": ViTImageProcessor(size={"height": 12, "width": 50}, resample=3),
    "vit-wider": ViTImageProcessor(size={"height": 20, "width": 60}),
    "vit-as-much": ViTImageProcessor(size={"height": 17, "width": 43}, resample=3),
    "deit": DeiTImageProcessor(
        size={"height": 40, "width": 36}, crop_size={"height": 32, "width": 32}, image_mean=[0.485, 0.456, 0.406], image_std=[0.229, 0.224, 0.225]
    ),
    "deit-padded": DeiTImageProcessor(size={"height": 15, "width": 40}, crop_size={"height": 24, "width": 25}),
    "as-it-is": ViTImageProcessor(do_resize=False, do_rescale=False, do_normalize=False),
}
for name, processor in PROCESSORS.items():
    processor.save_pretrained(HERE)
    (HERE / "preprocessor_config.json").rename(HERE / f"{name}.json")
    answers[name] = processor(picture, return_tensors="np", input_data_format="channels_last").pixel_values[0].astype(np.float32)
save_file({name: np.ascontiguousarray(values) for name, values in answers.items()}, HERE / "answers.safetensors")
