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
        x = gpt_block(block, x)
    return cross_entropy(apply_linear(p["head"], apply_norm(p["norm"], x)), targets)


def gpt_block(p, x):
    x = x + attention(p, apply_norm(p["attention_norm"], x))
    hidden = apply_linear(p["inner"], apply_norm(p["feed_forward_norm"], x))
    hidden = jax.nn.gelu(hidden.astype(jnp.float32), approximate=False).astype(x.dtype)
    return x + apply_linear(p["outer"], hidden)


# the same with its blocks as a loop, by what is kept for the backward pass beside each block's input


def gpt_loop_init(key):
    p = gpt_init(key)
    return p | {"blocks": jax.tree.map(lambda *layers: jnp.stack(layers), *p["blocks"])}


def gpt_loop_loss(block, p, batch):
    tokens, targets = batch
    x = p["tokens"][tokens] + p["positions"]
    x, _ = lax.scan(lambda x, layer: (block(layer, x), None), x, p["blocks"])
    return cross_entropy(apply_linear(p["head"], apply_norm(p["norm"], x)), targets)


GPT_LOOPS = {
    f"gpt-loop-{kept}": (gpt_loop_init, functools.partial(gpt_loop_loss, block))
    for kept, block in {
        "nothing": jax.checkpoint(gpt_block),
        "products": jax.checkpoint(gpt_block, policy=jax.checkpoint_policies.dots_with_no_batch_dims_saveable),
        "everything": gpt_block,
    }.items()
}


# classifiers of photographs, in the channels-first layout that Burn has

PHOTOS, PHOTO_SIDE, PHOTO_CLASSES = 128, 224, 1000


def windowed(key, inputs, outputs, size, groups=1, bias=True):
    flat = linear(key, size * size * inputs // groups, outputs)
    weight = flat["weight"].T.reshape(outputs, inputs // groups, size, size)
    return {"weight": weight} | ({"bias": flat["bias"]} if bias else {})


def apply_windowed(p, x, stride, edge, groups=1):
    x = lax.conv_general_dilated(x, p["weight"], (stride, stride), [(edge, edge)] * 2, feature_group_count=groups)
    return x + p["bias"][:, None, None] if "bias" in p else x


def apply_batch_norm(p, x):
    """Normalises in f32, by the running averages if there are any, else by the batch. The training step has none;
    burn-tpu's updates them too."""
    wide = x.astype(jnp.float32)
    if "mean" in p:
        mean, variance = (p[name].astype(jnp.float32)[:, None, None] for name in ("mean", "variance"))
    else:
        mean = wide.mean((0, 2, 3), keepdims=True)
        variance = jnp.square(wide - mean).mean((0, 2, 3), keepdims=True)
    normed = ((wide - mean) * lax.rsqrt(variance + 1e-5)).astype(x.dtype)
    return normed * p["gamma"][:, None, None] + p["beta"][:, None, None]


RESNET = dict(depths=[3, 4, 6, 3], width=64)


def normed(key, inputs, outputs, size):
    return {"convolution": windowed(key, inputs, outputs, size, bias=False), "norm": norm(outputs)}


def apply_normed(p, x, stride=1):
    edge = p["convolution"]["weight"].shape[-1] // 2
    return apply_batch_norm(p["norm"], apply_windowed(p["convolution"], x, stride, edge))


def resnet50_init(key):
    keys = iter(jax.random.split(key, 100))
    blocks, inputs = [], RESNET["width"]
    for stage, depth in enumerate(RESNET["depths"]):
        width = RESNET["width"] << stage
        for _ in range(depth):
            block = {
                "narrow": normed(next(keys), inputs, width, 1),
                "middle": normed(next(keys), width, width, 3),
                "wide": normed(next(keys), width, 4 * width, 1),
            }
            if inputs != 4 * width:
                block["shortcut"] = normed(next(keys), inputs, 4 * width, 1)
            blocks.append(block)
            inputs = 4 * width
    stem = normed(next(keys), 3, RESNET["width"], 7)
    return {"stem": stem, "blocks": blocks, "output": linear(next(keys), inputs, PHOTO_CLASSES)}


def resnet50_logits(p, photos):
    x = jax.nn.relu(apply_normed(p["stem"], photos, 2))
    x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 3, 3), (1, 1, 2, 2), [(0, 0), (0, 0), (1, 1), (1, 1)])
    firsts = {sum(RESNET["depths"][:stage]) for stage in range(1, len(RESNET["depths"]))}
    for number, block in enumerate(p["blocks"]):
        stride = 2 if number in firsts else 1
        inner = jax.nn.relu(apply_normed(block["narrow"], x))
        inner = jax.nn.relu(apply_normed(block["middle"], inner, stride))
        x = apply_normed(block["shortcut"], x, stride) if "shortcut" in block else x
        x = jax.nn.relu(x + apply_normed(block["wide"], inner))
    features = x.astype(jnp.float32).mean((2, 3)).astype(x.dtype)
    return apply_linear(p["output"], features)


