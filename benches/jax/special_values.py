"""Writes what JAX computes of special values, as `tests/numbers/special_values/methods.rs` reads it.

    python benches/jax/special_values.py tests/numbers/special_values/jax.txt

Each line is an array, `TYPE NAME TYPE-OF-RESULT: bits bits ..`, in hexadecimal numbers. `x`, `a`, `b` and `rows` are
inputs, the other names methods of Burn's tensors, computed as Burn defines them. `x` has `[n]` special values, `a` and `b`
are every pair of some of them, flat, and `rows` has `[n, 5]`: neighbours in a shuffled list. JAX and jaxlib are of one
version, which is in the first line; the client is jaxlib's for CPUs.
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_enable_x64", True)

FLOATS = {"f32": jnp.float32, "bf16": jnp.bfloat16, "f16": jnp.float16}
INTS = {"i32": jnp.int32, "i64": jnp.int64, "u8": jnp.uint8}
TYPES = FLOATS | INTS | {"bool": jnp.bool_}
COLUMNS = 5


def bits_of(array):
    """Returns the bits of the elements, as Python's numbers."""
    array = np.asarray(array)
    if array.dtype == np.bool_:
        return [int(v) for v in array.reshape(-1)]
    return array.reshape(-1).view(f"u{array.dtype.itemsize}").tolist()


def name_of(dtype):
    return next(name for name, other in TYPES.items() if np.dtype(other) == np.dtype(dtype))


def floats(dtype):
    """Returns both signs of the special numbers of a float type, and the few that stand beside them in pairs."""
    info = jnp.finfo(dtype)
    eps, tiny = float(info.eps), float(info.tiny)
    least = float(info.smallest_subnormal)
    chosen = [0.0, tiny, float(info.max), np.inf, np.nan, 1.0, 0.5, 2.0]
    others = [least, tiny - least, 1 - eps / 2, 1 + eps, 1.5, 2.5, 3.0, 1e-4, 40.0, 100.0]
    if dtype != jnp.float16:
        others += [2147483648.0, 8388609.0, 1e-30]
    signed = lambda values: np.array([s * v for v in values for s in (1.0, -1.0)], np.float64)
    numbers = np.concatenate([signed(chosen), signed(others)]).astype(dtype)
    # numpy drops the sign of a NaN that it converts to a 16-bit type.
    numbers[9] = -numbers[8]
    return numbers, numbers[: 2 * len(chosen)]


