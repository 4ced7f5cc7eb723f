"""Writes the decode step of `examples/gpt` in JAX as StableHLO, for `gpt generate --against DIR`.

    python benches/jax/gpt_decode.py MODEL DIR --batch 1    # MODEL is the folder that `gpt train` wrote

`decode-BATCH.start.mlir` has no arguments and returns state and weights. `decode-BATCH.step.mlir` has them as arguments, the
state donated, and returns the state: tokens, positions, random key, cache. The choice of tokens is that of `gpt generate`.
The weights are random numbers: they do not change the time. Needs `pip install jax==0.10.2`.
"""

import argparse
import json
import os
import pathlib

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp

import gpt


def shapes_of(config):
    """Returns the shape of each weight by its name."""
    width, vocab = config["width"], config["vocab"]
    shapes = {"tokens.weight": (vocab, width), "positions.weight": (config["sequence"], width)}
    layers = {"qkv": (width, 3 * width), "projection": (width, width)}
    layers |= {"inner": (width, 4 * width), "outer": (4 * width, width)}
    linear = {f"blocks.{i}.{name}": shape for i in range(config["layers"]) for name, shape in layers.items()}
    if not config["tied"]:
        linear["head"] = (width, vocab)
    norms = [f"blocks.{i}.{name}" for i in range(config["layers"]) for name in ("attention_norm", "feed_forward_norm")]
    for name, shape in linear.items():
        shapes |= {f"{name}.weight": shape, f"{name}.bias": shape[1:]}
    for name in [*norms, "norm"]:
        shapes |= {f"{name}.gamma": (width,), f"{name}.beta": (width,)}
    return shapes


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--prompt-tokens", type=int, default=8)
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="bfloat16")
    parser.add_argument("--update", choices=["where", "slice"], default="slice", help="how the cache is written")
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--top-k", type=int, default=40)
    parser.add_argument("--top-p", type=float, default=0.95)
    args = parser.parse_args()
    config = json.loads((args.model / "config.json").read_text()) | {"update": args.update}
    cache_shape = (args.batch, config["heads"], config["sequence"], config["width"] // config["heads"])

    def start():
        key = jax.random.key_data(jax.random.key(0))
        weights = {
            name: 0.02 * jax.random.normal(jax.random.key(i), shape, args.dtype)
            for i, (name, shape) in enumerate(shapes_of(config).items())
        }
        empty = lambda: jnp.zeros(cache_shape, args.dtype)
        cache = [(empty(), empty()) for _ in range(config["layers"])]
        tokens = jnp.zeros((args.batch, 1), jnp.int32)
        return (tokens, jnp.full((args.batch,), args.prompt_tokens, jnp.int32), key, cache), weights

    def step(state, weights):
        tokens, positions, key, cache = state
        drawn, kept = jax.random.split(jax.random.wrap_key_data(key))
        logits, cache = gpt.decode(weights, config, cache, tokens, positions)
        tokens = gpt.sample(drawn, logits, args.temperature, args.top_k, args.top_p)
        return tokens, positions + 1, jax.random.key_data(kept), cache

    args.folder.mkdir(parents=True, exist_ok=True)
    name = f"decode-{args.batch}"
    (args.folder / f"{name}.start.mlir").write_text(jax.jit(start).lower().as_text())
    lowered = jax.jit(step, donate_argnums=0, keep_unused=True).lower(*jax.eval_shape(start))
    (args.folder / f"{name}.step.mlir").write_text(lowered.as_text())


if __name__ == "__main__":
    main()
