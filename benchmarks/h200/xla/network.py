"""The network that is compiled: a convolution stem and transformer blocks, in plain JAX, with weights from a seed.

Five million parameters at size `small`: images of 112 x 112 become 196 tokens of 256 channels. The blocks run in a
scan, as deployed models have it, so that a compilation stays short and options about loops have something to act on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

SEED = 20_240


@dataclass(frozen=True)
class Size:
    batch: int
    image: int  # pixels a side
    channels: tuple[int, int, int]  # of the stem's convolutions, each of stride 2; the last is the width of a token
    blocks: int
    heads: int
    classes: int


SIZES = {
    "small": Size(batch=32, image=112, channels=(64, 128, 256), blocks=6, heads=4, classes=1000),
    "tiny": Size(batch=2, image=32, channels=(8, 16, 32), blocks=2, heads=2, classes=10),
}


@dataclass(frozen=True)
class Form:
    """How it is written down: what the program itself may choose, beside the compiler."""

    precision: str = "f32"  # f32: what JAX does by default with float32; f32-highest, bf16, f16
    attention: str = "plain"  # plain: two products and a softmax; xla, cudnn: jax.nn.dot_product_attention
    layout: str = "NHWC"
    unroll: int = 1


def weights(size: Size) -> dict[str, Any]:
    """Weights by name, float32; those of the blocks have a first dimension for the block."""
    random = np.random.default_rng(SEED)
    width = size.channels[-1]

    def normal(*shape: int, fan: int) -> Any:
        return (random.standard_normal(shape) * np.sqrt(2.0 / fan)).astype(np.float32)

    found: dict[str, Any] = {}
    before = 3
    for index, channels in enumerate(size.channels):
        found[f"conv{index}"] = normal(3, 3, before, channels, fan=9 * before)
        before = channels
    tokens = (size.image // 8) ** 2
    found["position"] = normal(tokens, width, fan=width)
    found["blocks"] = {
        "qkv": normal(size.blocks, width, 3 * width, fan=2 * width),
        "out": normal(size.blocks, width, width, fan=2 * width),
        "up": normal(size.blocks, width, 4 * width, fan=width),
        "down": normal(size.blocks, 4 * width, width, fan=8 * width),
        "scale1": 1.0 + 0.1 * normal(size.blocks, width, fan=2),
        "scale2": 1.0 + 0.1 * normal(size.blocks, width, fan=2),
    }
    found["head"] = normal(width, size.classes, fan=width)
    return found


def images(size: Size) -> Any:
    """A batch of images, float32."""
    shape = (size.batch, size.image, size.image, 3)
    return np.random.default_rng(SEED + 1).standard_normal(shape).astype(np.float32)


def typed(form: Form, parameters: dict[str, Any]) -> dict[str, Any]:
    """Weights in the number format of `form`, as a deployed model has them."""
    import jax
    import jax.numpy as jnp

    kind = {"bf16": jnp.bfloat16, "f16": jnp.float16}.get(form.precision, jnp.float32)
    return jax.tree.map(lambda one: jnp.asarray(one, kind), parameters)


def forward(form: Form, size: Size, parameters: dict[str, Any], batch: Any) -> Any:
    """Logits, float32, of a batch; `parameters` as `typed` gives them."""
    import jax
    import jax.numpy as jnp

    x = _stem(form, size, parameters, batch.astype(parameters["head"].dtype))

    def block(x: Any, p: Any) -> tuple[Any, None]:
        x = x + _attention(form, size, p, _normed(x, p["scale1"]))
        hidden = jax.nn.gelu(_normed(x, p["scale2"]) @ p["up"])
        return x + hidden @ p["down"], None

    x, _ = jax.lax.scan(block, x, parameters["blocks"], unroll=form.unroll)
    return (x.mean(axis=1) @ parameters["head"]).astype(jnp.float32)


def _stem(form: Form, size: Size, parameters: dict[str, Any], x: Any) -> Any:
    import jax
    import jax.numpy as jnp

    numbers = (form.layout, "HWIO", form.layout)
    if form.layout == "NCHW":
        x = jnp.transpose(x, (0, 3, 1, 2))
    for index in range(len(size.channels)):
        weight = parameters[f"conv{index}"]
        x = jax.nn.relu(jax.lax.conv_general_dilated(x, weight, (2, 2), "SAME", dimension_numbers=numbers))
    if form.layout == "NCHW":
        x = jnp.transpose(x, (0, 2, 3, 1))
    return x.reshape(x.shape[0], -1, x.shape[-1]) + parameters["position"]


def _normed(x: Any, scale: Any) -> Any:
    import jax.numpy as jnp

    wide = x.astype(jnp.float32)
    mean = wide.mean(axis=-1, keepdims=True)
    variance = jnp.square(wide - mean).mean(axis=-1, keepdims=True)
    return ((wide - mean) / jnp.sqrt(variance + 1e-6)).astype(x.dtype) * scale


def _attention(form: Form, size: Size, p: Any, x: Any) -> Any:
    import jax
    import jax.numpy as jnp

    b, t, width = x.shape
    q, k, v = jnp.split((x @ p["qkv"]).reshape(b, t, 3 * size.heads, width // size.heads), 3, axis=2)
    if form.attention == "plain":
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(width // size.heads)
        shares = jax.nn.softmax(scores.astype(jnp.float32), axis=-1).astype(x.dtype)
        mixed = jnp.einsum("bhqk,bkhd->bqhd", shares, v)
    else:
        mixed = jax.nn.dot_product_attention(q, k, v, implementation=form.attention)
    return mixed.reshape(b, t, width) @ p["out"]
