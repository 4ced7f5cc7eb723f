"""The training step of a GPT for a TPU as a JAX user writes it: weights in bf16 with f32 masters, one product for query, keys
and values, the loss of logits in bf16, and plain attention or JAX's own kernels (splash attention).

    python benches/jax/gpt_attention.py DIR --attention splash --layers 12

writes `DIR/gpt-bf16.step.mlir`, with which `fit --model gpt --dtype bf16 --master-weights … --against DIR` compares. The sizes
are those of GPT-2's smallest model, batches are of 8,192 tokens. Needs `pip install jax==0.10.2` (no accelerator).
"""

import argparse
import math
import os
import pathlib

os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
from jax import export
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel, splash_attention_mask

TOKENS = 8192
WIDTH, HEADS, INNER, VOCABULARY = 768, 12, 3072, 50304
HEAD = WIDTH // HEADS
RATE, DECAY, BETAS, EPSILON = 3e-4, 0.1, (0.9, 0.95), 1e-8


def norm(x, gamma, beta):
    wide = x.astype(jnp.float32)
    mean = wide.mean(-1, keepdims=True)
    variance = jnp.square(wide - mean).mean(-1, keepdims=True)
    return ((wide - mean) * jax.lax.rsqrt(variance + 1e-5)).astype(x.dtype) * gamma + beta


def plain(query, keys, values):
    length = query.shape[2]
    scores = jnp.einsum("bhqd,bhkd->bhqk", query, keys) * HEAD**-0.5
    seen = jnp.tril(jnp.ones((length, length), bool))
    scores = jnp.where(seen, scores.astype(jnp.float32), -1e4)
    return jax.nn.softmax(scores).astype(query.dtype) @ values


def splash(length):
    """Returns attention by JAX's kernels, with blocks of 512, forward and backward."""
    mask = splash_attention_mask.MultiHeadMask([splash_attention_mask.CausalMask((length, length))] * HEADS)
    sizes = ["q", "kv", "kv_compute", "q_dkv", "kv_dkv", "kv_dkv_compute", "q_dq", "kv_dq"]
    blocks = splash_attention_kernel.BlockSizes(**{f"block_{size}": 512 for size in sizes})
    kernel = splash_attention_kernel.make_splash_mha(mask=mask, head_shards=1, q_seq_shards=1, block_sizes=blocks)
    return lambda query, keys, values: jax.vmap(kernel)(query * jnp.asarray(HEAD**-0.5, query.dtype), keys, values)


def block(p, x, attend):
    batch, length, _ = x.shape
    parts = jnp.split(norm(x, p["g1"], p["b1"]) @ p["qkv"] + p["qkv_bias"], 3, -1)
    query, keys, values = [part.reshape(batch, length, HEADS, HEAD).swapaxes(1, 2) for part in parts]
    seen = attend(query, keys, values).swapaxes(1, 2).reshape(x.shape)
    x = x + seen @ p["output"] + p["output_bias"]
    hidden = norm(x, p["g2"], p["b2"]) @ p["inner"] + p["inner_bias"]
    hidden = jax.nn.gelu(hidden.astype(jnp.float32), approximate=False).astype(x.dtype)
    return x + hidden @ p["outer"] + p["outer_bias"]


def loss(masters, tokens, targets, attend):
    p = jax.tree.map(lambda weight: weight.astype(jnp.bfloat16), masters)
    x = p["tokens"][tokens] + p["positions"]
    for layer in p["layers"]:
        x = block(layer, x, attend)
    logits = norm(x, p["gamma"], p["beta"]) @ p["head"] + p["head_bias"]
    total = jax.nn.logsumexp(logits.astype(jnp.float32), -1)
    return (total - jnp.take_along_axis(logits, targets[..., None], -1)[..., 0].astype(jnp.float32)).mean()


def step(state, tokens, targets, attend):
    masters, m, v, t = state
    value, gradients = jax.value_and_grad(loss)(masters, tokens, targets, attend)
    t = t + 1
    m_scale, v_scale = 1 - BETAS[0] ** t, 1 - BETAS[1] ** t
    m = jax.tree.map(lambda m, g: BETAS[0] * m + (1 - BETAS[0]) * g, m, gradients)
    v = jax.tree.map(lambda v, g: BETAS[1] * v + (1 - BETAS[1]) * g * g, v, gradients)
    update = lambda w, m, v: w * (1 - RATE * DECAY) - RATE * (m / m_scale) / (jnp.sqrt(v / v_scale) + EPSILON)
    return (jax.tree.map(update, masters, m, v), m, v, t), value


def state_of(layers, length):
    f32 = lambda *dims: jax.ShapeDtypeStruct(dims, jnp.float32)
    layer = {
        "g1": f32(WIDTH), "b1": f32(WIDTH), "qkv": f32(WIDTH, 3 * WIDTH), "qkv_bias": f32(3 * WIDTH),
        "output": f32(WIDTH, WIDTH), "output_bias": f32(WIDTH), "g2": f32(WIDTH), "b2": f32(WIDTH),
        "inner": f32(WIDTH, INNER), "inner_bias": f32(INNER), "outer": f32(INNER, WIDTH), "outer_bias": f32(WIDTH),
    }  # fmt: skip
    weights = {
        "tokens": f32(VOCABULARY, WIDTH), "positions": f32(length, WIDTH), "layers": [dict(layer) for _ in range(layers)],
        "gamma": f32(WIDTH), "beta": f32(WIDTH), "head": f32(WIDTH, VOCABULARY), "head_bias": f32(VOCABULARY),
    }  # fmt: skip
    return weights, weights, weights, f32()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--attention", choices=["plain", "splash"], default="plain")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--sequence", type=int, default=1024)
    args = parser.parse_args()
    attend = splash(args.sequence) if args.attention == "splash" else plain
    tokens = jax.ShapeDtypeStruct((math.ceil(TOKENS / args.sequence), args.sequence), jnp.int32)
    jitted = jax.jit(lambda *given: step(*given, attend), donate_argnums=0)
    # JAX refuses to export a custom call that it does not know to be stable.
    kernels = [export.DisabledSafetyCheck.custom_call("tpu_custom_call")]
    exported = export.export(jitted, platforms=["tpu"], disabled_checks=kernels)
    args.folder.mkdir(parents=True, exist_ok=True)
    text = exported(state_of(args.layers, args.sequence), tokens, tokens).mlir_module()
    (args.folder / "gpt-bf16.step.mlir").write_text(text)


main()
