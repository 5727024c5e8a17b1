"""Networks for recording on a GPU: trained ones that a package ships, and made ones with seeded random weights.

Made networks are exported with torch where the recording runs, so that no large file has to be kept; how fast they are
does not depend on their weights, and how a number format disturbs them does so only a little.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from shutil import copyfile
from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray[Any, Any]]
# Knobs of a recording, the quickest to vary first: what is recorded until some moment is a full factorial of the first.
CONVOLUTIONS: Mapping[str, tuple[str, ...]] = {
    "precision": ("fp32", "fp16"),
    "cuda_graph": ("off", "on"),
    "prefer_nhwc": ("off", "on"),
    "use_tf32": ("on", "off"),
    "graph_optimization_level": ("enable_all", "enable_extended", "enable_basic", "disable_all"),
    "cudnn_conv_use_max_workspace": ("on", "off"),
    "cudnn_conv_algo_search": ("EXHAUSTIVE", "HEURISTIC"),
    "fuse_conv_bias": ("off", "on"),
}
PRODUCTS: Mapping[str, tuple[str, ...]] = {
    "precision": ("fp32", "fp16"),
    "cuda_graph": ("off", "on"),
    "use_tf32": ("on", "off"),
    "gelu_approximation": ("off", "on"),
    "graph_optimization_level": ("enable_all", "enable_extended", "enable_basic", "disable_all"),
    "mem_pattern": ("on", "off"),
    "gemm_auto_tune": ("off", "on"),
    "tunable_op": ("off", "tune"),
}


@dataclass(frozen=True)
class Network:
    """A model, one set of inputs, and the knobs that are recorded for it."""

    make: Callable[[Path], None]  # writes the ONNX file
    inputs: Callable[[np.random.Generator], Arrays]
    knobs: Mapping[str, tuple[str, ...]]
    note: str


def _shipped(file: str) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        spec = find_spec("rapidocr_onnxruntime")
        if spec is None or not spec.submodule_search_locations:
            raise SystemExit("rapidocr_onnxruntime, which ships this network, is not installed")
        copyfile(Path(next(iter(spec.submodule_search_locations))) / "models" / file, path)

    return make


def _images(*shape: int) -> Callable[[np.random.Generator], Arrays]:
    return lambda rng: {"x": rng.standard_normal(shape).astype(np.float32)}


def _convnext(path: Path) -> None:
    import timm
    import torch

    torch.manual_seed(0)
    model = timm.create_model("convnext_tiny", pretrained=False).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("gamma"):  # as made they switch every block off
                parameter.fill_(0.3)
    _export(model, (torch.zeros(4, 3, 224, 224),), path, ["x"])


def _efficientnet(path: Path) -> None:
    import timm
    import torch

    torch.manual_seed(0)
    _export(timm.create_model("efficientnet_b0", pretrained=False).eval(), (torch.zeros(4, 3, 224, 224),), path, ["x"])


def _encoder(path: Path) -> None:
    import torch
    import transformers

    torch.manual_seed(0)
    sizes = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 6, "intermediate_size": 1536}
    config = transformers.BertConfig(vocab_size=8192, **sizes)
    config._attn_implementation = "eager"

    class Encoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = transformers.BertModel(config, add_pooling_layer=False)

        def forward(self, x: Any, mask: Any) -> Any:
            return self.model(input_ids=x, attention_mask=mask).last_hidden_state

    ids = torch.ones(4, 128, dtype=torch.int64)
    _export(Encoder().eval(), (ids, torch.ones_like(ids)), path, ["x", "mask"])


def _export(model: Any, arguments: tuple[Any, ...], path: Path, names: list[str]) -> None:
    import torch

    with torch.no_grad():
        torch.onnx.export(
            model, arguments, str(path), input_names=names, output_names=["y"], dynamo=True, external_data=False
        )


def _words(rng: np.random.Generator) -> Arrays:
    mask = np.ones((4, 128), np.int64)
    mask[1, 96:] = mask[3, 64:] = 0
    return {"x": rng.integers(1, 8192, (4, 128)).astype(np.int64), "mask": mask}


# For networks of many layers, whose exhaustive algorithm search takes seconds.
FEW: dict[str, tuple[str, ...]] = {
    **{name: values for name, values in CONVOLUTIONS.items() if name != "cudnn_conv_use_max_workspace"},
    "graph_optimization_level": ("enable_all", "enable_basic"),
}
NETWORKS: Mapping[str, Network] = {
    "ppocr-rec": Network(
        _shipped("ch_PP-OCRv4_rec_infer.onnx"), _images(1, 3, 48, 320), CONVOLUTIONS, "trained, 1x3x48x320"
    ),
    "bert-6x384": Network(_encoder, _words, PRODUCTS, "BERT encoder, 6 layers of 384, random weights, 4x128 tokens"),
    "convnext-tiny": Network(_convnext, _images(4, 3, 224, 224), CONVOLUTIONS, "random weights, 4x3x224x224"),
    "ppocr-det": Network(
        _shipped("ch_PP-OCRv4_det_infer.onnx"), _images(1, 3, 640, 640), CONVOLUTIONS, "trained, 1x3x640x640"
    ),
    "efficientnet-b0": Network(_efficientnet, _images(4, 3, 224, 224), FEW, "random weights, 4x3x224x224"),
}
