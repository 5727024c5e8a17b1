"""Networks of the live studies: model, data and flags of `study create`, at sizes that a user would take.

Trained networks come from the packages that ship them, or from a folder; the others are made by `search/networks.py`,
or here, with seeded random weights. Pictures for the OCR networks are lines of block letters: a detector that is shown
noise answers zero, and relative errors of nothing mean nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from shutil import copyfile
from typing import Any

import numpy as np

sys.path[:0] = [str(Path(__file__).parents[1] / "search")]

from networks import NETWORKS as RECORDED  # noqa: E402 - after the path is set
from networks import _export, _images, _shipped  # noqa: E402

Arrays = dict[str, np.ndarray[Any, Any]]
# Rows of five bits, top to bottom.
_LETTERS = {
    "0": "0e11131519110e", "1": "040c040404040e", "2": "0e11010204081f", "3": "1f02040201110e", "4": "02060a121f0202",
    "5": "1f101e0101110e", "6": "0608101e11110e", "7": "1f010204080808", "8": "0e11110e11110e", "9": "0e11110f01020c",
    "A": "0e11111f111111", "C": "0e11101010110e", "E": "1f10101e10101f", "H": "1111111f111111", "L": "1010101010101f",
    "N": "11191513111111", "P": "1e11111e101010", "T": "1f040404040404", "U": "1111111111110e", " ": "00000000000000",
}  # fmt: skip
_IMAGENET = (np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225]))
_HALF = (np.full(3, 0.5), np.full(3, 0.5))


@dataclass(frozen=True)
class LiveNetwork:
    """What is tuned. `inputs` makes one pair's arrays in the order of the model's inputs; None: the tuner's data."""

    make: Callable[[Path], None]  # writes the ONNX file
    inputs: Callable[[np.random.Generator], Arrays] | None
    note: str
    flags: tuple[str, ...] = ()
    table: str = ""  # recorded table of the same network and data
    files: tuple[str, ...] = ()  # names under which a folder of models may hold it
    pairs: int = 2
    knobs: tuple[str, ...] = field(default=())  # none: all


def _letters(rng: np.random.Generator, height: int, width: int, scale: int) -> np.ndarray[Any, Any]:
    """Black letters on white: shape (height, width), 0 to 255; lines of words from the left, a margin around."""
    page = np.full((height, width), 255.0)
    line_height, advance, margin = 10 * scale, 6 * scale, scale
    names = list(_LETTERS)
    for top in range(margin, max(height - 7 * scale, margin + 1), line_height):
        for left in range(margin, width - 6 * scale, advance):
            rows = bytes.fromhex(_LETTERS[names[rng.integers(len(names))]])
            glyph = np.array([[row >> (4 - column) & 1 for column in range(5)] for row in rows])
            ink = np.kron(glyph, np.ones((scale, scale)))[: height - top, : width - left]
            page[top : top + ink.shape[0], left : left + ink.shape[1]] -= 225.0 * ink
    return page


def _pictures(
    batch: int, height: int, width: int, scale: int, norm: tuple[Any, Any]
) -> Callable[[np.random.Generator], Arrays]:
    mean, deviation = norm

    def make(rng: np.random.Generator) -> Arrays:
        pages = np.stack([_letters(rng, height, width, scale) for _ in range(batch)])
        pages = np.clip(pages + rng.normal(0, 4, pages.shape), 0, 255) / 255
        scaled = (pages[:, None] - mean[:, None, None]) / deviation[:, None, None]
        return {"x": scaled.astype(np.float32)}

    return make


def _magika(path: Path) -> None:
    spec = find_spec("magika")
    found = sorted(Path(spec.origin).parent.glob("models/*/model.onnx")) if spec and spec.origin else []
    if not found:
        raise SystemExit("magika, which ships this network, is not installed")
    copyfile(found[-1], path)


def _timm(name: str, batch: int) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        import timm
        import torch

        torch.manual_seed(0)
        _export(timm.create_model(name, pretrained=False).eval(), (torch.zeros(batch, 3, 224, 224),), path, ["x"])

    return make


_DET, _REC, _CLS = (
    "ch_PP-OCRv4_det_infer.onnx",
    "ch_PP-OCRv4_rec_infer.onnx",
    "ch_ppocr_mobile_v2.0_cls_infer.onnx",
)
LIVE: Mapping[str, LiveNetwork] = {
    "ppocr-rec": LiveNetwork(
        _shipped(_REC),
        RECORDED["ppocr-rec"].inputs,
        "trained PP-OCRv4 recogniser, 1x3x48x320, data as recorded",
        table="ppocr-rec",
        files=(_REC,),
        pairs=1,
        knobs=tuple(RECORDED["ppocr-rec"].knobs),
    ),
    "bert-6x384": LiveNetwork(
        RECORDED["bert-6x384"].make,
        RECORDED["bert-6x384"].inputs,
        "BERT encoder, 6 layers of 384, random weights, 4x128 tokens, data as recorded",
        table="bert-6x384",
        pairs=1,
        knobs=tuple(RECORDED["bert-6x384"].knobs),
    ),
    "ppocr-det": LiveNetwork(
        _shipped(_DET), _pictures(1, 640, 640, 4, _IMAGENET), "trained PP-OCRv4 detector, 1x3x640x640", files=(_DET,)
    ),
    "magika": LiveNetwork(
        _magika,
        None,
        "trained file-type network, 32x2048 bytes",
        ("--shapes", "bytes:32x2048", "--range", "bytes:0:256", "--pairs", "2"),
    ),
    "efficientnet-b0": LiveNetwork(
        RECORDED["efficientnet-b0"].make,
        _images(4, 3, 224, 224),
        "random weights, 4x3x224x224",
        table="efficientnet-b0",
    ),
    "ppocr-cls": LiveNetwork(
        _shipped(_CLS), _pictures(6, 48, 192, 5, _HALF), "trained text direction classifier, 6x3x48x192", files=(_CLS,)
    ),
    "ppocr-rec-6": LiveNetwork(
        _shipped(_REC), _pictures(6, 48, 320, 5, _HALF), "trained recogniser, 6x3x48x320, letters", files=(_REC,)
    ),
    "mobilenetv3": LiveNetwork(
        _timm("mobilenetv3_large_100", 8), _images(8, 3, 224, 224), "random weights, 8x3x224x224"
    ),
    "convnext-tiny": LiveNetwork(
        RECORDED["convnext-tiny"].make, RECORDED["convnext-tiny"].inputs, "random weights, 4x3x224x224"
    ),
}
