"""How a step is split over a mesh: the rules of `burn_tpu::{Fsdp, Patterns}` and of `examples/fit`, as JAX shardings."""

import math

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

# Axes with these names split batches, and parameters below this size are on every device, as in burn-tpu.
BATCH_AXES = ("slice", "replica", "data", "batch", "fsdp")
LEAST_BYTES = 64 << 10

COLUMNS, ROWS = ("query", "key", "value", "inner", "head"), ("output", "outer")


class Layout:
    """Shardings over a mesh of all devices. `fsdp` and `tensor` are axes, or None."""

    def __init__(self, axes, fsdp, tensor):
        devices = np.array(jax.devices()[: math.prod(axes.values())]).reshape(tuple(axes.values()))
        self.mesh, self.axes, self.fsdp, self.tensor = Mesh(devices, tuple(axes)), axes, fsdp, tensor

    def of(self, *names):
        return NamedSharding(self.mesh, PartitionSpec(*names))

    def batch(self, batch):
        names = tuple(name for name in self.axes if name in BATCH_AXES)
        return jax.tree.map(lambda x: self.of(names, *[None] * (x.ndim - 1)), batch)

    def parameter(self, path, x):
        names = [getattr(key, "key", None) for key in path]
        if self.tensor and len(names) >= 2:
            layer, part = names[-2:]
            if layer in COLUMNS:
                return self.of(*([None, self.tensor] if part == "weight" else [self.tensor]))
            if layer in ROWS and part == "weight":
                return self.of(self.tensor, None)
        dims = [None] * x.ndim
        if self.fsdp and x.size * x.dtype.itemsize >= LEAST_BYTES:
            split = [i for i, size in enumerate(x.shape) if size % self.axes[self.fsdp] == 0]
            if split:
                dims[max(split, key=lambda i: x.shape[i])] = self.fsdp
        return self.of(*dims)

    def state(self, state):
        return jax.tree_util.tree_map_with_path(self.parameter, state)
