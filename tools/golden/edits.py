"""Edits that turn a good checkpoint into a bad one, and a check that each can be applied."""

import copy
import json
import math

from .numbers import STORAGE
from .tensor_file import read_tensors


def config(**patch):
    """A JSON merge patch of config.json's quantization_config."""
    return {"config": {"quantization_config": patch}}


def declaration(fields):
    """Two edits that replace config.json's quantization_config."""
    return [{"config": {"quantization_config": None}},
            {"config": {"quantization_config": fields}}]


def file(name, **patch):
    """A JSON merge patch of a further file."""
    return {"file": name, "patch": patch}


def delete(tensor):
    return {"delete": tensor}


def rename(tensor, name):
    return {"rename": [tensor, name]}


def retype(tensor, dtype):
    return {"retype": tensor, "dtype": dtype}


def reshape(tensor, shape, dtype):
    """Keeps the first bytes and adds zeros; `dtype` is the tensor's own."""
    return {"reshape": tensor, "shape": shape,
            "bytes": math.prod(shape) * STORAGE[dtype]().itemsize}


def put(tensor, offset, data):
    return {"set": tensor, "offset_bytes": offset, "hex": data}


def add(tensor, dtype, shape, fill):
    """A tensor with every element `fill`, its bytes in hexadecimal."""
    return {"add": tensor, "dtype": dtype, "shape": shape, "fill_hex": fill}


def merged(target, patch):
    """RFC 7396."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


class Checkpoint:
    """Sizes of the tensors and the JSON files of one case: enough to see that edits apply."""

    def __init__(self, folder):
        self.folder = folder
        self.sizes, self.types = {}, {}
        for name, (dtype, array) in read_tensors(folder / "model.safetensors").items():
            self.sizes[name], self.types[name] = array.nbytes, dtype
        self.config = json.loads((folder / "config.json").read_text())

    def apply(self, edit):
        """Raises KeyError or ValueError where the edit does not fit."""
        kind = next(iter(edit))
        name = edit[kind]
        if kind == "config":
            before = copy.deepcopy(self.config)
            self.config = merged(self.config, name)
            if json.dumps(before) == json.dumps(self.config):
                raise ValueError("the patch changes nothing")
        elif kind == "file":
            json.loads((self.folder / name).read_text())
        elif kind == "delete":
            del self.sizes[name]
        elif kind == "rename":
            self.sizes[name[1]] = self.sizes.pop(name[0])
            self.types[name[1]] = self.types[name[0]]
        elif kind == "retype":
            old = STORAGE[self.types[name]]().itemsize
            if old != STORAGE[edit["dtype"]]().itemsize or edit["dtype"] == self.types[name]:
                raise ValueError("not another type of the same size")
        elif kind == "reshape":
            if edit["bytes"] != math.prod(edit["shape"]) * STORAGE[self.types[name]]().itemsize:
                raise ValueError("bytes and shape differ")
        elif kind == "set":
            if edit["offset_bytes"] + len(bytes.fromhex(edit["hex"])) > self.sizes[name]:
                raise ValueError("beyond the tensor")
        elif kind == "add":
            if len(bytes.fromhex(edit["fill_hex"])) != STORAGE[edit["dtype"]]().itemsize:
                raise ValueError("fill is not one element")
            self.sizes[name] = len(bytes.fromhex(edit["fill_hex"])) * math.prod(edit["shape"])
        else:
            raise ValueError(f"unknown edit {kind}")
