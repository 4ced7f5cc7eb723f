"""The models of `src/models` with their optimizers, written in JAX: pure functions over dictionaries.

A state is (weights, both moments, step count). `step(state, rate, batch)` returns the next state and the loss. Weights and
moments have the type of the model.
"""

import functools
import math

import jax
import jax.numpy as jnp
from jax import lax

GPT = dict(layers=4, width=256, heads=4, feed_forward=1024, sequence=128, batch=16, vocabulary=96)
IMAGES, PIXELS, CLASSES = 128, 784, 10


def linear(key, inputs, outputs):
    bound = 1 / math.sqrt(inputs)
    weight, bias = jax.random.split(key)
    uniform = functools.partial(jax.random.uniform, minval=-bound, maxval=bound)
    return {"weight": uniform(weight, (inputs, outputs)), "bias": uniform(bias, (outputs,))}


def convolution(key, inputs, outputs):
    flat = linear(key, 9 * inputs, outputs)
    return {"weight": flat["weight"].T.reshape(outputs, inputs, 3, 3), "bias": flat["bias"]}


def norm(width):
    return {"gamma": jnp.ones(width), "beta": jnp.zeros(width)}


def apply_linear(p, x):
    return x @ p["weight"] + p["bias"]


def apply_convolution(p, x):
    return lax.conv_general_dilated(x, p["weight"], (1, 1), "VALID") + p["bias"][:, None, None]


def apply_norm(p, x):
    """Returns the norm, computed in f32 as in burn-tpu."""
    wide = x.astype(jnp.float32)
    mean = wide.mean(-1, keepdims=True)
    variance = jnp.square(wide - mean).mean(-1, keepdims=True)
    return ((wide - mean) * lax.rsqrt(variance + 1e-5)).astype(x.dtype) * p["gamma"] + p["beta"]


def cross_entropy(logits, targets):
    log_probabilities = jax.nn.log_softmax(logits.astype(jnp.float32))
    return -jnp.take_along_axis(log_probabilities, targets[..., None], -1).mean()


# mlp: 784-512-256-10


def mlp_init(key):
    sizes = [PIXELS, 512, 256, CLASSES]
    keys = jax.random.split(key, 3)
    return [linear(k, a, b) for k, a, b in zip(keys, sizes, sizes[1:])]


def mlp_loss(layers, batch):
    images, targets = batch
    x = images
    for layer in layers[:-1]:
        x = jax.nn.relu(apply_linear(layer, x))
    return cross_entropy(apply_linear(layers[-1], x), targets)


# cnn: two convolutions, a max pool, two linear layers


def cnn_init(key):
    a, b, c, d = jax.random.split(key, 4)
    return {
        "convolutions": [convolution(a, 1, 32), convolution(b, 32, 64)],
        "hidden": linear(c, 64 * 12 * 12, 128),
        "output": linear(d, 128, CLASSES),
    }


def cnn_loss(p, batch):
    images, targets = batch
    x = images.reshape(-1, 1, 28, 28)
    for layer in p["convolutions"]:
        x = jax.nn.relu(apply_convolution(layer, x))
    x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
    x = jax.nn.relu(apply_linear(p["hidden"], x.reshape(x.shape[0], -1)))
    return cross_entropy(apply_linear(p["output"], x), targets)


# gpt: pre-norm decoder


def gpt_init(key):
    width, hidden = GPT["width"], GPT["feed_forward"]
    keys = iter(jax.random.split(key, 3 + 6 * GPT["layers"]))

    def block():
        return {
            "attention_norm": norm(width),
            "query": linear(next(keys), width, width),
            "key": linear(next(keys), width, width),
            "value": linear(next(keys), width, width),
            "output": linear(next(keys), width, width),
            "feed_forward_norm": norm(width),
            "inner": linear(next(keys), width, hidden),
            "outer": linear(next(keys), hidden, width),
        }

    return {
        "tokens": 0.02 * jax.random.normal(next(keys), (GPT["vocabulary"], width)),
        "positions": 0.02 * jax.random.normal(next(keys), (GPT["sequence"], width)),
        "blocks": [block() for _ in range(GPT["layers"])],
        "norm": norm(width),
        "head": linear(next(keys), width, GPT["vocabulary"]),
    }


