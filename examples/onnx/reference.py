"""Makes `cnn.onnx`, runs it and silero-VAD in onnxruntime, and writes what went in and came out, for `examples/onnx`.

    pip install onnx==1.23.2 onnxruntime==1.32.0 safetensors==0.8.0
    python examples/onnx/reference.py ~/.cache/burn-tpu/silero

The folder has the files of `cargo xtask data silero`. `cnn.onnx` has the blocks of ResNet and of MobileNet: convolutions
with batch norm, a residual sum, depthwise convolutions, ReLU and ReLU6, a max pool, a mean over pixels, a product. Its
weights are random. `cnn.safetensors` has `input [4, 3, 64, 64]` and `output [4, 10]`; `vad.safetensors` has `audio [chunks,
512]` at 16 kHz and `speech [chunks]`, the probability of speech in each chunk.
"""

import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import save_file

RATE = 16_000
CHUNK = 512
# What the model reads of the chunk before.
CONTEXT = 64


class Network:
    """A graph under construction; each method adds a layer to `x` and returns the name of its result."""

    def __init__(self, seed):
        self.random = np.random.RandomState(seed)
        self.nodes, self.weights = [], []

    def weight(self, *shape, scale=1.0, offset=0.0):
        return self.constant(self.random.randn(*shape) * scale + offset)

    def constant(self, values):
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(values, np.float32), name))
        return name

    def add(self, op, inputs, **attributes):
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name=name, **attributes))
        return name

    def conv(self, x, before, after, size, stride=1, groups=1):
        fan_in = before // groups * size * size
        kernel = self.weight(after, before // groups, size, size, scale=(2 / fan_in) ** 0.5)
        pad = size // 2
        x = self.add(
            "Conv", [x, kernel], kernel_shape=[size] * 2, strides=[stride] * 2, pads=[pad] * 4, group=groups
        )
        scale, bias = self.weight(after, scale=0.1, offset=1), self.weight(after, scale=0.1)
        mean = self.weight(after, scale=0.1)
        variance = self.constant(self.random.uniform(0.5, 1.5, after))
        return self.add("BatchNormalization", [x, scale, bias, mean, variance], epsilon=1e-5)

    def relu6(self, x):
        return self.add("Clip", [x, self.constant(0), self.constant(6)])

    def residual(self, x, before, after, stride):
        y = self.add("Relu", [self.conv(x, before, after, 3, stride)])
        y = self.conv(y, after, after, 3)
        skip = x if before == after else self.conv(x, before, after, 1, stride)
        return self.add("Relu", [self.add("Add", [y, skip])])

    def separable(self, x, before, after):
        y = self.relu6(self.conv(x, before, 4 * before, 1))
        y = self.relu6(self.conv(y, 4 * before, 4 * before, 3, groups=4 * before))
        return self.conv(y, 4 * before, after, 1)


def cnn():
    net = Network(3)
    x = net.add("Relu", [net.conv("input", 3, 16, 7, 2)])
    x = net.add("MaxPool", [x], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    x = net.residual(x, 16, 16, 1)
    x = net.residual(x, 16, 32, 2)
    x = net.separable(x, 32, 32)
    x = net.separable(x, 32, 64)
    x = net.add("Flatten", [net.add("GlobalAveragePool", [x])], axis=1)
    x = net.add("Gemm", [x, net.weight(10, 64, scale=0.1), net.weight(10)], transB=1)
    x = net.add("Softmax", [x], axis=1)
    shapes = ("input", [4, 3, 64, 64]), (x, [4, 10])
    inputs, outputs = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)] for name, dims in shapes]
    graph = helper.make_graph(net.nodes, "cnn", inputs, outputs, net.weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return model


def audio(chunks):
    """Returns a voice-like sound between pauses: a pitch with its harmonics in the bands of vowels, with some noise."""
    seconds = np.arange(chunks * CHUNK) / RATE
    pitch = 120 + 15 * np.sin(2 * np.pi * 3 * seconds)
    phase = 2 * np.pi * np.cumsum(pitch) / RATE
    formants = 500 + 250 * np.sin(2 * np.pi * 2.5 * seconds), 1500 + 400 * np.sin(2 * np.pi * 1.7 * seconds)
    band = lambda k: sum(np.exp(-(((k * pitch - f) / 150) ** 2)) for f in formants) + 0.05
    voice = sum(band(k) * np.sin(k * phase) for k in range(1, 30))
    syllables = np.clip(np.sin(2 * np.pi * 4 * seconds), 0, 1) ** 0.5
    spoken = np.sin(2 * np.pi * 0.45 * seconds) > 0
    noise = np.random.RandomState(5).randn(seconds.size)
    return (0.12 * voice * syllables * spoken + 0.002 * noise).astype(np.float32).reshape(chunks, CHUNK)


def speech(model, chunks):
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    state, context = np.zeros((2, 1, 128), np.float32), np.zeros(CONTEXT, np.float32)
    found = []
    for chunk in chunks:
        feeds = {"input": np.concatenate([context, chunk])[None], "state": state}
        if any(known.name == "sr" for known in session.get_inputs()):
            feeds["sr"] = np.array(RATE, np.int64)
        probability, state = session.run(None, feeds)
        found.append(probability.item())
        context = chunk[-CONTEXT:]
    return np.array(found, np.float32)


def main(folder):
    model = cnn()
    onnx.save(model, folder / "cnn.onnx")
    images = np.random.RandomState(4).rand(4, 3, 64, 64).astype(np.float32)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (output,) = session.run(None, {"input": images})
    save_file({"input": images, "output": output}, folder / "cnn.safetensors")
    chunks = audio(200)
    found = speech(folder / "silero_vad.onnx", chunks)
    save_file({"audio": chunks, "speech": found}, folder / "vad.safetensors")
    spoken = int((found > 0.5).sum())
    print(f"cnn: largest probability {output.max():.3f}; vad: {spoken} of {found.size} chunks are speech")


if __name__ == "__main__":
    main(Path(sys.argv[1]).expanduser())
