"""safetensors files: a minimal writer and reader."""

import json
import struct
from typing import NamedTuple

import numpy as np

from .numbers import STORAGE, loaded, stored


class Tensor(NamedTuple):
    """A safetensors type and the array of its bits (numbers.STORAGE says how)."""
    dtype: str
    array: np.ndarray

    def values(self):
        """As f32, exactly. Float types only."""
        return loaded(self.dtype, self.array)


def tensor(dtype, values):
    return Tensor(dtype, stored(dtype, values))


def write_tensors(path, tensors):
    """`tensors`: name -> Tensor. Widest elements first, so that all data is aligned."""
    header, chunks, offset = {"__metadata__": {"format": "pt"}}, [], 0
    for name in sorted(tensors, key=lambda n: (-tensors[n].array.itemsize, n)):
        dtype, array = tensors[name]
        if array.dtype != STORAGE[dtype]:
            raise ValueError(f"{name}: {array.dtype} does not store {dtype}")
        data = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<")).tobytes()
        header[name] = {"dtype": dtype, "shape": list(array.shape),
                        "data_offsets": [offset, offset + len(data)]}
        chunks.append(data)
        offset += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(chunks))


def read_tensors(path):
    data = path.read_bytes()
    begin = 8 + struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:begin])
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        first, last = entry["data_offsets"]
        array = np.frombuffer(data[begin + first:begin + last], STORAGE[entry["dtype"]])
        tensors[name] = Tensor(entry["dtype"], array.reshape(entry["shape"]))
    return tensors
