"""A training step of Llama in JAX, in the form that MaxText gives it: scanned layers of which the backward pass has the
inputs alone, weights and AdamW's moments in f32, activations in bf16, weights split over `fsdp` and `tensor`.

    python benches/jax/llama.py OUT.mlir --model llama-2-7b --mesh fsdp=8 --batch 8 --sequence 4096

writes the step as StableHLO, for `burn-tpu-llm fit --model llama-2-7b … --against OUT.mlir`. Needs `pip install jax==0.10.2`
(no accelerator).
"""

import argparse
import functools
import json
import math
import os
import pathlib

CONFIGS = pathlib.Path(__file__).parents[2] / "crates/burn-tpu-llm/src/config/known.json"


def axes(text):
    return {name: int(size) for name, size in (pair.split("=") for pair in text.split(","))}


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("out", type=pathlib.Path)
parser.add_argument("--model", default="llama-2-7b")
parser.add_argument("--mesh", type=axes, default={"fsdp": 1})
parser.add_argument("--batch", type=int, default=8)
parser.add_argument("--sequence", type=int, default=4096)
parser.add_argument("--layers", type=int, help="in place of the model's")
parser.add_argument("--keep", choices=["nothing", "products", "everything"], default="nothing")
args = parser.parse_args()

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={math.prod(args.mesh.values())}"
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

model = json.loads(CONFIGS.read_text())[args.model]
WIDTH, HIDDEN, VOCABULARY = model["hidden_size"], model["intermediate_size"], model["vocab_size"]
HEADS, KEY_HEADS = model["num_attention_heads"], model["num_key_value_heads"]
LAYERS, HEAD = args.layers or model["num_hidden_layers"], model.get("head_dim", WIDTH // HEADS)
THETA, EPSILON = model.get("rope_theta", 1e4), model["rms_norm_eps"]

mesh = Mesh(np.array(jax.devices()[: math.prod(args.mesh.values())]).reshape(*args.mesh.values()), tuple(args.mesh))
fsdp, tensor = (name if name in args.mesh else None for name in ("fsdp", "tensor"))
batch = tuple(name for name in args.mesh if name in ("data", "fsdp"))


def at(*names):
    return NamedSharding(mesh, PartitionSpec(*names))


# The shape of each weight, and where it is.
BLOCK = {
    "attention_norm": ((WIDTH,), ()),
    "query": ((WIDTH, HEADS * HEAD), (fsdp, tensor)),
    "key": ((WIDTH, KEY_HEADS * HEAD), (fsdp, tensor)),
    "value": ((WIDTH, KEY_HEADS * HEAD), (fsdp, tensor)),
    "output": ((HEADS * HEAD, WIDTH), (tensor, fsdp)),
    "feed_forward_norm": ((WIDTH,), ()),
    "gate": ((WIDTH, HIDDEN), (fsdp, tensor)),
    "up": ((WIDTH, HIDDEN), (fsdp, tensor)),
    "down": ((HIDDEN, WIDTH), (tensor, fsdp)),
}
ENDS = {
    "tokens": ((VOCABULARY, WIDTH), (tensor, fsdp)),
    "norm": ((WIDTH,), ()),
    "head": ((WIDTH, VOCABULARY), (fsdp, tensor)),
}


def norm(weight, x):
    x32 = x.astype(jnp.float32)
    x32 = x32 * lax.rsqrt(jnp.mean(jnp.square(x32), -1, keepdims=True) + EPSILON)
    return (x32 * weight).astype(x.dtype)


def rotate(x):
    """Rotates [batch, length, heads, head] by its positions."""
    frequencies = THETA ** (-jnp.arange(0, HEAD, 2, dtype=jnp.float32) / HEAD)
    angles = jnp.arange(x.shape[1], dtype=jnp.float32)[:, None] * frequencies
    cos, sin = jnp.cos(angles)[None, :, None], jnp.sin(angles)[None, :, None]
    first, second = jnp.split(x.astype(jnp.float32), 2, -1)
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], -1).astype(x.dtype)