def ints(dtype):
    info = np.iinfo(dtype)
    negative = [-1, -7] if info.min < 0 else []
    chosen = [0, 1, 3, 8, 32, 64, info.max, info.min, info.max // 2 + 1, *negative]
    others = [2, 7, 31, 63, info.max - 1, info.min + 1, *(v - 1 for v in negative)]
    values = list(dict.fromkeys(chosen + others))
    return np.array(values, dtype), np.array(list(dict.fromkeys(chosen)), dtype)


def inputs(name):
    """Returns `x`, `a`, `b` and `rows`."""
    dtype = TYPES[name]
    if name == "bool":
        numbers = chosen = np.array([False, True])
    else:
        numbers, chosen = floats(dtype) if name in FLOATS else ints(dtype)
    a, b = np.repeat(chosen, len(chosen)), np.tile(chosen, len(chosen))
    order = np.random.RandomState(7).permutation(np.tile(np.arange(len(numbers)), COLUMNS))
    return numbers, a, b, numbers[order].reshape(-1, COLUMNS)


def with_divisors_sign(rest, divisor):
    return jnp.where((rest != 0) & ((rest < 0) != (divisor < 0)), rest + divisor, rest)


def in_f32(function):
    """Returns a function of `x` or `rows` that rounds its result alone, as this backend does."""
    return lambda x: function(x.astype(jnp.float32)).astype(x.dtype)


def summed(function):
    """Same as `in_f32` for floats; sums of integers are in their own type."""
    return lambda x: in_f32(function)(x) if jnp.issubdtype(x.dtype, jnp.floating) else function(x)


# What numbers of any type have.
NUMBERS = {
    "abs": lambda i: jnp.abs(i.x),
    "sign": lambda i: jnp.sign(i.x),
    "add": lambda i: i.a + i.b,
    "sub": lambda i: i.a - i.b,
    "mul": lambda i: i.a * i.b,
    # Burn's own formulas, in which the first operand is what a NaN on either side leaves.
    "max_pair": lambda i: jnp.where(i.a < i.b, i.b, i.a),
    "min_pair": lambda i: jnp.where(i.b < i.a, i.b, i.a),
    "equal": lambda i: i.a == i.b,
    "not_equal": lambda i: i.a != i.b,
    "greater": lambda i: i.a > i.b,
    "greater_equal": lambda i: i.a >= i.b,
    "lower": lambda i: i.a < i.b,
    "lower_equal": lambda i: i.a <= i.b,
    "mask_where": lambda i: jnp.where(i.a > i.b, i.b, i.a),
    "add_one": lambda i: i.x + i.n(1),
    "times_zero": lambda i: i.x * i.n(0),
    "clamp": lambda i: lax.clamp(i.n(1), i.x, i.n(3)),
    "clamp_min_0": lambda i: lax.max(i.x, i.n(0)),
    "clamp_max_0": lambda i: lax.min(i.x, i.n(0)),
    "is_positive": lambda i: i.x > i.n(0),
    "is_zero": lambda i: i.x == i.n(0),
    "to_bool": lambda i: i.x != i.n(0),
    "to_f32": lambda i: lax.convert_element_type(i.x, jnp.float32),
    "to_bf16": lambda i: lax.convert_element_type(i.x, jnp.bfloat16),
    "to_f16": lambda i: lax.convert_element_type(i.x, jnp.float16),
    "to_i32": lambda i: lax.convert_element_type(i.x, jnp.int32),
    "to_i64": lambda i: lax.convert_element_type(i.x, jnp.int64),
    "to_u8": lambda i: lax.convert_element_type(i.x, jnp.uint8),
    "sum_dim": lambda i: summed(lambda x: jnp.sum(x, 1, dtype=x.dtype))(i.rows),
    "prod_dim": lambda i: summed(lambda x: jnp.prod(x, 1, dtype=x.dtype))(i.rows),
    "max_dim": lambda i: jnp.max(i.rows, 1),
    "min_dim": lambda i: jnp.min(i.rows, 1),
    "max_of_all": lambda i: jnp.max(i.x),
    "argmax": lambda i: lax.argmax(i.rows, 1, jnp.int32),
    "argmin": lambda i: lax.argmin(i.rows, 1, jnp.int32),
    "sort": lambda i: jnp.sort(i.rows, 1),
    "argsort": lambda i: jnp.argsort(i.rows, 1, stable=True).astype(jnp.int32),
    "cumsum": lambda i: summed(lambda x: lax.cumsum(x, 1))(i.rows),
    "cumprod": lambda i: summed(lambda x: lax.cumprod(x, 1))(i.rows),
    "cummax": lambda i: lax.cummax(i.rows, 1),
    "cummin": lambda i: lax.cummin(i.rows, 1),
}

FUNCTIONS = {
    "neg": lambda i: -i.x,
    "exp": lambda i: jnp.exp(i.x),
    "log": lambda i: jnp.log(i.x),
    "log1p": lambda i: jnp.log1p(i.x),
    "sqrt": lambda i: jnp.sqrt(i.x),
    "recip": lambda i: i.n(1) / i.x,
    "square": lambda i: i.x * i.x,
    "sin": lambda i: jnp.sin(i.x),
    "cos": lambda i: jnp.cos(i.x),
    "tan": lambda i: lax.tan(i.x),
    "sinh": lambda i: lax.sinh(i.x),
    "cosh": lambda i: lax.cosh(i.x),
    "tanh": lambda i: lax.tanh(i.x),
    "asin": lambda i: lax.asin(i.x),
    "acos": lambda i: lax.acos(i.x),
    "atan": lambda i: lax.atan(i.x),
    "asinh": lambda i: lax.asinh(i.x),
    "acosh": lambda i: lax.acosh(i.x),
    "atanh": lambda i: lax.atanh(i.x),
    "erf": lambda i: lax.erf(i.x),
    "floor": lambda i: jnp.floor(i.x),
    "ceil": lambda i: jnp.ceil(i.x),
    "round": lambda i: jnp.round(i.x),
    "trunc": lambda i: jnp.trunc(i.x),
    "is_nan": lambda i: jnp.isnan(i.x),
    "is_inf": lambda i: jnp.isinf(i.x),
    "is_finite": lambda i: jnp.isfinite(i.x),
    "div": lambda i: i.a / i.b,
    "remainder": lambda i: jnp.remainder(i.a, i.b),
    "powf": lambda i: lax.pow(i.a, i.b),
    "atan2": lambda i: lax.atan2(i.a, i.b),
    "powf_half": lambda i: lax.pow(i.x, jnp.full_like(i.x, 0.5)),
    "powf_0": lambda i: lax.pow(i.x, jnp.zeros_like(i.x)),
    "powf_minus_1": lambda i: i.n(1) / i.x,
    "powi_3": lambda i: lax.integer_pow(i.x, 3),
    "div_0": lambda i: i.x / i.n(0),
    "remainder_2": lambda i: jnp.remainder(i.x, i.n(2)),
    "relu": lambda i: lax.max(i.x, i.n(0)),
    "leaky_relu": lambda i: jax.nn.leaky_relu(i.x),
    "gelu": lambda i: in_f32(lambda x: jax.nn.gelu(x, approximate=False))(i.x),
    "sigmoid": lambda i: jax.nn.sigmoid(i.x),
    "log_sigmoid": lambda i: jax.nn.log_sigmoid(i.x),
    "silu": lambda i: in_f32(lambda x: x * jax.nn.sigmoid(x))(i.x),
    "softmax": lambda i: in_f32(lambda x: jax.nn.softmax(x, 1))(i.rows),
    "log_softmax": lambda i: in_f32(lambda x: jax.nn.log_softmax(x, 1))(i.rows),
    "mean_dim": lambda i: in_f32(lambda x: jnp.mean(x, 1))(i.rows),
    "max_abs_dim": lambda i: jnp.max(jnp.abs(i.rows), 1),
    "matmul": lambda i: jnp.matmul(
        i.rows[:8], i.rows[:8].T, preferred_element_type=jnp.float32, precision="highest"
    ).astype(i.x.dtype),
}

INTEGERS = {
    "bitwise_not": lambda i: ~i.x,
    "bitwise_and": lambda i: i.a & i.b,
    "bitwise_or": lambda i: i.a | i.b,
    "bitwise_xor": lambda i: i.a ^ i.b,
    "left_shift": lambda i: lax.shift_left(i.a, i.b),
    "right_shift": lambda i: (lax.shift_right_arithmetic if i.signed else lax.shift_right_logical)(i.a, i.b),
    "div": lambda i: lax.div(i.a, i.b),
    # NumPy's remainder of a division by zero is 0; that of XLA is the dividend.
    "remainder": lambda i: with_divisors_sign(lax.rem(i.a, i.b), i.b),
    "div_3": lambda i: lax.div(i.x, i.n(3)),
    "remainder_3": lambda i: jnp.remainder(i.x, i.n(3)),
    "square": lambda i: i.x * i.x,
}

BOOLS = {
    "bool_not": lambda i: ~i.x,
    "bool_and": lambda i: i.a & i.b,
    "bool_or": lambda i: i.a | i.b,
    "bool_xor": lambda i: i.a ^ i.b,
    "equal": lambda i: i.a == i.b,
    "not_equal": lambda i: i.a != i.b,
    "to_i32": lambda i: lax.convert_element_type(i.x, jnp.int32),
    "to_f32": lambda i: lax.convert_element_type(i.x, jnp.float32),
    "any_dim": lambda i: jnp.any(i.rows, 1),
    "all_dim": lambda i: jnp.all(i.rows, 1),
}


class Inputs:
    def __init__(self, name, arrays):
        self.x, self.a, self.b, self.rows = arrays
        self.signed = name != "u8"

    def n(self, value):
        return jnp.asarray(value, self.x.dtype)


def line(dtype, name, array):
    return f"{dtype} {name} {name_of(array.dtype)}: {' '.join(f'{v:x}' for v in bits_of(array))}\n"


def main(path):
    lines = [f"jax {jax.__version__}\n"]
    for dtype in TYPES:
        arrays = inputs(dtype)
        lines += [line(dtype, name, array) for name, array in zip(("x", "a", "b", "rows"), arrays)]
        table = BOOLS if dtype == "bool" else NUMBERS | (FUNCTIONS if dtype in FLOATS else INTEGERS)
        for name, function in table.items():
            if (dtype, name) == ("u8", "neg"):
                continue
            result = jax.jit(lambda *arrays: function(Inputs(dtype, arrays)))(*map(jnp.asarray, arrays))
            lines.append(line(dtype, name, result))
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(lines)


if __name__ == "__main__":
    main(sys.argv[1])