def attention(p, x):
    batch, sequence, width = x.shape
    heads = GPT["heads"]

    def split(layer):
        return apply_linear(p[layer], x).reshape(batch, sequence, heads, width // heads).swapaxes(1, 2)

    query, key, value = split("query"), split("key"), split("value")
    scores = query @ key.swapaxes(2, 3) / math.sqrt(width // heads)
    seen = jnp.tril(jnp.ones((sequence, sequence), bool))
    scores = jnp.where(seen, scores, jnp.array(-1e4, scores.dtype))
    weights = jax.nn.softmax(scores.astype(jnp.float32)).astype(x.dtype)
    return apply_linear(p["output"], (weights @ value).swapaxes(1, 2).reshape(batch, sequence, width))


def gpt_loss(p, batch):
    tokens, targets = batch
    x = p["tokens"][tokens] + p["positions"]
    for block in p["blocks"]:
        x = x + attention(block, apply_norm(block["attention_norm"], x))
        hidden = apply_linear(block["inner"], apply_norm(block["feed_forward_norm"], x))
        hidden = jax.nn.gelu(hidden.astype(jnp.float32), approximate=False).astype(x.dtype)
        x = x + apply_linear(block["outer"], hidden)
    return cross_entropy(apply_linear(p["head"], apply_norm(p["norm"], x)), targets)


# the step


def adam(weight, gradient, m, v, rate, m_scale, v_scale, decay):
    """Returns weight, m, v after Adam if `decay` is None, else AdamW. `m_scale` and `v_scale` correct the moments' bias."""
    m = 0.9 * m + 0.1 * gradient
    v = 0.999 * v + 0.001 * jnp.square(gradient)
    update = m * m_scale / (jnp.sqrt(v * v_scale) + 1e-5)
    kept = weight if decay is None else weight * (1 - rate * decay)
    return kept - rate * update, m, v


def make(model, dtype):
    """Returns `init(key)`, which returns (state, batch), and `step(state, rate, batch)`, which returns (state, loss)."""
    init_weights = {"mlp": mlp_init, "cnn": cnn_init, "gpt": gpt_init}[model]
    loss_of = {"mlp": mlp_loss, "cnn": cnn_loss, "gpt": gpt_loss}[model]
    decay = 0.01 if model == "gpt" else None

    def init(key):
        weights = jax.tree.map(lambda x: x.astype(dtype), init_weights(key))
        zeros = jax.tree.map(jnp.zeros_like, weights)
        return (weights, zeros, zeros, jnp.zeros((), jnp.float32)), batch(key)

    def batch(key):
        if model == "gpt":
            text = jax.random.randint(key, (GPT["batch"], GPT["sequence"] + 1), 0, GPT["vocabulary"])
            return text[:, :-1], text[:, 1:]
        images = jax.random.uniform(key, (IMAGES, PIXELS)).astype(dtype)
        return images, jax.random.randint(key, (IMAGES,), 0, CLASSES)

    def step(state, rate, batch):
        weights, m, v, t = state
        loss, gradients = jax.value_and_grad(loss_of)(weights, batch)
        t = t + 1
        # Run-time scalars have the model's type, since wider ones would widen the products.
        numbers = [x.astype(dtype) for x in (rate, 1 / (1 - 0.9**t), 1 / (1 - 0.999**t))]
        updated = jax.tree.map(lambda *leaf: adam(*leaf, *numbers, decay), weights, gradients, m, v)
        weights, m, v = jax.tree.transpose(jax.tree.structure(weights), jax.tree.structure((0, 0, 0)), updated)
        return (weights, m, v, t), loss

    return init, step
