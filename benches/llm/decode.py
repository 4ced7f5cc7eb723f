"""Greedy decode of a Llama in JAX, one jitted step a token, to compare tokens a second with `burn-tpu-llm generate`:

    burn-tpu-llm save --model SmolLM2-135M-Instruct.Q4_1.gguf --output smollm2
    python benches/llm/decode.py smollm2 "6403 1980 253 655 28 665 436 253 1838" --tokens 200

The step is written plainly: weights as they are in the file, a cache of fixed size that is donated, the next token an
argument that stays on the device. A token is read while the step after it runs. Needs `pip install jax`.
"""

import argparse
import functools
import json
import pathlib
import sys
import time

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

DTYPES = {"F32": np.float32, "BF16": ml_dtypes.bfloat16, "F16": np.float16}


def load(path):
    """The tensors of a safetensors file."""
    raw = path.read_bytes()
    begin = 8 + int.from_bytes(raw[:8], "little")
    tensors = {}
    for name, entry in json.loads(raw[8:begin]).items():
        if name != "__metadata__":
            start, end = entry["data_offsets"]
            values = np.frombuffer(raw[begin + start : begin + end], DTYPES[entry["dtype"]])
            tensors[name.removesuffix(".weight")] = values.reshape(entry["shape"])
    return tensors


def norm(x, weight, epsilon):
    wide = x.astype(jnp.float32)
    wide = wide * jax.lax.rsqrt((wide * wide).mean(-1, keepdims=True) + epsilon)
    return (wide * weight.astype(jnp.float32)).astype(x.dtype)


def product(x, weight):
    return jnp.einsum("...i,oi->...o", x, weight)


def rotated(x, positions, theta):
    """Rotates `[heads, length, head]`."""
    half = x.shape[-1] // 2
    angles = positions[:, None] * theta ** (-jnp.arange(half) / half)
    cos, sin = jnp.cos(angles), jnp.sin(angles)
    first, second = jnp.split(x.astype(jnp.float32), 2, -1)
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], -1).astype(x.dtype)


def step(config, weights, cache, tokens, position):
    """Reads tokens `[length]` at a position, and returns the likeliest next one, `[1]`, with the cache."""
    heads, groups, epsilon = config["num_attention_heads"], config["num_key_value_heads"], config["rms_norm_eps"]
    length, head = len(tokens), config["hidden_size"] // heads
    positions = position + jnp.arange(length)
    x = weights["model.embed_tokens"][tokens]
    split = lambda y: y.reshape(length, -1, head).swapaxes(0, 1)
    for layer in range(config["num_hidden_layers"]):
        at = lambda name: weights[f"model.layers.{layer}.{name}"]
        y = norm(x, at("input_layernorm"), epsilon)
        query, key, value = (split(product(y, at(f"self_attn.{name}_proj"))) for name in "qkv")
        query, key = (rotated(y, positions, config["rope_theta"]) for y in (query, key))
        write = lambda old, new: jax.lax.dynamic_update_slice(old, new, (0, position, 0))
        keys, values = map(write, cache[layer], (key, value))
        cache[layer] = (keys, values)
        query = query.reshape(groups, heads // groups * length, head)
        scores = jnp.einsum("gqd,gkd->gqk", query, keys).astype(jnp.float32) / head**0.5
        scores = scores.reshape(heads, length, -1)
        seen = jnp.arange(keys.shape[1])[None, :] <= positions[:, None]
        shares = jax.nn.softmax(jnp.where(seen, scores, -1e9), -1).astype(x.dtype)
        y = jnp.einsum("gqk,gkd->gqd", shares.reshape(groups, heads // groups * length, -1), values)
        y = y.reshape(heads, length, head).swapaxes(0, 1).reshape(length, -1)
        x = x + product(y, at("self_attn.o_proj"))
        y = norm(x, at("post_attention_layernorm"), epsilon)
        y = jax.nn.silu(product(y, at("mlp.gate_proj"))) * product(y, at("mlp.up_proj"))
        x = x + product(y, at("mlp.down_proj"))
    x = norm(x[-1:], weights["model.norm"], epsilon)
    logits = product(x, weights.get("lm_head", weights["model.embed_tokens"]))
    return jnp.argmax(logits.astype(jnp.float32), -1), cache


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("ids")
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
    args = parser.parse_args()
    dtype = {"f32": jnp.float32, "bf16": jnp.bfloat16}[args.dtype]
    config = json.loads((args.model / "config.json").read_text())
    weights = {name: jnp.asarray(value, dtype) for name, value in load(args.model / "model.safetensors").items()}
    ids = [int(number) for number in args.ids.split()]
    capacity = -(-(len(ids) + args.tokens) // 256) * 256 + 64
    head = config["hidden_size"] // config["num_attention_heads"]
    empty = lambda: jnp.zeros((config["num_key_value_heads"], capacity, head), dtype)
    run = jax.jit(functools.partial(step, config), donate_argnums=1)

    def generate(count):
        cache = [(empty(), empty()) for _ in range(config["num_hidden_layers"])]
        token, cache = run(weights, cache, jnp.asarray(ids), 0)
        written, begun = [int(token[0])], None
        for position in range(len(ids), len(ids) + count - 1):
            begun = begun or time.perf_counter()
            before = token
            token, cache = run(weights, cache, token, position)
            if position > len(ids):
                written.append(int(before[0]))
        written.append(int(token[0]))
        return written, time.perf_counter() - begun

    generate(4)
    written, seconds = generate(args.tokens)
    print(" ".join(map(str, written)))
    print(f"{(args.tokens - 1) / seconds:.1f} tokens a second", file=sys.stderr)


main()
