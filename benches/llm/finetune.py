"""Losses of a tiny decoder that is trained, in JAX and f64, for `crates/burn-tpu-llm/tests/llm/training.rs`:

    python benches/llm/finetune.py crates/burn-tpu-llm/tests/references

One run trains an adapter (arXiv 2106.09685) and one all weights, with optax's AdamW and a limit of the gradients' norm. Rows have
two texts that do not see each other, and some tokens are not learned. Weights follow from a tensor's name, as in `reference.py`.
Needs `pip install jax optax`.
"""

import json
import pathlib
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax

from reference import SIZES, frequencies, noise, rounded

jax.config.update("jax_enable_x64", True)

CONFIG = {**SIZES, "model_type": "llama"}
RANK, ALPHA, RATE, DECAY, NORM = 3, 6.0, 0.01, 0.01, 1.0
STEPS, BATCH, LENGTH = 12, 2, 10
PRODUCTS = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj",
            "mlp.down_proj"]


def shapes():
    width, hidden, head = CONFIG["hidden_size"], CONFIG["intermediate_size"], CONFIG["head_dim"]
    queries, keys = CONFIG["num_attention_heads"] * head, CONFIG["num_key_value_heads"] * head
    products = [(queries, width), (keys, width), (keys, width), (width, queries), (hidden, width), (hidden, width), (width, hidden)]
    result = {"model.embed_tokens": (CONFIG["vocab_size"], width), "model.norm": (width,), "lm_head": (CONFIG["vocab_size"], width)}
    for index in range(CONFIG["num_hidden_layers"]):
        layer = f"model.layers.{index}"
        result |= {f"{layer}.{name}": shape for name, shape in zip(PRODUCTS, products)}
        result |= {f"{layer}.{name}_layernorm": (width,) for name in ["input", "post_attention"]}
    return result


def new_adapter(weights):
    """Matrices under PEFT's names; the second one is zero."""
    adapter = {}
    for name, weight in weights.items():
        if name.split(".", 3)[-1] in PRODUCTS:
            prefix = f"base_model.model.{name}"
            adapter[f"{prefix}.lora_A"] = jnp.asarray(noise(f"{prefix}.lora_A.weight", (RANK, weight.shape[1])))
            adapter[f"{prefix}.lora_B"] = jnp.zeros((weight.shape[0], RANK))
    return adapter


def product(weights, adapter, name, x):
    y, prefix = x @ weights[name].T, f"base_model.model.{name}"
    if f"{prefix}.lora_A" in adapter:
        y = y + x @ adapter[f"{prefix}.lora_A"].T @ adapter[f"{prefix}.lora_B"].T * (ALPHA / RANK)
    return y


def normed(weights, name, x):
    return x / jnp.sqrt((x * x).mean(-1, keepdims=True) + CONFIG["rms_norm_eps"]) * weights[name]


def rotated(x, positions):
    """x: [positions, heads, head]"""
    half = x.shape[-1] // 2
    angle = positions[:, None, None] * frequencies(CONFIG, x.shape[-1], False)[0]
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    a, b = x[..., :half], x[..., half:]
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def attention(weights, adapter, name, x, starts):
    head, length, places = CONFIG["head_dim"], x.shape[0], jnp.arange(x.shape[0])
    parts = [product(weights, adapter, f"{name}.{part}_proj", x).reshape(length, -1, head) for part in "qkv"]
    q, k, v = rotated(parts[0], places - starts), rotated(parts[1], places - starts), parts[2]
    group = q.shape[1] // k.shape[1]
    k, v = jnp.repeat(k, group, 1), jnp.repeat(v, group, 1)
    seen = (places[None, :] <= places[:, None]) & (starts[None, :] == starts[:, None])
    scores = jnp.where(seen, jnp.einsum("ihd,jhd->hij", q, k) * head**-0.5, -jnp.inf)
    result = jnp.einsum("hij,jhd->ihd", jax.nn.softmax(scores, -1), v)
    return product(weights, adapter, f"{name}.o_proj", result.reshape(length, -1))


def row_nats(weights, adapter, tokens, starts):
    x = weights["model.embed_tokens"][tokens[:-1]]
    for index in range(CONFIG["num_hidden_layers"]):
        layer = f"model.layers.{index}"
        x = x + attention(weights, adapter, f"{layer}.self_attn", normed(weights, f"{layer}.input_layernorm", x), starts)
        y = normed(weights, f"{layer}.post_attention_layernorm", x)
        gate = jax.nn.silu(product(weights, adapter, f"{layer}.mlp.gate_proj", y))
        x = x + product(weights, adapter, f"{layer}.mlp.down_proj", gate * product(weights, adapter, f"{layer}.mlp.up_proj", y))
    logits = normed(weights, "model.norm", x) @ weights["lm_head"].T
    return -jnp.take_along_axis(jax.nn.log_softmax(logits, -1), tokens[1:, None], -1)[:, 0]


def loss(weights, adapter, batch):
    nats = jax.vmap(row_nats, (None, None, 0, 0))(weights, adapter, batch["tokens"], batch["starts"])
    return (nats * batch["weights"]).sum() / batch["weights"].sum()


def batches():
    """The second text of a row begins after 3 to 6 tokens; the first token of a text and every fourth one are not learned."""
    for step in range(STEPS):
        tokens = ((noise(f"tokens.{step}", (BATCH, LENGTH + 1)) + 0.5) * CONFIG["vocab_size"]).astype(int)
        begins = [3 + (step + row) % 4 for row in range(BATCH)]
        places = np.arange(LENGTH)
        starts = np.stack([np.where(places >= begin, begin, 0) for begin in begins])
        weights = np.stack([(places + 1 != begin) & (places % 4 != 3) for begin in begins]).astype(float)
        yield {"tokens": tokens, "starts": starts, "weights": weights}


def losses(trained, loss_of):
    optimizer = optax.chain(optax.clip_by_global_norm(NORM), optax.adamw(RATE, eps=1e-8, weight_decay=DECAY))
    state, found = optimizer.init(trained), []
    step = jax.jit(jax.value_and_grad(loss_of))
    for batch in batches():
        value, gradient = step(trained, batch)
        change, state = optimizer.update(gradient, state, trained)
        trained = optax.apply_updates(trained, change)
        found.append(float(value))
    return rounded([found])[0]


def main():
    weights = {name: jnp.asarray(noise(f"{name}.weight", shape)) for name, shape in shapes().items()}
    adapter = losses(new_adapter(weights), lambda adapter, batch: loss(weights, adapter, batch))
    full = losses(weights, lambda weights, batch: loss(weights, {}, batch))
    steps = [{name: value.tolist() for name, value in batch.items()} for batch in batches()]
    fields = {
        "config": CONFIG, "rank": RANK, "alpha": ALPHA, "rate": RATE, "weight_decay": DECAY, "norm": NORM,
        "adapter_losses": adapter, "full_losses": full,
    }
    lines = [f" {json.dumps(name)}: {json.dumps(value)}" for name, value in fields.items()]
    lines.append(' "steps": [\n' + ",\n".join(f"  {json.dumps(step)}" for step in steps) + "\n ]")
    (pathlib.Path(sys.argv[1]) / "finetune.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(adapter, full)


if __name__ == "__main__":
    main()
