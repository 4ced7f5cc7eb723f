"""Trains the model of `gpt train --export-jax DIR` in JAX, from the same weights on the same batches, and compares the losses.

    cargo run --release --example gpt -- train --dtype f32 --steps 50 --export-jax DIR
    python benches/jax/gpt_train.py DIR

Needs `pip install jax==0.10.2 safetensors` (no accelerator). Ends with an error if a loss differs by more than `--most`.
"""

import argparse
import json
import math
import os
import pathlib

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import load_file

import gpt


def rate_of(optimizer, steps, step):
    """Burn's linear warm-up times Burn's cosine; `step` begins at 0."""
    warm_up, most = max(optimizer["warm_up"], 1), optimizer["rate"]
    least = most * optimizer["last_rate"]
    rise = min(1 / warm_up + (1 - 1 / warm_up) * step / warm_up, 1)
    return rise * (least + 0.5 * (most - least) * (1 + math.cos(math.pi * step / steps)))


def decays(name):
    """The matrices decay, but not norms, biases and embeddings."""
    return name.endswith(".weight") and name not in ("tokens.weight", "positions.weight")


def make_step(start):
    """Returns the jitted training step: AdamW after the gradients of all batches are added and clipped together."""
    optimizer, config = start["optimizer"], start["model"]
    beta_1, beta_2 = optimizer["beta_1"], optimizer["beta_2"]

    def total(weights, batches):
        losses = [gpt.loss(weights, config, batch[:, :-1], batch[:, 1:]) for batch in batches]
        return sum(losses) / len(losses)

    def step(state, rate, batches):
        weights, m, v, t = state
        loss, gradients = jax.value_and_grad(total)(weights, batches)
        if optimizer["clip"] > 0:
            size = jnp.sqrt(sum(jnp.square(gradient).sum() for gradient in gradients.values()))
            scale = jnp.minimum(optimizer["clip"] / (size + 1e-6), 1)
            gradients = {name: gradient * scale for name, gradient in gradients.items()}
        t = t + 1
        m = {name: beta_1 * m[name] + (1 - beta_1) * gradients[name] for name in m}
        v = {name: beta_2 * v[name] + (1 - beta_2) * jnp.square(gradients[name]) for name in v}

        def update(name):
            change = m[name] / (1 - beta_1**t) / (jnp.sqrt(v[name] / (1 - beta_2**t)) + start["epsilon"])
            kept = 1 - rate * optimizer["decay"] if decays(name) else 1
            return weights[name] * kept - rate * change

        return ({name: update(name) for name in weights}, m, v, t), loss

    return jax.jit(step, donate_argnums=0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--most", type=float, default=1e-3, help="the largest difference of a loss")
    args = parser.parse_args()
    start = json.loads((args.folder / "start.json").read_text())
    ours = json.loads((args.folder / "losses.json").read_text())
    shape = (start["steps"], start["accumulate"], start["batch"], start["model"]["sequence"] + 1)
    batches = np.fromfile(args.folder / "batches.i32", dtype=np.int32).reshape(shape)
    weights = {name: jnp.asarray(weight) for name, weight in load_file(args.folder / "start.safetensors").items()}
    zeros = lambda: {name: jnp.zeros_like(weight) for name, weight in weights.items()}
    state, step = (weights, zeros(), zeros(), jnp.zeros((), jnp.float32)), make_step(start)
    theirs = []
    for number in range(start["steps"]):
        state, loss = step(state, rate_of(start["optimizer"], start["steps"], number), list(batches[number]))
        theirs.append(float(loss))
    differences = [abs(a - b) for a, b in zip(ours, theirs, strict=True)]
    for number in sorted({0, len(ours) // 2, len(ours) - 1}):
        print(f"step {number + 1:>4}: ours {ours[number]:.6f}, JAX {theirs[number]:.6f}")
    print(f"largest difference of {len(ours)} losses: {max(differences):.2e}")
    if not max(differences) <= args.most:
        raise SystemExit(f"error: more than {args.most}")


if __name__ == "__main__":
    main()
