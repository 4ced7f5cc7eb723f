"""The GPT of `examples/gpt` written in JAX: pure functions over its weights, a dictionary with the names of its safetensors
file, for any type of float. What is a sum or a norm in f32 there is one here.
"""

import math

import jax
import jax.numpy as jnp
from jax import lax

HIDDEN = -1e4


def norm(p, name, x):
    wide = x.astype(jnp.float32)
    mean = wide.mean(-1, keepdims=True)
    variance = jnp.square(wide - mean).mean(-1, keepdims=True)
    return ((wide - mean) * lax.rsqrt(variance + 1e-5)).astype(x.dtype) * p[f"{name}.gamma"] + p[f"{name}.beta"]


def linear(p, name, x):
    return x @ p[f"{name}.weight"] + p[f"{name}.bias"]


def heads_of(p, block, x, heads):
    """Returns query, keys and values, each [batch, heads, length, head]."""
    batch, length, width = x.shape
    parts = jnp.split(linear(p, f"{block}.qkv", norm(p, f"{block}.attention_norm", x)), 3, -1)
    return [part.reshape(batch, length, heads, width // heads).swapaxes(1, 2) for part in parts]


def attend(query, keys, values, hidden):
    scores = query @ keys.swapaxes(2, 3) / math.sqrt(query.shape[-1])
    scores = jnp.where(hidden, jnp.array(HIDDEN, scores.dtype), scores)
    return jax.nn.softmax(scores.astype(jnp.float32)).astype(query.dtype) @ values


def rest(p, block, x, seen):
    x = x + linear(p, f"{block}.projection", seen.swapaxes(1, 2).reshape(x.shape))
    hidden = linear(p, f"{block}.inner", norm(p, f"{block}.feed_forward_norm", x))
    hidden = jax.nn.gelu(hidden.astype(jnp.float32), approximate=False).astype(x.dtype)
    return x + linear(p, f"{block}.outer", hidden)


def logits_of(p, x):
    x = norm(p, "norm", x)
    logits = linear(p, "head", x) if "head.weight" in p else x @ p["tokens.weight"].T
    return logits.astype(jnp.float32)


def loss(p, config, tokens, targets):
    """Returns the mean cross-entropy in nats of targets [batch, sequence]."""
    length = tokens.shape[1]
    x = p["tokens.weight"][tokens] + p["positions.weight"][:length]
    hidden = ~jnp.tril(jnp.ones((length, length), bool))
    for layer in range(config["layers"]):
        block = f"blocks.{layer}"
        x = rest(p, block, x, attend(*heads_of(p, block, x, config["heads"]), hidden))
    log_probabilities = jax.nn.log_softmax(logits_of(p, x))
    return -jnp.take_along_axis(log_probabilities, targets[..., None], -1).mean()


def decode(p, config, cache, tokens, positions):
    """Adds tokens [batch, 1] at positions [batch] to the cache, a list of keys and values [batch, heads, sequence, head] for
    each layer. Returns the logits [batch, vocab] of the next tokens, and the cache."""
    at = positions[:, None, None, None]
    x = p["tokens.weight"][tokens] + p["positions.weight"][positions][:, None]
    write = jax.vmap(lambda old, new, at: lax.dynamic_update_slice(old, new, (0, at, 0)))
    next_cache = []
    for layer, (keys, values) in enumerate(cache):
        block = f"blocks.{layer}"
        query, key, value = heads_of(p, block, x, config["heads"])
        if config["update"] == "where":
            here = jnp.arange(config["sequence"])[:, None] == at
            keys, values = jnp.where(here, key, keys), jnp.where(here, value, values)
        else:
            keys, values = write(keys, key, positions), write(values, value, positions)
        hidden = jnp.arange(config["sequence"]) > at
        x = rest(p, block, x, attend(query, keys, values, hidden))
        next_cache.append((keys, values))
    return logits_of(p, x)[:, 0], next_cache


def sample(key, logits, temperature, top_k, top_p):
    """Returns a token [batch, 1] for each row of logits [batch, vocab]."""
    if temperature == 0:
        return logits.argmax(-1, keepdims=True).astype(jnp.int32)
    count = min(top_k or logits.shape[-1], logits.shape[-1])
    best, tokens = lax.top_k(logits, count)
    best = best / temperature
    if top_p < 1:
        probabilities = jax.nn.softmax(best)
        before = probabilities.cumsum(-1) - probabilities
        best = jnp.where(before >= top_p, -1e9, best)
    choice = jax.random.categorical(key, best)[:, None]
    return jnp.take_along_axis(tokens, choice, -1)
