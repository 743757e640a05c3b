#!/usr/bin/env python3
"""GGUF files of the tests, written with the Python package gguf.

testdata/gguf/types.gguf: for each type a tensor of random blocks and, as F32, what the package
dequantizes them to.
testdata/gguf/<family>.gguf: the checkpoint testdata/models/<family>, so that its goldens are those
of the file. Names, metadata and changes of values are those of llama.cpp's converter.
testdata/gguf/tokenizer_<kind>.gguf: the vocabularies of testdata/tokenizers, without tensors.
testdata/gguf/quantized.gguf: a llama with matrices of seven types, and quantized.json: what
transformers computes in f32 with the weights that they are.
testdata/gguf/split-*.gguf: quantized.gguf in parts.
testdata/fuzz/gguf/: small good and bad files.

Needs gguf (0.19), numpy, safetensors and sentencepiece; quantized.json torch and transformers too.
Run from the repository's root:
  tools/make_gguf_goldens.py [--seed 5] [--only NAME ...]
"""

import argparse
import json
import pathlib
import struct

import gguf
import numpy
from safetensors.numpy import load_file, save_file

Type = gguf.GGMLQuantizationType
QUANTIZED = [
    "Q4_0",
    "Q4_1",
    "Q5_0",
    "Q5_1",
    "Q8_0",
    "Q2_K",
    "Q3_K",
    "Q4_K",
    "Q5_K",
    "Q6_K",
    "IQ4_NL",
    "IQ4_XS",
    "MXFP4",
]
# Offsets of the f16 scales in a block; their bits are drawn so that they are finite.
HALVES = {
    "Q4_0": [0],
    "Q4_1": [0, 2],
    "Q5_0": [0],
    "Q5_1": [0, 2],
    "Q8_0": [0],
    "Q2_K": [80, 82],
    "Q3_K": [108],
    "Q4_K": [0, 2],
    "Q5_K": [0, 2],
    "Q6_K": [208],
    "IQ4_NL": [0],
    "IQ4_XS": [0],
    "MXFP4": [],
}
OUT = pathlib.Path("testdata/gguf")
FAMILIES = {
    "llama": "llama",
    "llama_mha_tied": "llama",
    "mistral_swa": "llama",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "qwen3_moe": "qwen3moe",
    "gemma2": "gemma2",
    "gemma3_text": "gemma3",
    "phi3": "phi3",
    "smollm3": "smollm3",
    "olmo2": "olmo2", "olmo3": "olmo2",
    "granite": "granite",
    "glm4": "glm4",
    "qwen2_5_vl": "qwen2vl",
}
PAIRED = ("llama", "smollm3", "granite")
STEMS = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.qkv_proj": "attn_qkv",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.gate_up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "mlp.gate": "ffn_gate_inp",
}
GEMMA_STEMS = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
OLMO_STEMS = {k: v for k, v in GEMMA_STEMS.items() if k.startswith("post_")}
GLM_STEMS = {"post_self_attn_layernorm": "post_attention_norm",
             "post_mlp_layernorm": "post_ffw_norm"}
FAMILY_STEMS = {"gemma2": GEMMA_STEMS, "gemma3": GEMMA_STEMS, "olmo2": OLMO_STEMS,
                "glm4": GLM_STEMS}
OUTER = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
}


def random_blocks(generator, name, num_rows, num_columns):
    """Random bits; scales that are finite and in the range of real ones."""
    block_values, block_bytes = gguf.GGML_QUANT_SIZES[Type[name]]
    num_blocks = num_columns // block_values
    blocks = generator.integers(
        0, 256, (num_rows, num_blocks, block_bytes), dtype=numpy.uint8
    )
    for offset in HALVES[name]:
        values = generator.standard_normal((num_rows, num_blocks, 1)) * 0.01
        blocks[:, :, offset : offset + 2] = values.astype(numpy.float16).view(numpy.uint8)
    if name == "MXFP4":
        exponents = generator.integers(100, 140, (num_rows, num_blocks))
        exponents[0, :4] = [0, 1, 2, 200]
        blocks[:, :, 0] = exponents
    if name in ("Q4_0", "Q8_0"):
        blocks[0, 0, :2] = 0  # a block of zeros
    return blocks.reshape(num_rows, num_blocks * block_bytes)


