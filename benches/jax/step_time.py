"""The JAX programs that `examples/step_time` and `examples/fit` compare with.

    export DIR             write each model's start and step as StableHLO, for `step_time` and `fit --against DIR`
    run PLUGIN.so          time the step in JAX, jitted and with donated state, through the same PJRT plugin

Needs `pip install jax==0.10.2` (no accelerator); the CPU plugin supports that version's StableHLO and runtime.
"""

import argparse
import os
import pathlib
import statistics
import time

MODELS = ["mlp", "cnn", "gpt"]


def export(folder, dtypes):
    """Writes two programs per model. `NAME.start.mlir` has no arguments and returns the state and a batch.
    `NAME.step.mlir` has the arguments state (donated), rate and batch, and returns the state and the loss."""
    import jax
    import jax.numpy as jnp

    import models

    folder.mkdir(parents=True, exist_ok=True)
    for model in MODELS:
        for name, dtype in dtypes.items():
            init, step = models.make(model, getattr(jnp, dtype))
            start = jax.jit(lambda: init(jax.random.key(0)))
            state, batch = jax.eval_shape(start)
            rate = jax.ShapeDtypeStruct((), jnp.float32)
            lowered = {"start": start.lower(), "step": jax.jit(step, donate_argnums=0).lower(state, rate, batch)}
            for part, program in lowered.items():
                (folder / f"{model}-{name}.{part}.mlir").write_text(program.as_text())


def run(plugin, model, dtype, steps):
    os.environ["JAX_PLATFORMS"] = "burn_tpu_cpu"
    from jax._src import xla_bridge

    xla_bridge.register_plugin("burn_tpu_cpu", library_path=str(plugin), options={"cpu_device_count": 1})
    import jax
    import jax.numpy as jnp

    import models

    init, step = models.make(model, getattr(jnp, dtype))
    state, batch = jax.jit(lambda: init(jax.random.key(0)))()
    step = jax.jit(step, donate_argnums=0)
    times = []
    for _ in range(steps + 5):
        begun = time.perf_counter()
        state, loss = step(state, 1e-3, batch)
        jax.block_until_ready((state, loss))
        times.append(1e3 * (time.perf_counter() - begun))
    print(f"{model} {dtype}: median {statistics.median(times[5:]):.3f} ms, min {min(times[5:]):.3f} ms, loss {loss:.3f}")


def main():
    dtypes = {"f32": "float32", "bf16": "bfloat16"}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("export").add_argument("folder", type=pathlib.Path)
    timed = commands.add_parser("run")
    timed.add_argument("plugin", type=pathlib.Path)
    timed.add_argument("--model", choices=MODELS, default="gpt")
    timed.add_argument("--dtype", choices=dtypes, default="f32")
    timed.add_argument("--steps", type=int, default=50)
    args = parser.parse_args()
    if args.command == "export":
        export(args.folder, dtypes)
    else:
        run(args.plugin, args.model, dtypes[args.dtype], args.steps)


if __name__ == "__main__":
    main()