def attention(p, x):
    b, length, _ = x.shape
    heads = lambda name, count: (x @ p[name]).reshape(b, length, count, HEAD)
    query, key, value = rotate(heads("query", HEADS)), rotate(heads("key", KEY_HEADS)), heads("value", KEY_HEADS)
    query = query.reshape(b, length, KEY_HEADS, HEADS // KEY_HEADS, HEAD)
    scores = jnp.einsum("btkgd,bskd->bkgts", query, key, preferred_element_type=jnp.float32) / math.sqrt(HEAD)
    seen = jnp.tril(jnp.ones((length, length), bool))
    weights = jax.nn.softmax(jnp.where(seen, scores, -1e9)).astype(x.dtype)
    return jnp.einsum("bkgts,bskd->btkgd", weights, value).reshape(b, length, HEADS * HEAD) @ p["output"]


def block(p, x):
    x = lax.with_sharding_constraint(x, at(batch, None, None))
    # The norms' weights stay in f32.
    p = {name: w if w.ndim == 1 else w.astype(jnp.bfloat16) for name, w in p.items()}
    x = x + attention(p, norm(p["attention_norm"], x))
    y = norm(p["feed_forward_norm"], x)
    return x + (jax.nn.silu(y @ p["gate"]) * (y @ p["up"])) @ p["down"]


POLICIES = {
    "nothing": functools.partial(jax.checkpoint, prevent_cse=False),
    "products": functools.partial(
        jax.checkpoint, prevent_cse=False, policy=jax.checkpoint_policies.dots_with_no_batch_dims_saveable
    ),
    "everything": lambda block: block,
}


def loss(p, tokens):
    x = p["tokens"].astype(jnp.bfloat16)[tokens[:, :-1]]
    layer = POLICIES[args.keep](block)
    x, _ = lax.scan(lambda x, p: (layer(p, x), None), x, p["blocks"])
    logits = (norm(p["norm"], x) @ p["head"].astype(jnp.bfloat16)).astype(jnp.float32)
    picked = jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[:, 1:, None], -1)
    return -jnp.mean(picked)


def adamw(w, g, m, v, rate, t):
    m = 0.9 * m + 0.1 * g
    v = 0.999 * v + 0.001 * jnp.square(g)
    update = m / (1 - 0.9**t) / (jnp.sqrt(v / (1 - 0.999**t)) + 1e-5)
    return w * (1 - rate * 1e-4) - rate * update, m, v


def step(state, rate, tokens):
    p, m, v, t = state
    value, gradients = jax.value_and_grad(loss)(p, tokens)
    updated = jax.tree.map(lambda *leaf: adamw(*leaf, rate, t + 1), p, gradients, m, v)
    p, m, v = jax.tree.transpose(jax.tree.structure(p), jax.tree.structure((0, 0, 0)), updated)
    return (p, m, v, t + 1), value


def weights(of):
    stacked = {name: of((LAYERS, *shape), (None, *names)) for name, (shape, names) in BLOCK.items()}
    return {"blocks": stacked} | {name: of(shape, names) for name, (shape, names) in ENDS.items()}


shapes = weights(lambda shape, _: jax.ShapeDtypeStruct(shape, jnp.float32))
places = weights(lambda _, names: at(*names))
scalar = jax.ShapeDtypeStruct((), jnp.float32)
state, state_at = (shapes, shapes, shapes, scalar), (places, places, places, at())
tokens = jax.ShapeDtypeStruct((args.batch, args.sequence + 1), jnp.int32)
step = jax.jit(
    step, donate_argnums=0, in_shardings=(state_at, at(), at(batch, None)), out_shardings=(state_at, at())
)
args.out.write_text(step.lower(state, scalar, tokens).as_text())