def make_types(seed):
    generator = numpy.random.default_rng(seed)
    writer = gguf.GGUFWriter(OUT / "types.gguf", "llama")
    num_rows, num_columns = 3, 512
    values = generator.standard_normal((num_rows, num_columns)).astype(numpy.float32)
    dense = {
        "F32": values,
        "F16": values.astype(numpy.float16),
        "BF16": gguf.quants.quantize(values, Type.BF16),
    }
    for index, name in enumerate(list(dense) + QUANTIZED):
        data = dense.get(name)
        if data is None:
            data = random_blocks(generator, name, num_rows, num_columns)
        writer.add_tensor(f"blk.{index}.ffn_up.weight", data, raw_dtype=Type[name])
        expected = gguf.quants.dequantize(data, Type[name]).astype(numpy.float32)
        writer.add_tensor(f"blk.{index}.ffn_gate.weight", expected)
        writer.add_string(f"test.type.{index}", name)
    write(writer)


def write(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def pair_rows(weight, num_heads):
    """Rows (head, half, j) to (head, j, half): llama.cpp rotates neighbours."""
    shape = weight.shape
    halves = weight.reshape(num_heads, 2, shape[0] // num_heads // 2, *shape[1:])
    return halves.swapaxes(1, 2).reshape(shape)


def gguf_tensors(config, family, tensors):
    """The tensors with the names and values of llama.cpp's converter; experts are stacked."""
    is_gemma = family.startswith("gemma")
    stems = {**STEMS, **FAMILY_STEMS.get(FAMILIES[family], {})}
    experts = {}
    result = {}
    for name, value in tensors.items():
        stem, _, ending = name.rpartition(".")
        if name.startswith("visual."):
            continue
        if stem in OUTER:
            result[f"{OUTER[stem]}.{ending}"] = value
            continue
        _, _, layer, inner = stem.split(".", 3)
        if ".experts." in inner:
            _, _, expert, projection = inner.split(".")
            kind = f"ffn_{projection.removesuffix('_proj')}_exps"
            experts.setdefault(f"blk.{layer}.{kind}.weight", {})[int(expert)] = value
            continue
        if FAMILIES[family] in PAIRED and inner in ("self_attn.q_proj", "self_attn.k_proj"):
            is_q = inner.endswith("q_proj")
            value = pair_rows(
                value, config["num_attention_heads" if is_q else "num_key_value_heads"]
            )
        result[f"blk.{layer}.{stems[inner]}.{ending}"] = value
    for name, parts in experts.items():
        result[name] = numpy.stack([parts[index] for index in range(len(parts))])
    for name, value in result.items():
        if name.endswith("norm.weight"):
            result[name] = value.astype(numpy.float32) + numpy.float32(is_gemma)
        elif value.ndim == 1:
            result[name] = value.astype(numpy.float32)
    return result


def rope_theta(config):
    rope = config.get("rope_parameters") or {}
    if "full_attention" in rope:
        rope = rope["full_attention"]
    return rope.get("rope_theta", config.get("rope_theta", 10000.0))


def rope_factors(config):
    """What llama.cpp's converter makes of Llama 3.1's scaling: divisors of the frequencies."""
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if rope.get("rope_type") != "llama3":
        return None
    head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    trained = rope["original_max_position_embeddings"]
    low, high, factor = rope["low_freq_factor"], rope["high_freq_factor"], rope["factor"]
    factors = []
    for i in range(0, head_dim, 2):
        wavelength = 2 * numpy.pi * rope_theta(config) ** (i / head_dim)
        if wavelength < trained / high:
            factors.append(1)
        elif wavelength > trained / low:
            factors.append(factor)
        else:
            smooth = (trained / wavelength - low) / (high - low)
            factors.append(1 / ((1 - smooth) / factor + smooth))
    return numpy.array(factors, dtype=numpy.float32)


def add_metadata(writer, config, family):
    if (factors := rope_factors(config)) is not None:
        writer.add_tensor("rope_freqs.weight", factors)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(rope_theta(config))
    head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    rope = config.get("rope_parameters") or {}
    rotary = rope.get("partial_rotary_factor", 1) if family == "glm4" else 1
    writer.add_rope_dimension_count(int(head_dim * rotary))
    if config.get("head_dim"):
        writer.add_key_length(head_dim)
        writer.add_value_length(head_dim)
    if family in ("gemma2", "gemma3_text", "mistral_swa", "olmo3"):
        writer.add_sliding_window(config["sliding_window"])
    if family == "gemma2":
        writer.add_attn_logit_softcapping(config["attn_logit_softcapping"])
        writer.add_final_logit_softcapping(config["final_logit_softcapping"])
    if family == "qwen3_moe":
        writer.add_expert_count(config.get("num_experts") or config["num_local_experts"])
        writer.add_expert_used_count(config["num_experts_per_tok"])
        writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    if family == "olmo3":
        yarn = rope["full_attention"]
        writer.add_sliding_window_pattern([t == "sliding_attention" for t in config["layer_types"]])
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(yarn["factor"])
        writer.add_rope_scaling_orig_ctx_len(yarn["original_max_position_embeddings"])
    if family == "granite":
        writer.add_attention_scale(config["attention_multiplier"])
        writer.add_embedding_scale(config["embedding_multiplier"])
        writer.add_residual_scale(config["residual_multiplier"])
        writer.add_logit_scale(config["logits_scaling"])
    if family == "qwen2_5_vl":
        writer.add_rope_dimension_sections([*rope["mrope_section"], 0])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)


def make_model(family):
    folder = pathlib.Path("testdata/models") / family
    config = json.loads((folder / "config.json").read_text())
    config = config.get("text_config", config)
    tensors = gguf_tensors(config, family, load_file(folder / "model.safetensors"))
    writer = gguf.GGUFWriter(OUT / f"{family}.gguf", FAMILIES[family])
    add_metadata(writer, config, family)
    for name, value in tensors.items():
        writer.add_tensor(name, numpy.ascontiguousarray(value))
    write(writer)


def make_quantized(seed):
    """A llama with a type for each matrix, and what transformers computes with those weights."""
    import make_model_goldens  # torch and transformers are needed here alone
    import tempfile

    import torch
    import transformers

    generator = numpy.random.default_rng(seed)
    folder = pathlib.Path("testdata/models/llama")
    config = json.loads((folder / "config.json").read_text())
    writer = gguf.GGUFWriter(OUT / "quantized.gguf", "llama")
    add_metadata(writer, config, "llama")
    types = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"]
    weights = {}
    for index, (name, value) in enumerate(load_file(folder / "model.safetensors").items()):
        value = value.astype(numpy.float32)
        kind = Type.F32
        if "down_proj" in name:  # the only matrices with whole super-blocks
            kind = Type.Q4_K if ".0." in name else Type.Q6_K
            value = random_blocks(generator, kind.name, *value.shape)
        elif value.ndim > 1:
            kind = Type.Q8_0 if "embed" in name or "head" in name else Type[types[index % 5]]
            value = gguf.quants.quantize(value, kind)
        weights[name] = gguf.quants.dequantize(value, kind).astype(numpy.float32)
        for stored_name, rows in gguf_tensors(config, "llama", {name: value}).items():
            writer.add_tensor(stored_name, numpy.ascontiguousarray(rows), raw_dtype=kind)
    write(writer)
    with tempfile.TemporaryDirectory() as target:
        save_file(weights, pathlib.Path(target) / "model.safetensors", metadata={"format": "pt"})
        config["dtype"] = "float32"
        rope = config["rope_parameters"]  # as transformers before 5 reads it
        config.update({"rope_theta": rope["rope_theta"], "rope_scaling": rope})
        (pathlib.Path(target) / "config.json").write_text(json.dumps(config))
        model = transformers.AutoModelForCausalLM.from_pretrained(
            target, dtype=torch.float32, attn_implementation="eager")
        given = json.loads((folder / "golden.json").read_text())
        golden = make_model_goldens.evaluate(model, given["input_ids"], 24)
    (OUT / "quantized.json").write_text(json.dumps(golden) + "\n")


def add_bpe(writer, folder, pre):
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    vocab = dict(tokenizer["model"]["vocab"])
    types = {}
    for token in tokenizer["added_tokens"]:
        # Stripping and single words cannot be said in GGUF.
        if token["lstrip"] or token["rstrip"] or token["single_word"] or token["normalized"]:
            continue
        vocab[token["content"]] = token["id"]
        is_special = token["special"]
        types[token["id"]] = (
            gguf.TokenType.CONTROL if is_special else gguf.TokenType.USER_DEFINED
        )
    by_id = {index: token for token, index in vocab.items()}
    count = max(by_id) + 1
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list([by_id.get(i, f"[PAD{i}]") for i in range(count)])
    for i in range(count):
        types.setdefault(i, gguf.TokenType.NORMAL if i in by_id else gguf.TokenType.UNUSED)
    writer.add_token_types([types[i] for i in range(count)])
    merges = tokenizer["model"]["merges"]
    writer.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in merges])
    bos = vocab.get("<|begin_of_text|>")
    if bos is not None:
        writer.add_bos_token_id(bos)
    writer.add_chat_template("{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}")


