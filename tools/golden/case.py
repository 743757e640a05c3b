"""Makes one checkpoint: random weights, quantized, written, read back by the independent reader,
and the logits that the model must compute."""

import json
import zlib

import numpy as np

from .fmpq import Fmpq, blocks_of
from .layer import Dense
from .llama import Linear, Llama, choose_tokens, config_of, linear_shapes
from .numbers import hash_of, hex_words
from .tensor_file import read_tensors, tensor, write_tensors

NUM_TOKENS = 12
WEIGHT_DEVIATION = 0.08
FLOAT_NAMES = {"F16": "float16", "BF16": "bfloat16", "F32": "float32"}


class Case:
    """`layer_of(name)` gives the format of a linear layer. `quantization` goes into config.json
    under quantization_config; `files`: name -> JSON of further files. `inner`: the inner features
    of the MLP. `extra`: name -> further Tensor that is stored."""

    def __init__(self, name, layer_of, quantization=None, **options):
        self.name, self.quantization = name, quantization
        self.layer_of = layer_of if callable(layer_of) else lambda _: layer_of
        self.files = options.pop("files", {})
        self.inner = options.pop("inner", 256)
        self.kv_heads = options.pop("kv_heads", 1)
        self.biased = options.pop("biased", False)  # q, k, v and o have biases
        self.dtype = options.pop("dtype", "F16")
        self.extra = options.pop("extra", {})
        self.warnings = options.pop("warnings", [])
        self.note = options.pop("note", "")
        self.config = options.pop("config", {})
        self.input_scale_of = options.pop("input_scale_of", lambda name: 1.0)
        assert not options, options

    def shapes(self):
        return linear_shapes(self.inner, self.kv_heads)

    def generator(self, seed):
        return np.random.default_rng([seed, zlib.crc32(self.name.encode())])

    def dense_tensors(self, rng):
        gain = [f"model.layers.0.{n}_layernorm.weight" for n in ("input", "post_attention")]
        tensors = {name: tensor(self.dtype, 1 + 0.1 * rng.standard_normal(128))
                   for name in gain + ["model.norm.weight"]}
        tensors["model.embed_tokens.weight"] = tensor(
            self.dtype, WEIGHT_DEVIATION * rng.standard_normal((64, 128)))
        if self.biased:
            for name, shape in self.shapes().items():
                if "self_attn" in name:
                    tensors[name + ".bias"] = tensor(self.dtype,
                                                     0.2 * rng.standard_normal(shape[0]))
        return tensors

    def config_json(self):
        config = config_of(self.inner, self.kv_heads, FLOAT_NAMES[self.dtype],
                           **self.config)
        config["attention_bias"] = self.biased
        if self.quantization is not None:
            config["quantization_config"] = self.quantization
        return config

    def model_of(self, tensors, weights):
        """The Llama of these tensors with these weights of its linear layers."""
        linears = {}
        for name, matrix in weights.items():
            layer, bias = self.layer_of(name), tensors.get(name + ".bias")
            scale = tensors.get(name + ".input_scale")
            linears[name] = Linear(matrix, None if bias is None else bias.values(),
                                   layer.activation,
                                   None if scale is None else scale.values().reshape(-1)[0])
            if isinstance(layer, Fmpq):
                linears[name].blocks = blocks_of(tensors, name, matrix.shape[1])
        dense = {name: t.values() for name, t in tensors.items()
                 if name.endswith(("norm.weight", "embed_tokens.weight"))}
        return Llama(linears, dense, self.kv_heads)

    def add_input_scales(self, tensors, weights, rng):
        """Static scales from the largest inputs of a calibration text, a little too small so that
        some inputs saturate."""
        model = self.model_of(tensors, weights)
        for linear in model.linears.values():
            linear.activation = "none"
        model.logits(rng.integers(0, 64, 48))
        for name, linear in model.linears.items():
            layer = self.layer_of(name)
            if layer.static:
                top = 127 if layer.activation.startswith("s8") else 448
                scale = 0.7 * linear.seen / top * self.input_scale_of(name)
                shape = getattr(layer, "scale_shape", (1,))
                tensors[name + ".input_scale"] = tensor(layer.input_scale_dtype,
                                                        np.full(shape, scale))

    def write(self, folder, seed):
        """Writes folder/<name>/ and returns its size in bytes."""
        rng = self.generator(seed)
        tensors, weights = self.dense_tensors(rng), {}
        for name, shape in self.shapes().items():
            matrix = (WEIGHT_DEVIATION * rng.standard_normal(shape)).astype(np.float32)
            parts, weights[name] = self.layer_of(name).write(matrix, rng)
            tensors.update({f"{name}.{suffix}": part for suffix, part in parts.items()})
        self.add_input_scales(tensors, weights, rng)
        tensors.update(self.extra)
        path = folder / self.name
        path.mkdir(parents=True, exist_ok=True)
        write_tensors(path / "model.safetensors", tensors)
        for file, content in {"config.json": self.config_json(), **self.files}.items():
            (path / file).write_text(json.dumps(content, indent=1) + "\n")
        read = self.read(path, weights)
        (path / "expected.json").write_text(self.expected(path, read, rng, seed))
        return sum(file.stat().st_size for file in path.iterdir())

    def read(self, path, weights):
        """The weights as the independent reader finds them, which must be those meant."""
        tensors, read = read_tensors(path / "model.safetensors"), {}
        for name, shape in self.shapes().items():
            parts = {key[len(name) + 1:]: t for key, t in tensors.items()
                     if key.startswith(name + ".")}
            read[name] = self.layer_of(name).read(parts, shape)
            if not np.array_equal(read[name].view(np.uint32), weights[name].view(np.uint32)):
                raise AssertionError(f"{self.name}: {name} reads otherwise than written")
        return read

    def expected(self, path, weights, rng, seed):
        model = self.model_of(read_tensors(path / "model.safetensors"), weights)
        tokens = choose_tokens(model, NUM_TOKENS, rng)
        logits = model.logits(tokens)
        kinds = sorted({self.layer_of(name).activation for name in weights
                        if not isinstance(self.layer_of(name), Dense)})
        facts = {"name": self.name, "seed": seed, "note": self.note, "warnings": self.warnings,
                 "activation": kinds[0] if len(kinds) == 1 else "mixed",
                 "margin": float(f"{model.margins().min():.3g}") if kinds != ["none"] else None,
                 "tokens": tokens}
        lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in facts.items()]
        linears = []
        for name, matrix in weights.items():
            layer = self.layer_of(name)
            linears.append("  " + json.dumps({
                "name": name, "shape": list(matrix.shape), **layer.facts(),
                "quantized": not isinstance(layer, Dense), "activation": layer.activation,
                "hash": hash_of(matrix), "first": hex_words(matrix[0, :8])}))
        lines.append('"linears": [\n' + ",\n".join(linears) + "\n ]")
        rows = ["  [" + ", ".join(f"{v:.7g}" for v in row) + "]" for row in logits]
        lines.append('"logits": [\n' + ",\n".join(rows) + "\n ]")
        return "{\n " + ",\n ".join(lines) + "\n}\n"
