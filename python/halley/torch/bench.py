"""Times of linear layers on a GPU: python -m halley.torch.bench

Prints one JSON object a line for each configuration, shape and M: the microseconds of
halley.torch, of torch.matmul in 16 bits, of GemLite where it is installed, and of the C ABI where
--c-abi names the library. A CUDA graph runs one layer after the other, of which there are so many
that their weights, 300 MB or more, do not stay in the L2 cache; the median of some replays counts.
"""
import argparse
import copy
import importlib
import importlib.util
import json
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any

import torch
from torch import nn

from halley import torch as ht

# Outputs and inputs of the layers of Llama-3-8B.
SHAPES = {"qkv": (6144, 4096), "o": (4096, 4096), "gate_up": (28672, 4096), "down": (4096, 14336)}
CONFIGS: dict[str, ht.Config] = {
    "int4": ht.Int4WeightOnlyConfig(), "int8": ht.Int8WeightOnlyConfig(group_size=128),
    "w4a8": ht.Int8DynamicActivationInt4WeightConfig(),
    "w4a8_channel": ht.Int8DynamicActivationInt4WeightConfig(group_size=None),
    "w8a8": ht.Int8DynamicActivationInt8WeightConfig(), "w4ax": ht.W4AxConfig(s8_share=1),
    "float8": ht.Float8DynamicActivationFloat8WeightConfig(), "nestedfp": ht.NestedFpConfig()}
# GemLite's closest layer: its class in gemlite.helper; those of integers take quantized weights.
GEMLITE = {"int4": "A16W4_HQQ_INT", "int8": "A16W8_HQQ_INT", "w4a8": "A8W4_HQQ_INT_dynamic",
           "w8a8": "A8W8_int8_dynamic", "float8": "A8W8_fp8_dynamic"}
_MIN_CALLS = 20
_ROTATED_BYTES = 300e6  # of the weights of all layers that run by turns
_REPLAYS = 9

Layer = Callable[[torch.Tensor], Any]