def add_spm(writer, folder):
    import sentencepiece

    spm = sentencepiece.SentencePieceProcessor(str(folder / "tokenizer.model"))
    count = spm.get_piece_size()
    types = []
    for i in range(count):
        kinds = [
            (spm.is_unknown(i), gguf.TokenType.UNKNOWN),
            (spm.is_control(i), gguf.TokenType.CONTROL),
            (spm.is_unused(i), gguf.TokenType.UNUSED),
            (spm.is_byte(i), gguf.TokenType.BYTE),
        ]
        types.append(next((kind for holds, kind in kinds if holds), gguf.TokenType.NORMAL))
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([spm.id_to_piece(i) for i in range(count)])
    writer.add_token_scores([spm.get_score(i) for i in range(count)])
    writer.add_token_types(types)
    writer.add_bos_token_id(spm.bos_id())
    writer.add_eos_token_id(spm.eos_id())
    writer.add_unk_token_id(spm.unk_id())


def make_tokenizer(kind):
    writer = gguf.GGUFWriter(OUT / f"tokenizer_{kind}.gguf", "llama")
    tokenizers = pathlib.Path("testdata/tokenizers")
    if kind == "spm":
        add_spm(writer, tokenizers / "spm_own/bpe")
    else:
        add_bpe(writer, tokenizers / f"{kind}_style", "qwen2" if kind == "qwen2" else "llama-bpe")
    write(writer)


