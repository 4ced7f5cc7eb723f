"""Losses of an adapter of SmolLM2 in JAX and optax (f32), beside those of `burn-tpu-llm finetune`:

    burn-tpu-llm save --model SmolLM2-135M-Instruct.Q4_1.gguf --output smollm2
    python benches/llm/smollm2.py smollm2 TEXT start            # writes the first adapter to `start`, then trains it
    burn-tpu-llm finetune --model smollm2 --adapter start --data TEXT --output end \\
        --steps 20 --batch 1 --sequence 128 --held-out 4 --lr 5e-4

Both print the loss of each of 20 steps. `--steps 50` of this script goes on; the program then prints means of three steps. Needs
`pip install jax optax safetensors tokenizers`.
"""

import argparse
import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import optax
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer

import finetune
from reference import noise

RANK, ALPHA, RATE, LENGTH, HELD_OUT = 16, 32.0, 5e-4, 128, 4


def first_adapter(weights, folder):
    """Writes random first matrices and second ones of zeros in PEFT's form, and returns them."""
    adapter = {}
    for name, weight in weights.items():
        if name.split(".", 3)[-1] in finetune.PRODUCTS:
            prefix, width = f"base_model.model.{name}", weight.shape[1]
            a = noise(f"{prefix}.lora_A.weight", (RANK, width)) * 2 / np.sqrt(width)
            adapter |= {f"{prefix}.lora_A": a.astype(np.float32), f"{prefix}.lora_B": np.zeros((weight.shape[0], RANK), np.float32)}
    folder.mkdir(exist_ok=True)
    save_file({f"{name}.weight": value for name, value in adapter.items()}, folder / "adapter_model.safetensors")
    targets = [name.split(".")[-1] for name in finetune.PRODUCTS]
    config = {"peft_type": "LORA", "r": RANK, "lora_alpha": ALPHA, "bias": "none", "target_modules": targets}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return adapter


def batches(model, text):
    """The rows of the text in the order of the program's seed 0, as `training::Rows` has them."""
    tokens = Tokenizer.from_file(str(model / "tokenizer.json")).encode(text).ids
    rows = [tokens[begin : begin + LENGTH + 1] for begin in range(0, len(tokens) - 1, LENGTH)][:-HELD_OUT]
    order = list(range(len(rows)))
    for last in range(len(order) - 1, 0, -1):
        other = int(uniform(0, last) * (last + 1))
        order[last], order[other] = order[other], order[last]
    for row in order:
        yield {
            "tokens": jnp.asarray([rows[row]]),
            "weights": jnp.ones((1, LENGTH), jnp.float32),
            "starts": jnp.zeros((1, LENGTH), jnp.int32),
        }


def uniform(seed, count):
    """`random::uniform`: SplitMix64's output of a step, in [0, 1)."""
    x = (seed + (count + 1) * 0x9E3779B97F4A7C15) % 2**64
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB % 2**64
    return ((x ^ (x >> 31)) >> 40) / 2**24


def main():
    parser = argparse.ArgumentParser()
    for name in ["model", "text", "start"]:
        parser.add_argument(name, type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=20)
    args = parser.parse_args()
    jax.config.update("jax_enable_x64", False)
    finetune.CONFIG = json.loads((args.model / "config.json").read_text())
    finetune.RANK, finetune.ALPHA = RANK, ALPHA
    weights = {name.removesuffix(".weight"): value for name, value in load_file(args.model / "model.safetensors").items()}
    adapter = first_adapter(weights, args.start)
    weights["lm_head"] = weights["model.embed_tokens"]
    weights, adapter = ({name: jnp.asarray(value) for name, value in part.items()} for part in [weights, adapter])
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(RATE, eps=1e-8, weight_decay=0.0))

    @jax.jit
    def step(adapter, state, weights, batch):
        loss, gradient = jax.value_and_grad(lambda adapter: finetune.loss(weights, adapter, batch))(adapter)
        change, state = optimizer.update(gradient, state, adapter)
        return loss, optax.apply_updates(adapter, change), state

    state = optimizer.init(adapter)
    for number, batch in zip(range(1, args.steps + 1), batches(args.model, args.text.read_text())):
        loss, adapter, state = step(adapter, state, weights, batch)
        print(f"step {number} of {args.steps}: loss {float(loss):.6f}", flush=True)


main()
