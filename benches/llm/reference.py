"""Logits of tiny decoders of each family, and an adapter's layer, in NumPy and f64, for `crates/burn-tpu-llm/tests/llm`:

    python benches/llm/reference.py crates/burn-tpu-llm/tests/references

Written from the papers: RoPE (arXiv 2104.09864), its scalings (2306.15595, 2309.00071, and Llama 3.1's model card and public
definition), grouped queries (2305.13245), RMS norm (1910.07467), gated feed-forward (2002.05202), Gemma 2 (2408.00118), Gemma 3
(2503.19786), Qwen 2 and 3 (2407.10671, 2505.09388), Mistral (2310.06825), Mixtral (2401.04088), LoRA (2106.09685). Nothing of a file has the weights: they follow from a
tensor's name and shape. Needs `pip install numpy`.
"""

import json
import math
import pathlib
import sys

import numpy as np

TOKENS = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7]


def noise(name, shape):
    """Numbers in [-0.5, 0.5) with 24 bits: SplitMix64 from the FNV-1a hash of the name."""
    seed = 0xCBF29CE484222325
    for byte in name.encode():
        seed = (seed ^ byte) * 0x100000001B3 % 2**64
    with np.errstate(over="ignore"):
        x = np.uint64(seed) + (np.arange(math.prod(shape), dtype=np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x = x ^ (x >> np.uint64(31))
    return ((x >> np.uint64(40)).astype(np.float64) / 2**24 - 0.5).reshape(shape)


def weight(name, *shape):
    value = noise(name, shape)
    if name.endswith(".gate.weight"):
        # The router likes two experts equally.
        value[2] = value[1]
    return value


def norm(config, name, x, size):
    gain = weight(f"{name}.weight", size) + (1 if config["model_type"].startswith("gemma") else 0)
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + config["rms_norm_eps"]) * gain


def linear(name, x, outputs, bias=False):
    y = x @ weight(f"{name}.weight", outputs, x.shape[-1]).T
    return y + weight(f"{name}.bias", outputs) if bias else y


def frequencies(config, head, local):
    theta = config.get("rope_local_base_freq", 10000.0) if local else config["rope_theta"]
    pairs = np.arange(head // 2)
    f = theta ** (-2 * pairs / head)
    scaling = config.get("rope_scaling")
    if not scaling or local:
        return f, 1.0
    factor, kind = scaling["factor"], scaling["rope_type"]
    if kind == "linear":
        return f / factor, 1.0
    original = scaling["original_max_position_embeddings"]
    if kind == "llama3":
        low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
        wave = 2 * math.pi / f
        smooth = (original / wave - low) / (high - low)
        between = (1 - smooth) * f / factor + smooth * f
        return np.where(wave > original / low, f / factor, np.where(wave < original / high, f, between)), 1.0
    assert kind == "yarn"
    at = lambda rotations: head * math.log(original / (rotations * 2 * math.pi)) / (2 * math.log(theta))
    first, last = max(math.floor(at(32)), 0), min(math.ceil(at(1)), head - 1)
    ramp = np.clip((pairs - first) / max(last - first, 0.001), 0, 1)
    return f / factor * ramp + f * (1 - ramp), 0.1 * math.log(factor) + 1


def rotate(config, x, local):
    """x: [positions, heads, head]"""
    head = x.shape[-1]
    f, scale = frequencies(config, head, local)
    angle = np.arange(x.shape[0])[:, None, None] * f
    cos, sin = np.cos(angle) * scale, np.sin(angle) * scale
    a, b = x[..., : head // 2], x[..., head // 2 :]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def cap(x, most):
    return most * np.tanh(x / most) if most else x


def attention(config, name, x, window):
    kind, head = config["model_type"], config["head_dim"]
    heads, kv_heads, length = config["num_attention_heads"], config["num_key_value_heads"], x.shape[0]
    bias, out_bias = kind.startswith("qwen2") or config.get("attention_bias"), config.get("attention_bias")
    q = linear(f"{name}.q_proj", x, heads * head, bias).reshape(length, heads, head)
    k = linear(f"{name}.k_proj", x, kv_heads * head, bias).reshape(length, kv_heads, head)
    v = linear(f"{name}.v_proj", x, kv_heads * head, bias).reshape(length, kv_heads, head)
    if kind in ("qwen3", "qwen3_moe", "gemma3_text"):
        q, k = norm(config, f"{name}.q_norm", q, head), norm(config, f"{name}.k_norm", k, head)
    local = kind == "gemma3_text" and window is not None
    q, k = rotate(config, q, local), rotate(config, k, local)
    scale = config.get("query_pre_attn_scalar", head) ** -0.5
    result = np.zeros((length, heads, head))
    for h in range(heads):
        keys, values = k[:, h * kv_heads // heads], v[:, h * kv_heads // heads]
        for i in range(length):
            begin = 0 if window is None else max(0, i - window + 1)
            scores = cap(keys[begin : i + 1] @ q[i, h] * scale, config.get("attn_logit_softcapping"))
            shares = np.exp(scores - scores.max())
            result[i, h] = shares / shares.sum() @ values[begin : i + 1]
    return linear(f"{name}.o_proj", result.reshape(length, -1), x.shape[-1], out_bias)


def feed_forward(config, name, x, hidden, names=("gate_proj", "up_proj", "down_proj")):
    bias = config.get("mlp_bias")
    gate = linear(f"{name}.{names[0]}", x, hidden, bias)
    if config["model_type"].startswith("gemma"):
        gate = 0.5 * gate * (1 + np.tanh(math.sqrt(2 / math.pi) * (gate + 0.044715 * gate**3)))
    else:
        gate = gate / (1 + np.exp(-gate))
    return linear(f"{name}.{names[2]}", gate * linear(f"{name}.{names[1]}", x, hidden, bias), x.shape[-1], bias)


def mixture(config, name, x):
    """Experts of which the router chooses some for each token, the first ones of those that it likes equally."""
    mixtral = config["model_type"] == "mixtral"
    count = config["num_local_experts" if mixtral else "num_experts"]
    hidden = config["intermediate_size" if mixtral else "moe_intermediate_size"]
    names = ("w1", "w3", "w2") if mixtral else ("gate_proj", "up_proj", "down_proj")
    router = linear(f"{name}.gate", x, count)
    likings = np.exp(router - router.max(-1, keepdims=True))
    likings /= likings.sum(-1, keepdims=True)
    result = np.zeros_like(x)
    for i, row in enumerate(likings):
        chosen = np.argsort(-row, kind="stable")[: config["num_experts_per_tok"]]
        total = row[chosen].sum() if mixtral or config["norm_topk_prob"] else 1
        for expert in chosen:
            result[i] += row[expert] / total * feed_forward(config, f"{name}.experts.{expert}", x[i : i + 1], hidden, names)[0]
    if shared := config.get("shared_expert_intermediate_size"):
        gate = 1 / (1 + np.exp(-linear(f"{name}.shared_expert_gate", x, 1)))
        result += gate * feed_forward(config, f"{name}.shared_expert", x, shared)
    return result


def after_attention(config, name, x):
    if config["model_type"] == "mixtral":
        return mixture(config, f"{name}.block_sparse_moe", x)
    if "num_experts" in config:
        return mixture(config, f"{name}.mlp", x)
    return feed_forward(config, f"{name}.mlp", x, config["intermediate_size"])


def logits(config):
    width, gemma = config["hidden_size"], config["model_type"].startswith("gemma")
    embedding = weight("model.embed_tokens.weight", config["vocab_size"], width)
    x = embedding[TOKENS] * (math.sqrt(width) if gemma else 1)
    for index in range(config["num_hidden_layers"]):
        name = f"model.layers.{index}"
        kinds = config.get("layer_types") or ["sliding_attention"] * (index + 1)
        window = config.get("sliding_window") if kinds[index] == "sliding_attention" else None
        seen = attention(config, f"{name}.self_attn", norm(config, f"{name}.input_layernorm", x, width), window)
        if gemma:
            x = x + norm(config, f"{name}.post_attention_layernorm", seen, width)
            fed = after_attention(config, name, norm(config, f"{name}.pre_feedforward_layernorm", x, width))
            x = x + norm(config, f"{name}.post_feedforward_layernorm", fed, width)
        else:
            x = x + seen
            x = x + after_attention(config, name, norm(config, f"{name}.post_attention_layernorm", x, width))
    x = norm(config, "model.norm", x, width)
    y = x @ embedding.T if config["tie_word_embeddings"] else linear("lm_head", x, config["vocab_size"])
    return cap(y, config.get("final_logit_softcapping"))


SIZES = {
    "vocab_size": 16, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 8, "intermediate_size": 24, "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
    "tie_word_embeddings": False,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
ALTERNATING = {"sliding_window": 4, "layer_types": ["sliding_attention", "full_attention"]}
GEMMA = {"hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 12, "tie_word_embeddings": True}
EXPERTS = {"num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 12, "decoder_sparse_step": 1}
MODELS = {
    "llama": {"model_type": "llama", "hidden_act": "silu"},
    "llama-biases": {"model_type": "llama", "attention_bias": True, "mlp_bias": True, "num_key_value_heads": 4},
    "llama-one-key-head": {"model_type": "llama", "num_key_value_heads": 1, "tie_word_embeddings": True},
    "llama-linear": {"model_type": "llama", "rope_scaling": {"rope_type": "linear", "factor": 4.0}},
    "llama-3.1": {"model_type": "llama", "rope_scaling": LLAMA3},
    "llama-yarn": {"model_type": "llama", "rope_scaling": YARN},
    "mistral": {"model_type": "mistral", "sliding_window": 5},
    "qwen2": {"model_type": "qwen2", "tie_word_embeddings": True, "use_sliding_window": False},
    "qwen3": {"model_type": "qwen3", "rope_theta": 1000000.0, "attention_bias": False},
    "mixtral": {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": None},
    "qwen2-moe": {
        "model_type": "qwen2_moe", **EXPERTS, "shared_expert_intermediate_size": 20, "norm_topk_prob": False,
        "use_sliding_window": False,
    },
    "qwen3-moe": {"model_type": "qwen3_moe", **EXPERTS, "norm_topk_prob": True, "attention_bias": False, "mlp_only_layers": []},
    "gemma2": {"model_type": "gemma2", **ALTERNATING, **GEMMA, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0},
    "gemma3": {
        "model_type": "gemma3_text", **ALTERNATING, **GEMMA, "rope_theta": 1000000.0, "rope_local_base_freq": 10000.0,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
    },
}


def lora_layer(inputs=6, outputs=5, rank=2, alpha=3.0, rows=4):
    """A product with an adapter, and the gradients of `sum(output * weights)`. Shapes are those of files."""
    x, w, bias = noise("x", (rows, inputs)), noise("weight", (outputs, inputs)), noise("bias", (outputs,))
    a, b, weights = noise("a", (rank, inputs)), noise("b", (outputs, rank)), noise("weights", (rows, outputs))
    scale = alpha / rank
    return {
        "inputs": inputs, "outputs": outputs, "rank": rank, "alpha": alpha, "rows": rows,
        "output": x @ w.T + bias + scale * x @ a.T @ b.T,
        "gradient_x": weights @ w + scale * weights @ b @ a,
        "gradient_a": scale * b.T @ weights.T @ x,
        "gradient_b": scale * weights.T @ x @ a.T,
    }


def rounded(rows):
    return [[float(f"{value:.8g}") for value in row] for row in rows]


def write_lora(folder):
    values = {name: rounded(value) if np.ndim(value) else value for name, value in lora_layer().items()}
    lines = ",\n".join(f" {json.dumps(name)}: {json.dumps(value)}" for name, value in values.items())
    (folder / "lora-layer.json").write_text(f"{{\n{lines}\n}}\n")


def main():
    folder = pathlib.Path(sys.argv[1])
    write_lora(folder)
    for name, fields in MODELS.items():
        config = {**SIZES, **fields}
        rows = rounded(logits(config))
        text = json.dumps({"config": config, "tokens": TOKENS}, indent=1)[:-2]
        lines = ",\n".join(f"  {json.dumps(row)}" for row in rows)
        (folder / f"{name}.json").write_text(f'{text},\n "logits": [\n{lines}\n ]\n}}\n')
        print(name, max(abs(value) for row in rows for value in row))


if __name__ == "__main__":
    main()
