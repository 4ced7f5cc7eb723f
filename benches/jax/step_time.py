"""The JAX programs that `examples/step_time` and `examples/fit` compare with.

    export DIR             write each model's start and step as StableHLO, for `step_time` and `fit --against DIR`;
                           with `--mesh data=2,fsdp=4 --fsdp fsdp` split over a mesh, as `fit --mesh … --fsdp …` does
    run [PLUGIN.so]        time the step in JAX, jitted and with donated state, through the same PJRT plugin; without one,
                           on the platform that JAX finds

Needs `pip install jax==0.10.2` (no accelerator); the CPU plugin supports that version's StableHLO and runtime.
"""

import argparse
import math
import os
import pathlib
import statistics
import time

MODELS = ["mlp", "cnn", "gpt"]


def export(args, dtypes):
    """Writes two programs per model. `NAME.start.mlir` has no arguments and returns the state and a batch.
    `NAME.step.mlir` has the arguments state (donated), rate and batch, and returns the state and the loss. A model of
    photographs has `NAME.infer.mlir` too, which has the arguments weights and photographs, and returns the logits."""
    mesh = args.mesh or {}
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={math.prod(mesh.values())}"
    import jax
    import jax.numpy as jnp

    import layouts
    import models

    folder = args.folder
    folder.mkdir(parents=True, exist_ok=True)
    models.GPT.update({size: value for size in models.GPT if (value := getattr(args, size)) is not None})
    layout = layouts.Layout(mesh, args.fsdp, args.tensor) if mesh else None
    for model in args.models:
        for name, dtype in dtypes.items():
            init, step = models.make(model, getattr(jnp, dtype))
            start = lambda: init(jax.random.key(0))
            state, batch = jax.eval_shape(start)
            rate = jax.ShapeDtypeStruct((), jnp.float32)
            start_placed, step_placed = {}, {}
            if layout:
                state_at, batch_at, whole = layout.state(state), layout.batch(batch), layout.of()
                start_placed = {"out_shardings": (state_at, batch_at)}
                step_placed = {"in_shardings": (state_at, whole, batch_at), "out_shardings": (state_at, whole)}
            step = jax.jit(step, donate_argnums=0, **step_placed)
            lowered = {"start": jax.jit(start, **start_placed).lower(), "step": step.lower(state, rate, batch)}
            for part, program in lowered.items():
                (folder / f"{model}-{name}.{part}.mlir").write_text(program.as_text())
            if model in models.PHOTO_LOGITS and not layout:
                init, infer = models.make_inference(model, getattr(jnp, dtype))
                given = jax.eval_shape(lambda: init(jax.random.key(0)))
                (folder / f"{model}-{name}.infer.mlir").write_text(jax.jit(infer).lower(*given).as_text())


def axes(text):
    """Parses `data=2,fsdp=4`."""
    pairs = [part.split("=") for part in text.split(",")]
    return {name: int(size) for name, size in pairs}


def run(plugin, model, dtype, steps):
    if plugin:
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
    exported = commands.add_parser("export")
    exported.add_argument("folder", type=pathlib.Path)
    exported.add_argument("--mesh", type=axes, help="the axes of a mesh, as data=2,fsdp=4")
    exported.add_argument("--fsdp", help="split parameters and their state over this axis")
    exported.add_argument("--tensor", help="split the heads and hidden layers of the gpt over this axis")
    exported.add_argument("--models", type=lambda text: text.split(","), default=MODELS, help="also resnet50, vit-b16 and convnext-t: large")
    for size in ["layers", "width", "heads", "feed_forward", "sequence", "batch", "vocabulary"]:
        exported.add_argument(f"--{size}", type=int, help="of the gpt")
    timed = commands.add_parser("run")
    timed.add_argument("plugin", type=pathlib.Path, nargs="?")
    timed.add_argument("--model", choices=MODELS, default="gpt")
    timed.add_argument("--dtype", choices=dtypes, default="f32")
    timed.add_argument("--steps", type=int, default=50)
    args = parser.parse_args()
    if args.command == "export":
        export(args, dtypes)
    else:
        run(args.plugin, args.model, dtypes[args.dtype], args.steps)


if __name__ == "__main__":
    main()