def text(value):
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(data)) + data


def entry(key, kind, payload):
    return text(key) + struct.pack("<I", kind) + payload


def tensor(name, shape, kind, offset):
    sizes = b"".join(struct.pack("<Q", size) for size in shape)
    return text(name) + struct.pack("<I", len(shape)) + sizes + struct.pack("<IQ", kind, offset)


def small_file(entries=(), tensors=(), data=b"", version=3, counts=None):
    num_tensors, num_entries = counts or (len(tensors), len(entries))
    header = b"GGUF" + struct.pack("<IQQ", version, num_tensors, num_entries)
    header += b"".join(entries) + b"".join(tensors)
    return header + b"\0" * (-len(header) % 32) + data


def bad_files():
    """File name to bytes; the names say what is wrong."""
    arch = entry("general.architecture", 8, text("llama"))
    one = tensor("a", [32], 2, 0)
    block = b"\0" * 18
    huge = (1 << 64) - 1
    return {
        "good": small_file([arch], [one], block),
        "good_empty": small_file(),
        "magic": b"GGML" + small_file()[4:],
        "empty_file": b"",
        "version_1": small_file(version=1),
        "big_endian": small_file(version=3 << 24),
        "cut_header": small_file([arch], [one], block)[:40],
        "cut_data": small_file([arch], [one], block)[:-1],
        "many_tensors": small_file(counts=(huge, 0)),
        "many_entries": small_file(counts=(0, huge)),
        "long_key": small_file([struct.pack("<Q", huge)]),
        "long_string": small_file([text("k") + struct.pack("<IQ", 8, huge)]),
        "long_array": small_file([text("k") + struct.pack("<IIQ", 9, 4, huge)]),
        "long_strings": small_file([text("k") + struct.pack("<IIQ", 9, 8, huge)]),
        "array_of_arrays": small_file([text("k") + struct.pack("<IIQ", 9, 9, 1)]),
        "value_type": small_file([text("k") + struct.pack("<I", 13)]),
        "key_twice": small_file([arch, arch]),
        "alignment": small_file([entry("general.alignment", 4, struct.pack("<I", 24))]),
        "alignment_0": small_file([entry("general.alignment", 4, struct.pack("<I", 0))]),
        "alignment_type": small_file([entry("general.alignment", 8, text("32"))]),
        "split": small_file([entry("split.count", 2, struct.pack("<H", 3))]),
        "no_dimensions": small_file([], [tensor("a", [], 0, 0)]),
        "five_dimensions": small_file([], [tensor("a", [1] * 5, 0, 0)]),
        "size_0": small_file([], [tensor("a", [0], 0, 0)]),
        "size_overflow": small_file([], [tensor("a", [1 << 62, 1 << 62], 0, 0)]),
        "size_negative": small_file([], [tensor("a", [huge], 0, 0)]),
        "tensor_type": small_file([], [tensor("a", [32], 99, 0)]),
        "tensor_type_known": small_file([], [tensor("a", [256], 16, 0)]),
        "part_of_a_block": small_file([], [tensor("a", [33], 2, 0)], block),
        "offset_behind": small_file([], [tensor("a", [32], 2, 1 << 40)], block),
        "offset_overflow": small_file([], [tensor("a", [32], 2, huge - 31)], block),
        "offset_unaligned": small_file([], [tensor("a", [32], 2, 8)], block + block),
        "overlap": small_file([], [one, tensor("b", [32], 2, 0)], block),
        "name_twice": small_file([], [one, tensor("a", [32], 2, 32)], block * 3),
    }


def make_bad_files():
    folder = pathlib.Path("testdata/fuzz/gguf")
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in bad_files().items():
        (folder / name).write_bytes(data)


def make_split():
    """The parts have ten tensors at most; the first has all metadata."""
    reader = gguf.GGUFReader(OUT / "quantized.gguf")
    writer = gguf.GGUFWriter(OUT / "split.gguf", "llama", split_max_tensors=10)
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        is_array = field.types[0] == gguf.GGUFValueType.ARRAY
        writer.add_key_value(field.name, field.contents(), field.types[0],
                             sub_type=field.types[-1] if is_array else None)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--only", nargs="*")
    options = parser.parse_args()
    OUT.mkdir(exist_ok=True)
    makers = {
        "types": lambda: make_types(options.seed),
        "quantized": lambda: make_quantized(options.seed),
        "split": make_split,
        "bad": make_bad_files,
    }
    for family in FAMILIES:
        makers[family] = lambda family=family: make_model(family)
    for kind in ("qwen2", "llama3", "spm"):
        makers[f"tokenizer_{kind}"] = lambda kind=kind: make_tokenizer(kind)
    for name, make in makers.items():
        if not options.only or name in options.only:
            make()


if __name__ == "__main__":
    main()
