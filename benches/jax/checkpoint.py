"""Saves and loads the tensors of one of our checkpoints with another library, for `examples/checkpoint_cost --python`.

    python checkpoint.py {safetensors|orbax} CHECKPOINT SCRATCH

CHECKPOINT is a folder `step-…`, SCRATCH a folder that may be emptied. Prints the seconds of a save (until the bytes are on the
disk; the part that blocks; and of a load) as JSON. Needs `pip install numpy safetensors jax orbax-checkpoint`.
"""

import json
import os
import pathlib
import shutil
import sys
import time


def read(folder):
    from safetensors.numpy import load_file

    parts = sorted(folder.glob("*.safetensors"))
    return {f"{part.stem}/{name}": array.copy() for part in parts for name, array in load_file(part).items()}


def safetensors(arrays, scratch):
    from safetensors.numpy import load_file, save_file

    path = scratch / "all.safetensors"
    begun = time.perf_counter()
    save_file(arrays, path)
    with open(path, "rb") as file:
        os.fsync(file.fileno())
    saved = time.perf_counter()
    loaded = load_file(path)
    # The arrays may be views of a mapped file.
    touched = sum(float(array.reshape(-1)[0]) for array in loaded.values())
    ended = time.perf_counter()
    return {"save_s": saved - begun, "blocked_s": saved - begun, "load_s": ended - saved, "touched": touched}


def orbax(arrays, scratch):
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax
    import orbax.checkpoint as ocp

    tree = {name.replace("/", "."): jax.numpy.asarray(array) for name, array in arrays.items()}
    jax.block_until_ready(tree)
    with ocp.StandardCheckpointer() as checkpointer:
        begun = time.perf_counter()
        checkpointer.save(scratch / "orbax", tree)
        blocked = time.perf_counter()
        checkpointer.wait_until_finished()
        saved = time.perf_counter()
        loaded = checkpointer.restore(scratch / "orbax", jax.tree.map(ocp.utils.to_shape_dtype_struct, tree))
        jax.block_until_ready(loaded)
        ended = time.perf_counter()
    return {"save_s": saved - begun, "blocked_s": blocked - begun, "load_s": ended - saved}


def main():
    library, checkpoint, scratch = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]).resolve()
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    arrays = read(checkpoint)
    # What this process read and wrote before is not part of the time.
    os.sync()
    print(json.dumps({"safetensors": safetensors, "orbax": orbax}[library](arrays, scratch)))
    shutil.rmtree(scratch)


if __name__ == "__main__":
    main()
