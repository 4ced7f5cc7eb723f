"""Reference values of the optimizers of compiled steps, in NumPy and f64, from their papers:

    python benches/optimizers.py > crates/burn-tpu-runtime/src/step/optimizers.json

AdamW with 8-bit state: Dettmers et al., https://arxiv.org/abs/2110.02861
Lion: Chen et al., https://arxiv.org/abs/2302.06675
Adafactor: Shazeer and Stern, https://arxiv.org/abs/1804.04235
Muon: Jordan et al., https://kellerjordan.github.io/posts/muon/
Its size: Liu et al., https://arxiv.org/abs/2502.16982
"""

import json

import numpy as np

STEPS, RATE, DECAY, EPSILON = 20, 2e-3, 0.1, 1e-8
SHAPES = {"wide": (64, 80), "tall": (40, 24), "vector": (96,)}


def start(name):
    count = int(np.prod(SHAPES[name]))
    at = np.arange(count)
    return (((at * 7919 + len(name) * 13) % 1009 - 504) / 504).reshape(SHAPES[name])


def gradient(name, step):
    count = int(np.prod(SHAPES[name]))
    at = np.arange(count)
    noise = ((at * 6007 + step * 3571 + len(name) * 101) % 997 - 498) / 498
    return (noise * 10.0 ** -(at % 4)).reshape(SHAPES[name])


def adam(p, g, s, t, betas=(0.9, 0.999)):
    m, v = s.get("m", 0.0), s.get("v", 0.0)
    s["m"], s["v"] = betas[0] * m + (1 - betas[0]) * g, betas[1] * v + (1 - betas[1]) * g * g
    return s["m"] / (1 - betas[0] ** t) / (np.sqrt(s["v"] / (1 - betas[1] ** t)) + EPSILON)


def lion(p, g, s, t):
    m = s.get("m", np.zeros_like(p))
    s["m"] = 0.99 * m + 0.01 * g
    return np.sign(0.9 * m + 0.1 * g)


def rms(x):
    return np.sqrt((x * x).mean())


def adafactor(p, g, s, t):
    beta = 1 - t**-0.8
    squares = g * g + 1e-30
    if p.ndim == 2:
        s["r"] = beta * s.get("r", 0.0) + (1 - beta) * squares.sum(1)
        s["c"] = beta * s.get("c", 0.0) + (1 - beta) * squares.sum(0)
        v = np.outer(s["r"], s["c"]) / s["r"].sum()
    else:
        v = s["v"] = beta * s.get("v", 0.0) + (1 - beta) * squares
    u = g / np.sqrt(v)
    u = u / max(1.0, rms(u))
    return u * max(1e-3, rms(p))


def muon(p, g, s, t):
    if p.ndim != 2:
        return adam(p, g, s, t)
    s["m"] = 0.95 * s.get("m", 0.0) + g
    x = g + 0.95 * s["m"]
    tall = x.shape[0] > x.shape[1]
    x = x.T if tall else x
    x = x / (np.linalg.norm(x) + 1e-7)
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x + (-4.775 * a + 2.0315 * a @ a) @ x
    return (x.T if tall else x) * 0.2 * np.sqrt(max(p.shape))


def dynamic(signed):
    """The values of the dynamic type, 256 of them."""
    values = [0.0, 1.0]
    for decade in range(7):
        edges = np.linspace(0.1, 1, 2 ** (decade + (0 if signed else 1)) + 1)
        middles = (edges[:-1] + edges[1:]) / 2 * 10.0 ** (decade - 6)
        values += [*middles, *(-middles if signed else [])]
    assert len(values) == 256
    return np.sort(values)


def rounded(x, signed):
    """What blocks of 2,048 elements are after they had 8 bits."""
    flat = np.concatenate([x.ravel(), np.zeros(-x.size % 2048)]).reshape(-1, 2048)
    largest = np.abs(flat).max(1, keepdims=True)
    values = dynamic(signed)
    share = flat / np.where(largest == 0, 1, largest)
    nearest = values[np.abs(share[..., None] - values).argmin(-1)] * largest
    return nearest.ravel()[: x.size].reshape(x.shape)


def eight_bits(p, g, s, t):
    change = adam(p, g, s, t)
    if p.size > 4096:
        s["m"], s["v"] = rounded(s["m"], True), rounded(s["v"], False)
    return change


def main():
    found = {}
    for rule in [adam, eight_bits, lion, adafactor, muon]:
        found[rule.__name__] = {}
        for name in SHAPES:
            p, s = start(name), {}
            for t in range(1, STEPS + 1):
                p = p * (1 - RATE * DECAY) - RATE * rule(p, gradient(name, t), s, t)
            found[rule.__name__][name] = [round(x, 7) for x in p.ravel()[:: 7 if p.ndim == 1 else 97]]
    print(json.dumps(found))


main()