def time_layers(layers: Sequence[Layer], x: torch.Tensor) -> float:
    """Microseconds of a call, each of the next layer."""
    num_calls = -(-_MIN_CALLS // len(layers)) * len(layers)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):  # kernels are loaded, and tuned, outside the graph
        for layer in layers:
            layer(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(num_calls):
            layers[i % len(layers)](x)
    graph.replay()
    times = []
    for _ in range(_REPLAYS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times) / num_calls * 1000


def _num_copies(weight_bytes: float) -> int:
    return max(2, int(-(-_ROTATED_BYTES // weight_bytes)))


def _linear(shape: tuple[int, int], dtype: torch.dtype) -> nn.Linear:
    linear = nn.Linear(shape[1], shape[0], bias=False, dtype=dtype)
    with torch.no_grad():
        linear.weight.normal_(std=0.02)
    return linear


def _halley(config: ht.Config, linear: nn.Linear) -> ht.QuantizedLinear:
    model = nn.Sequential(linear)
    ht.quantize_(model, config)
    layer = model[0]
    assert isinstance(layer, ht.QuantizedLinear), "weights of the benchmark fit every format"
    return layer


def _gemlite(name: str, layer: ht.QuantizedLinear, linear: nn.Linear, dtype: torch.dtype) -> Layer:
    factory = getattr(importlib.import_module("gemlite.helper"), GEMLITE[name])
    if name in ("w8a8", "float8"):
        return factory(device="cuda", dtype=dtype).from_linear(linear.cuda(), del_orig=False)
    qweight, scales, zeros = layer.to_quantized()
    if name == "w4a8":  # halley.torch keeps scale * zero
        zeros = zeros / scales
    return factory(device="cuda", dtype=dtype).from_weights(qweight, scales, zeros)


class CAbi:
    """libhalley_kernels by examples/kernels/halley_kernels.py."""

    def __init__(self, library: str, example: str) -> None:
        spec = importlib.util.spec_from_file_location("halley_kernels", example)
        if spec is None or spec.loader is None:
            sys.exit(f"--c-abi-example: expected a Python file, got {example}")
        self._module: ModuleType = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self._module)
        self._library = self._module.Library(library)

    def kind(self, name: str, dtype: torch.dtype) -> int | None:
        """The kind of weight of a configuration; None: the ABI has none."""
        suffix = "_BF16" if dtype == torch.bfloat16 else "_F16"
        names = {"int4": "W4A16" + suffix, "int8": "W8A16" + suffix, "w4a8": "W4A8_GROUP",
                 "w4a8_channel": "W4A8"}
        return getattr(self._module, names[name]) if name in names else None

    def layer(self, name: str, kind: int, shape: tuple[int, int], dtype: torch.dtype) -> Layer:
        """Of random values, which take the same time."""
        num_outputs, num_inputs = shape
        group_size = num_inputs if name == "w4a8_channel" else 128
        groups = num_outputs * num_inputs // group_size
        is_s8 = name.startswith("w4a8")
        qweight = torch.randint(0, 256 if name == "int8" else 16, shape, dtype=torch.uint8).numpy()
        scales = torch.full((num_outputs if is_s8 else groups,), 0.01).numpy()
        zeros = torch.full((groups,), 128.0 if name == "int8" else 8.0).numpy()
        factors = torch.full((groups,), 8, dtype=torch.uint8).numpy() if name == "w4a8" else None
        library = self._library
        weight = library.pack(kind, num_outputs, num_inputs, group_size, qweight, scales, zeros,
                              factors)

        def run(x: torch.Tensor) -> None:
            stream = torch.cuda.current_stream().cuda_stream
            y = torch.empty(x.shape[0], num_outputs, dtype=dtype, device="cuda")
            if not is_s8:
                return library.gemm(weight, x, y, stream=stream)
            quantized = torch.empty_like(x, dtype=torch.int8)
            x_scales = torch.empty(x.shape[0], device="cuda")
            sums = torch.empty(x.shape[0], dtype=torch.int32, device="cuda")
            library.quantize_rows(x, quantized, x_scales, sums, stream)
            return library.gemm(weight, quantized, y, x_scales, sums, stream=stream)
        return run


def measure(name: str, shape: tuple[int, int], sizes: Sequence[int], dtype: torch.dtype,
            c_abi: CAbi | None) -> Iterator[dict[str, Any]]:
    """One result for each M of `sizes`."""
    num_outputs, num_inputs = shape
    linear = _linear(shape, dtype)
    first = _halley(CONFIGS[name], linear)
    num_copies = _num_copies(first.qweight.nbytes)
    layers: dict[str, list[Layer]] = {
        "halley": [copy.deepcopy(first).cuda() for _ in range(num_copies)],
        "torch.matmul": [_linear(shape, dtype).cuda()
                         for _ in range(_num_copies(num_outputs * num_inputs * 2))]}
    if name in GEMLITE and importlib.util.find_spec("gemlite") is not None:
        layers["gemlite"] = [_gemlite(name, first, linear, dtype) for _ in range(num_copies)]
    kind = None if c_abi is None else c_abi.kind(name, dtype)
    if c_abi is not None and kind is not None:
        layers["c_abi"] = [c_abi.layer(name, kind, shape, dtype) for _ in range(num_copies)]
    for num_rows in sizes:
        x = torch.randn(num_rows, num_inputs, dtype=dtype, device="cuda")
        times = {}
        with torch.no_grad():
            for candidate, candidates in layers.items():
                times[candidate] = round(time_layers(candidates, x), 2)
        yield {"config": name, "N": num_outputs, "K": num_inputs, "M": num_rows,
               "dtype": str(dtype).removeprefix("torch."), "microseconds": times}


def _shape_of(text: str) -> tuple[int, int]:
    """Of a name in SHAPES, or NxK."""
    if text in SHAPES:
        return SHAPES[text]
    num_outputs, times, num_inputs = text.partition("x")
    if not times or not num_outputs.isdigit() or not num_inputs.isdigit():
        sys.exit(f"--shapes: expected some of {', '.join(SHAPES)}, or NxK, got {text!r}.")
    return int(num_outputs), int(num_inputs)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m halley.torch.bench", description=__doc__)
    parser.add_argument("--configs", default="int4,int8,w4a8,w8a8,w4ax,float8,nestedfp",
                        help=f"of {', '.join(CONFIGS)}")
    parser.add_argument("--shapes", default=",".join(SHAPES),
                        help=f"of {', '.join(SHAPES)}, or NxK")
    parser.add_argument("--rows", default="1,16,64,256", help="rows of x (M)")
    parser.add_argument("--dtype", default="float16", choices=("float16", "bfloat16"))
    parser.add_argument("--c-abi", help="path of libhalley_kernels.so")
    parser.add_argument("--c-abi-example", default="examples/kernels/halley_kernels.py",
                        help="path of the ABI's module for Python")
    options = parser.parse_args()
    unknown = set(options.configs.split(",")) - set(CONFIGS)
    if unknown:
        parser.error(f"--configs: expected some of {', '.join(CONFIGS)}, got "
                     f"{', '.join(sorted(unknown))}")
    if not torch.cuda.is_available():
        sys.exit("halley.torch.bench: expected a GPU, got none that PyTorch can use.")
    c_abi = CAbi(options.c_abi, options.c_abi_example) if options.c_abi else None
    device = torch.cuda.get_device_name()
    for name in options.configs.split(","):
        for text in options.shapes.split(","):
            rows = [int(number) for number in options.rows.split(",")]
            dtype = getattr(torch, options.dtype)
            for result in measure(name, _shape_of(text), rows, dtype, c_abi):
                print(json.dumps({**result, "device": device}), flush=True)
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