VIT = dict(layers=12, width=768, heads=12, feed_forward=3072, patch=16)


def vit_init(key):
    width, hidden = VIT["width"], VIT["feed_forward"]
    keys = iter(jax.random.split(key, 4 + 6 * VIT["layers"]))

    def block():
        layers = {name: linear(next(keys), width, width) for name in ("query", "key", "value", "output")}
        inner, outer = linear(next(keys), width, hidden), linear(next(keys), hidden, width)
        return layers | {"inner": inner, "outer": outer, "attention_norm": norm(width), "feed_forward_norm": norm(width)}

    patches = (PHOTO_SIDE // VIT["patch"]) ** 2
    return {
        "patches": windowed(next(keys), 3, width, VIT["patch"]),
        "class": 0.02 * jax.random.normal(next(keys), (1, 1, width)),
        "positions": 0.02 * jax.random.normal(next(keys), (1, patches + 1, width)),
        "blocks": [block() for _ in range(VIT["layers"])],
        "norm": norm(width),
        "output": linear(next(keys), width, PHOTO_CLASSES),
    }


def whole_attention(p, x):
    batch, sequence, width = x.shape
    heads = VIT["heads"]

    def split(layer):
        return apply_linear(p[layer], x).reshape(batch, sequence, heads, width // heads).swapaxes(1, 2)

    scores = split("query") @ split("key").swapaxes(2, 3) / math.sqrt(width // heads)
    weights = jax.nn.softmax(scores.astype(jnp.float32)).astype(x.dtype)
    return apply_linear(p["output"], (weights @ split("value")).swapaxes(1, 2).reshape(batch, sequence, width))


def gelu(x):
    return jax.nn.gelu(x.astype(jnp.float32), approximate=False).astype(x.dtype)


def vit_logits(p, photos):
    x = apply_windowed(p["patches"], photos, VIT["patch"], 0)
    x = x.reshape(*x.shape[:2], -1).swapaxes(1, 2)
    x = jnp.concatenate([jnp.broadcast_to(p["class"], (x.shape[0], 1, x.shape[2])), x], 1) + p["positions"]
    for block in p["blocks"]:
        x = x + whole_attention(block, apply_norm(block["attention_norm"], x))
        x = x + apply_linear(block["outer"], gelu(apply_linear(block["inner"], apply_norm(block["feed_forward_norm"], x))))
    return apply_linear(p["output"], apply_norm(p["norm"], x[:, 0]))


CONVNEXT = dict(depths=[3, 3, 9, 3], width=96)


def convnext_init(key):
    keys = iter(jax.random.split(key, 100))

    def block(channels):
        return {
            "depthwise": windowed(next(keys), channels, channels, 7, groups=channels),
            "norm": norm(channels),
            "inner": linear(next(keys), channels, 4 * channels),
            "outer": linear(next(keys), 4 * channels, channels),
            "scale": jnp.full(channels, 1e-6),
        }

    stages, inputs = [], 3
    for number, depth in enumerate(CONVNEXT["depths"]):
        channels = CONVNEXT["width"] << number
        stages.append({
            "convolution": windowed(next(keys), inputs, channels, 2 if number else 4),
            "norm": norm(inputs if number else channels),
            "blocks": [block(channels) for _ in range(depth)],
        })
        inputs = channels
    return {"stages": stages, "norm": norm(inputs), "output": linear(next(keys), inputs, PHOTO_CLASSES)}


def channels_last(x):
    return x.transpose(0, 2, 3, 1)


def channels_first(x):
    return x.transpose(0, 3, 1, 2)


def convnext_logits(p, x):
    for number, stage in enumerate(p["stages"]):
        size = 2 if number else 4
        norms = lambda x: channels_first(apply_norm(stage["norm"], channels_last(x)))
        x = norms(x) if number else x
        x = apply_windowed(stage["convolution"], x, size, 0)
        x = x if number else norms(x)
        for block in stage["blocks"]:
            features = channels_last(apply_windowed(block["depthwise"], x, 1, 3, groups=x.shape[1]))
            features = gelu(apply_linear(block["inner"], apply_norm(block["norm"], features)))
            x = x + channels_first(apply_linear(block["outer"], features) * block["scale"])
    features = x.astype(jnp.float32).mean((2, 3)).astype(x.dtype)
    return apply_linear(p["output"], apply_norm(p["norm"], features))


PHOTO_LOGITS = {
    "resnet50": (resnet50_init, resnet50_logits),
    "vit-b16": (vit_init, vit_logits),
    "convnext-t": (convnext_init, convnext_logits),
}


def photo_loss(logits, p, batch):
    photos, targets = batch
    return cross_entropy(logits(p, photos), targets)


PHOTO_MODELS = {name: (init, functools.partial(photo_loss, logits)) for name, (init, logits) in PHOTO_LOGITS.items()}


def with_averages(p):
    """Adds running averages to the batch norms of weights."""
    if isinstance(p, list):
        return [with_averages(part) for part in p]
    if not isinstance(p, dict):
        return p
    averages = {"mean": jnp.zeros_like(p["beta"]), "variance": jnp.ones_like(p["gamma"])} if "gamma" in p else {}
    return {name: with_averages(part) for name, part in p.items()} | averages


def make_inference(model, dtype):
    """Returns `init(key)`, which returns (weights, photographs), and `infer(weights, photographs)`, which returns logits."""
    init_weights, logits = PHOTO_LOGITS[model]

    def init(key):
        weights = init_weights(key)
        weights = with_averages(weights) if model == "resnet50" else weights
        photos = jax.random.uniform(key, (PHOTOS, 3, PHOTO_SIDE, PHOTO_SIDE))
        return jax.tree.map(lambda x: x.astype(dtype), (weights, photos))

    return init, lambda weights, photos: logits(weights, photos).astype(jnp.float32)


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
    init_weights, loss_of = {
        "mlp": (mlp_init, mlp_loss),
        "cnn": (cnn_init, cnn_loss),
        "gpt": (gpt_init, gpt_loss),
        **GPT_LOOPS,
        **PHOTO_MODELS,
    }[model]
    is_gpt = model == "gpt" or model in GPT_LOOPS
    decay = 0.01 if is_gpt or model in ("vit-b16", "convnext-t") else None

    def init(key):
        weights = jax.tree.map(lambda x: x.astype(dtype), init_weights(key))
        zeros = jax.tree.map(jnp.zeros_like, weights)
        return (weights, zeros, zeros, jnp.zeros((), jnp.float32)), batch(key)

    def batch(key):
        if is_gpt:
            text = jax.random.randint(key, (GPT["batch"], GPT["sequence"] + 1), 0, GPT["vocabulary"])
            return text[:, :-1], text[:, 1:]
        if model in PHOTO_MODELS:
            photos = jax.random.uniform(key, (PHOTOS, 3, PHOTO_SIDE, PHOTO_SIDE)).astype(dtype)
            return photos, jax.random.randint(key, (PHOTOS,), 0, PHOTO_CLASSES)
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
