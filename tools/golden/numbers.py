"""Number formats that NumPy lacks, packed integers, and the hash of a matrix of f32."""

import numpy as np

# What safetensors calls a type -> how NumPy holds its bits.
STORAGE = {"F32": np.float32, "F16": np.float16, "BF16": np.uint16, "F8_E4M3": np.uint8,
           "F8_E8M0": np.uint8, "I8": np.int8, "U8": np.uint8, "I16": np.int16, "I32": np.int32,
           "I64": np.int64}
E4M3_MAX = 448.0
HASH_STEP = np.uint64(0x9E3779B97F4A7C15)


def bf16_bits(values):
    """f32 -> bf16, to nearest even. Finite values only."""
    bits = np.asarray(values, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> np.uint64(16)) & np.uint64(1))) >> np.uint64(16)
            ).astype(np.uint16)


def bf16_values(bits):
    return (np.asarray(bits, np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)


def _e4m3_value(code):
    sign = -1.0 if code & 0x80 else 1.0
    exponent, mantissa = (code >> 3) & 15, code & 7
    if exponent == 15 and mantissa == 7:
        return float("nan")
    if exponent == 0:
        return sign * mantissa * 2.0 ** -9
    return sign * (8 + mantissa) * 2.0 ** (exponent - 10)


E4M3_VALUES = np.array([_e4m3_value(code) for code in range(256)], np.float32)


def e4m3_step(values):
    """The distance of adjacent E4M3 values around each value (ulp)."""
    magnitude = np.maximum(np.abs(np.asarray(values, np.float64)), 2.0 ** -6)
    exponent = np.frexp(magnitude)[1] - 1
    return 2.0 ** (np.minimum(exponent, 8) - 3.0)


def e4m3_round(values):
    """f64 -> the nearest E4M3 number, ties to even, saturating at +-448."""
    values = np.asarray(values, np.float64)
    step = e4m3_step(values)
    return np.clip(np.rint(values / step) * step, -E4M3_MAX, E4M3_MAX)


def e4m3_bits(values):
    """f64 -> the code of the nearest E4M3 number. The sign of a zero is kept."""
    rounded = e4m3_round(values)
    codes = np.searchsorted(E4M3_VALUES[:0x7F], np.abs(rounded).astype(np.float32))
    return (codes | (np.signbit(rounded).astype(np.int64) << 7)).astype(np.uint8)


def e4m3_values(codes):
    return E4M3_VALUES[np.asarray(codes, np.uint8)]


def e8m0_bits(values):
    """Positive values -> the code of the power of two that is no smaller."""
    fraction, exponent = np.frexp(np.asarray(values, np.float64))
    return (exponent - (fraction == 0.5) + 127).astype(np.uint8)


def e8m0_values(codes):
    """2^(code - 127). Code 255, not a number, is not taken."""
    return np.ldexp(np.float32(1), np.asarray(codes, np.int32) - 127).astype(np.float32)


def rounded_to(dtype, values):
    """f32 values that the float type `dtype` holds exactly."""
    values = np.asarray(values, np.float32)
    if dtype == "F16":
        return values.astype(np.float16).astype(np.float32)
    if dtype == "BF16":
        return bf16_values(bf16_bits(values))
    if dtype == "F8_E8M0":
        return e8m0_values(e8m0_bits(values))
    return values


def stored(dtype, values):
    """Values in the storage of `dtype`."""
    if dtype == "BF16":
        return bf16_bits(values)
    if dtype == "F8_E4M3":
        return e4m3_bits(values)
    if dtype == "F8_E8M0":
        return e8m0_bits(values)
    return np.asarray(values).astype(STORAGE[dtype])


def loaded(dtype, array):
    """The storage of a float type as f32, exactly."""
    if dtype == "BF16":
        return bf16_values(array)
    if dtype == "F8_E4M3":
        return e4m3_values(array)
    if dtype == "F8_E8M0":
        return e8m0_values(array)
    if dtype not in ("F32", "F16"):
        raise ValueError(f"{dtype} is not a float type")
    return np.asarray(array).astype(np.float32)


def words_of(values, bits):
    """Unsigned integers [L, ...] as one stream of bits along axis 0, lowest bit first, in 32-bit
    words: [ceil(L * bits / 32), ...] i32. A value may lie across two words."""
    values = np.asarray(values, np.int64)
    flat = values.reshape(values.shape[0], -1)
    stream = ((flat[:, None, :] >> np.arange(bits)[None, :, None]) & 1).reshape(-1, flat.shape[1])
    stream = np.pad(stream, ((0, -stream.shape[0] % 32), (0, 0))).reshape(-1, 32, flat.shape[1])
    words = (stream << np.arange(32)[None, :, None]).sum(1).astype(np.uint32).view(np.int32)
    return words.reshape(-1, *values.shape[1:])


def padded_words_of(values, bits):
    """As words_of(), but floor(32 / bits) values to a word and no value across two words."""
    values = np.asarray(values, np.int64)
    flat = values.reshape(values.shape[0], -1)
    per_word = 32 // bits
    flat = np.pad(flat, ((0, -flat.shape[0] % per_word), (0, 0)))
    flat = flat.reshape(-1, per_word, flat.shape[1])
    words = (flat << (bits * np.arange(per_word))[None, :, None]).sum(1)
    return words.astype(np.uint32).view(np.int32).reshape(-1, *values.shape[1:])


def hash_of(matrix):
    """Sum over the flat index i of bits_i * (i * 0x9E3779B97F4A7C15 | 1), modulo 2^64."""
    bits = np.ascontiguousarray(matrix, np.float32).reshape(-1).view(np.uint32).astype(np.uint64)
    index = np.arange(bits.size, dtype=np.uint64)
    with np.errstate(over="ignore"):
        total = (bits * ((index * HASH_STEP) | np.uint64(1))).sum(dtype=np.uint64)
    return f"{int(total):016x}"


def hex_words(values):
    return [f"{int(v):08x}" for v in np.asarray(values, np.float32).reshape(-1).view(np.uint32)]
