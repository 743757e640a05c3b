#!/usr/bin/env python3
"""Goldens of Hugging Face transformers for the tiny models of the tests, as small JSON files.

testdata/models/<family>/golden_f32.json: the given checkpoint, loaded in f32 as transformers loads
it; the fields are those of golden.json, and the prompt where there is one. checkpoint_configs() has
the families whose checkpoint this tool makes too, with random f16 weights, where there is none.
testdata/model_options/<name>.json: configurations that the checkpoints do not cover. Weights are
not stored: weight_values() below and make_hash_weights() of the tests make the same ones from the
tensors' names.
testdata/demo_windows.json: the token ids of the first window of each text that golden.json of the
demo model gives the negative log likelihoods of.

Needs torch, transformers, tokenizers and safetensors. Run from the repository's root:
  tools/make_model_goldens.py [--seed 7] [--only NAME ...]
"""

import argparse
import json
import pathlib
import tempfile

import numpy
import tokenizers
import torch
import transformers
from safetensors.numpy import load_file, save_file

NUM_GREEDY = 24
MASK = (1 << 64) - 1


def fnv1a(text):
    state = 0xCBF29CE484222325
    for byte in text.encode():
        state = ((state ^ byte) * 0x100000001B3) & MASK
    return state


def weight_values(name, shape):
    """Element i from splitmix64(fnv1a(name) + i): exact in f16, the same on every machine.

    Matrices: n / 4096 with n in [-1024, 1023]. Norm weights: 1 + n / 4096 with n in [-1024, 1020],
    a multiple of 4. Biases: n / 16384."""
    count = int(numpy.prod(shape))
    state = numpy.arange(count, dtype=numpy.uint64) + numpy.uint64(fnv1a(name))
    state = state + numpy.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
    state = state ^ (state >> numpy.uint64(31))
    number = (state >> numpy.uint64(53)).astype(numpy.int64) - 1024
    if name.endswith(".bias"):
        values = number / 16384.0
    elif len(shape) == 1:
        values = 1.0 + (number - number % 4) / 4096.0
    else:
        values = number / 4096.0
    return values.astype(numpy.float32).reshape(shape)


def rounded(values):
    return [round(float(v), 6) for v in values]


def evaluate(model, input_ids, num_greedy):
    model.eval()
    with torch.no_grad():
        logits = model(torch.tensor([input_ids])).logits[0].double()
        ids = list(input_ids)
        for _ in range(num_greedy):
            ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
    return {
        "transformers": transformers.__version__,
        "input_ids": list(input_ids),
        "logits_row_0": rounded(logits[0]),
        "logits_row_last": rounded(logits[-1]),
        "argmax": [int(v) for v in logits.argmax(-1)],
        "logsumexp": rounded(torch.logsumexp(logits, -1)),
        "greedy_ids": ids[len(input_ids):],
    }


def write_json(path, value):
    path.write_text(json.dumps(value) + "\n")
    print(path)


def model_class(config):
    """Models with an image part are of another kind for transformers."""
    if "vision_config" in config:
        return transformers.AutoModelForImageTextToText
    return transformers.AutoModelForCausalLM


def load_config(folder):
    return json.loads((folder / "config.json").read_text())


def make_checkpoint(folder, config, seed):
    """Random weights, exact in f16. Embeddings are small, so that the blocks decide about the next
    token where the output layer is tied to them."""
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as given:
        (pathlib.Path(given) / "config.json").write_text(json.dumps(config))
        loaded = transformers.AutoConfig.from_pretrained(given)
    model = model_class(config).from_config(loaded, dtype=torch.float32)
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if parameter.ndim > 1:
            values = noise * (0.02 if "embed_tokens" in name else parameter.shape[-1] ** -0.5)
        else:
            is_offset = name.endswith(".bias") or config["model_type"].startswith("gemma")
            values = noise * 0.1 if is_offset else 1 + noise * 0.1
        parameter.data = values
    model.half().save_pretrained(folder)


def make_family_goldens(root, seed, only):
    parent = root / "testdata/models"
    for name, config in checkpoint_configs().items():
        if (not only or name in only) and not (parent / name).exists():
            make_checkpoint(parent / name, config, seed)
    for folder in sorted(parent.iterdir()):
        if only and folder.name not in only:
            continue
        config = load_config(folder)
        vocab_size = config.get("text_config", config)["vocab_size"]
        input_ids = random_ids(seed, vocab_size)
        if (folder / "golden.json").exists():
            input_ids = json.loads((folder / "golden.json").read_text())["input_ids"]
        model = model_class(config).from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager")
        write_json(folder / "golden_f32.json", evaluate(model, input_ids, NUM_GREEDY))


def random_ids(seed, vocab_size):
    random = numpy.random.default_rng(seed)
    return [int(v) for v in random.integers(3, vocab_size, 48)]


BASE = {"vocab_size": 96, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128,
        "bos_token_id": 1, "eos_token_id": 2, "rms_norm_eps": 1e-5}
FACTORS_SHORT = [1.0, 1.05, 1.1, 1.3, 1.5, 1.8, 2.0, 2.25]
FACTORS_LONG = [1.0, 1.2, 2.0, 3.5, 6.0, 9.0, 14.0, 20.0]
NEW, OLD = {"dtype": "float32"}, {"torch_dtype": "float32"}


def old_rope(theta, **scaling):
    fields = dict(OLD, rope_theta=theta)
    if scaling:
        fields["rope_scaling"] = scaling
    return fields


def new_rope(**parameters):
    return dict(NEW, rope_parameters=parameters)


def llama(**fields):
    return dict(BASE, model_type="llama", tie_word_embeddings=False, **fields)


def phi3(**fields):
    return dict(BASE, model_type="phi3", tie_word_embeddings=False, pad_token_id=0, **fields)


GRANITE = {"embedding_multiplier": 12.0, "attention_multiplier": 0.0625,
           "residual_multiplier": 0.22, "logits_scaling": 6.0}
# The smallest vision parts that transformers builds; no image passes through them.
SIGLIP = {"model_type": "siglip_vision_model", "hidden_size": 16, "intermediate_size": 16,
          "num_hidden_layers": 1, "num_attention_heads": 1, "image_size": 32, "patch_size": 16}
PIXTRAL = {"model_type": "pixtral", "hidden_size": 16, "intermediate_size": 16, "head_dim": 16,
           "num_hidden_layers": 1, "num_attention_heads": 1, "image_size": 32, "patch_size": 16}
QWEN_VISION = {"depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 1,
               "patch_size": 4, "spatial_merge_size": 2}


def qwen_vision(text_size, **fields):
    return dict(QWEN_VISION, out_hidden_size=text_size, **fields)


def checkpoint_configs():
    """Families whose checkpoint make_checkpoint() makes."""
    base = dict(BASE, vocab_size=384, hidden_size=128, intermediate_size=192,
                max_position_embeddings=256, pad_token_id=0)
    mrope = {"type": "mrope", "mrope_section": [4, 6, 6]}
    return {
        "smollm3": dict(base, model_type="smollm3", num_hidden_layers=4, intermediate_size=256,
                        tie_word_embeddings=True, **old_rope(2000000.0)),
        "olmo2": dict(base, model_type="olmo2", tie_word_embeddings=False, **old_rope(500000.0)),
        "olmo3": dict(base, model_type="olmo3", tie_word_embeddings=False, sliding_window=16,
                      layer_types=["sliding_attention", "full_attention"],
                      **old_rope(500000.0, rope_type="yarn", factor=4.0,
                                 original_max_position_embeddings=64)),
        "olmoe": dict(base, model_type="olmoe", tie_word_embeddings=False, num_experts=4,
                      num_experts_per_tok=2, intermediate_size=64, norm_topk_prob=False,
                      **old_rope(10000.0)),
        "granite": dict(base, model_type="granite", tie_word_embeddings=False, **GRANITE,
                        **old_rope(10000.0)),
        "granitemoe": dict(base, model_type="granitemoe", tie_word_embeddings=False,
                           num_local_experts=4, num_experts_per_tok=2, intermediate_size=128,
                           **GRANITE, **old_rope(10000.0)),
        "glm4": dict(base, model_type="glm4", tie_word_embeddings=False, head_dim=32,
                     intermediate_size=256,
                     attention_bias=True, partial_rotary_factor=0.5, **old_rope(10000.0)),
        "gemma3": {"model_type": "gemma3", "vision_config": SIGLIP, "mm_tokens_per_image": 4,
                   **OLD, "text_config": dict(
                       dict(base, intermediate_size=256), model_type="gemma3_text", head_dim=32,
                       query_pre_attn_scalar=32, rope_local_base_freq=10000.0,
                       num_hidden_layers=3, sliding_window=16, sliding_window_pattern=3,
                       **old_rope(1000000.0, rope_type="linear", factor=8.0))},
        "qwen2_5_vl": dict(base, model_type="qwen2_5_vl", tie_word_embeddings=True,
                           vision_config=qwen_vision(128, window_size=16,
                                                     fullatt_block_indexes=[0]),
                           vision_start_token_id=380, vision_end_token_id=381,
                           image_token_id=382, video_token_id=383, rope_scaling=mrope,
                           **old_rope(1000000.0)),
    }


def family_option_cases():
    """Cases of SmolLM3, OLMo, Granite and GLM."""
    return {
        "smollm3_layers": (dict(BASE, model_type="smollm3", tie_word_embeddings=False,
                                pad_token_id=0, num_hidden_layers=3, no_rope_layers=[1, 0, 1],
                                use_sliding_window=True, sliding_window=8, attention_bias=True,
                                mlp_bias=True, **new_rope(rope_type="linear", rope_theta=2000000.0,
                                                          factor=2.0)), {}),
        "smollm3_default": (dict(BASE, model_type="smollm3", pad_token_id=0, num_hidden_layers=5,
                                 **old_rope(10000.0)), {}),
        "olmo2_biases": (dict({k: v for k, v in BASE.items() if k != "num_key_value_heads"},
                              model_type="olmo2", pad_token_id=0, attention_bias=True,
                              tie_word_embeddings=True, **new_rope(
            rope_type="default", rope_theta=10000.0)), {}),
        "olmo3_default": (dict(BASE, model_type="olmo3", pad_token_id=0, num_hidden_layers=4,
                               sliding_window=8, **new_rope(
            full_attention={"rope_type": "linear", "rope_theta": 500000.0, "factor": 4.0},
            sliding_attention={"rope_type": "default", "rope_theta": 20000.0})), {}),
        "olmo3_yarn_old": (dict(BASE, model_type="olmo3", pad_token_id=0, num_hidden_layers=4,
                                sliding_window=8, **old_rope(
            500000.0, rope_type="yarn", factor=4.0, original_max_position_embeddings=32)), {}),
        "olmoe_normalized": (dict(BASE, model_type="olmoe", pad_token_id=0, num_experts=6,
                                  num_experts_per_tok=3, intermediate_size=32, norm_topk_prob=True,
                                  attention_bias=True, **old_rope(10000.0)), {}),
        "granite_biases": (dict(BASE, model_type="granite", tie_word_embeddings=False,
                                attention_bias=True, mlp_bias=True, embedding_multiplier=0.5,
                                attention_multiplier=0.25, residual_multiplier=1.7,
                                logits_scaling=0.3, rms_norm_eps=1e-2, **old_rope(10000.0)), {}),
        "granite_plain": (dict(BASE, model_type="granite", tie_word_embeddings=True,
                               **old_rope(10000.0)), {}),
        "granitemoe_biases": (dict(BASE, model_type="granitemoe", tie_word_embeddings=False,
                                   attention_bias=True, num_local_experts=5, num_experts_per_tok=3,
                                   intermediate_size=32, **GRANITE, **old_rope(10000.0)), {}),
        "glm_plain": (dict(BASE, model_type="glm", tie_word_embeddings=False, head_dim=16,
                           pad_token_id=0, attention_bias=False, **old_rope(10000.0)), {}),
        "glm4_rotary": (dict(BASE, model_type="glm4", tie_word_embeddings=True, head_dim=24,
                             pad_token_id=0, **new_rope(rope_type="default", rope_theta=10000.0,
                                                        partial_rotary_factor=0.75)), {}),
    }


def text_part_option_cases():
    """Cases of text models inside of models with an image part."""
    return {
        "mistral3_window": ({"model_type": "mistral3", "vision_config": PIXTRAL,
                             "tie_word_embeddings": False,
                             "spatial_merge_size": 1, "image_token_index": 95, **NEW,
                             "text_config": dict(BASE, model_type="mistral", sliding_window=8,
                                                 tie_word_embeddings=False, head_dim=32,
                                                 **new_rope(rope_type="default",
                                                            rope_theta=1e9))}, {}),
        "gemma3_defaults": ({"model_type": "gemma3", "vision_config": SIGLIP,
                             "mm_tokens_per_image": 4, **NEW, "text_config": {
                                 "model_type": "gemma3_text", "vocab_size": 96, "hidden_size": 64,
                                 "intermediate_size": 96, "num_hidden_layers": 2,
                                 "sliding_window": 8}}, {}),
        "qwen2_vl_nested": ({"model_type": "qwen2_vl", "tie_word_embeddings": False, **NEW,
                             "vision_config": {"depth": 1, "embed_dim": 16, "hidden_size": 64,
                                               "num_heads": 1, "patch_size": 4, "mlp_ratio": 1},
                             "text_config": dict(BASE, model_type="qwen2_vl_text", **new_rope(
                                 rope_type="default", rope_theta=1000000.0,
                                 mrope_section=[2, 3, 3]))}, {}),
        "qwen3_vl_tied": ({"model_type": "qwen3_vl", "tie_word_embeddings": True, **NEW,
                           "vision_config": qwen_vision(64, num_position_embeddings=16,
                                                        deepstack_visual_indexes=[0]),
                           "text_config": dict(BASE, model_type="qwen3_vl_text", head_dim=32,
                                               **new_rope(rope_type="default", rope_theta=500000.0,
                                                          mrope_interleaved=True,
                                                          mrope_section=[6, 5, 5]))}, {}),
    }


# name -> (config, fields of the case). num_greedy is 0 where transformers changes the frequencies
# while the text grows, which this project does not: it fixes them at load from max_length.
def option_cases():
    cases = {
        "llama_linear": (llama(**new_rope(rope_type="linear", rope_theta=10000.0, factor=4.0)), {}),
        "llama_linear_old": (llama(**old_rope(10000.0, type="linear", factor=2.5)), {}),
        "llama_llama3_old": (llama(**old_rope(
            500000.0, rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
            original_max_position_embeddings=32)), {}),
        "llama_dynamic": (dict(
            llama(**new_rope(rope_type="dynamic", rope_theta=10000.0, factor=2.0)),
            max_position_embeddings=32), {"max_length": 48, "num_greedy": 0}),
        "llama_dynamic_short": (llama(**old_rope(10000.0, type="dynamic", factor=2.0)), {}),
        "llama_yarn": (llama(**new_rope(
            rope_type="yarn", rope_theta=10000.0, factor=4.0,
            original_max_position_embeddings=32)), {}),
        "qwen2_yarn_old": (dict(BASE, model_type="qwen2", tie_word_embeddings=True,
                                use_sliding_window=False, **old_rope(
            1000000.0, type="yarn", factor=4.0, original_max_position_embeddings=32,
            beta_fast=16.0, beta_slow=2.0)), {}),
        "llama_yarn_mscale": (llama(**new_rope(
            rope_type="yarn", rope_theta=10000.0, factor=8.0, mscale=0.7, mscale_all_dim=0.4,
            truncate=False, original_max_position_embeddings=16)), {}),
        "llama_biases": (dict(llama(attention_bias=True, mlp_bias=True, head_dim=32,
                                    hidden_act="gelu", **old_rope(10000.0))), {}),
        "llama_mha_old": (dict({k: v for k, v in llama(**old_rope(10000.0)).items()
                                if k != "num_key_value_heads"}, hidden_act="gelu_new"), {}),
        "phi3_longrope_short": (phi3(original_max_position_embeddings=80, **old_rope(
            10000.0, type="longrope", short_factor=FACTORS_SHORT, long_factor=FACTORS_LONG)),
            {"max_length": 80}),
        "phi3_longrope_long": (phi3(original_max_position_embeddings=32, **old_rope(
            10000.0, type="longrope", short_factor=FACTORS_SHORT, long_factor=FACTORS_LONG)), {}),
        "phi3_partial": (phi3(original_max_position_embeddings=32, sliding_window=16, **new_rope(
            rope_type="longrope", rope_theta=10000.0, partial_rotary_factor=0.75,
            short_factor=FACTORS_SHORT[:6], long_factor=FACTORS_LONG[:6])), {}),
        "phi3_partial_old": (phi3(partial_rotary_factor=0.5, **old_rope(10000.0)), {}),
        "mistral_old": (dict(BASE, model_type="mistral", tie_word_embeddings=False,
                             sliding_window=8, **old_rope(10000.0)), {}),
        "qwen2_windows": (dict(BASE, model_type="qwen2", tie_word_embeddings=False,
                               use_sliding_window=True, sliding_window=8, max_window_layers=1,
                               **old_rope(10000.0)), {}),
        "qwen3_layer_types": (dict(BASE, model_type="qwen3", tie_word_embeddings=True, head_dim=32,
                                   attention_bias=True, use_sliding_window=True, sliding_window=8,
                                   layer_types=["sliding_attention", "full_attention"],
                                   **new_rope(rope_type="default", rope_theta=10000.0)), {}),
        "qwen3_moe_mixed": (dict(BASE, model_type="qwen3_moe", tie_word_embeddings=False,
                                 head_dim=16, num_hidden_layers=4, num_experts=6,
                                 num_experts_per_tok=3, moe_intermediate_size=32,
                                 decoder_sparse_step=2, mlp_only_layers=[1], norm_topk_prob=False,
                                 **old_rope(10000.0)), {}),
        "mixtral_window": (dict(BASE, model_type="mixtral", tie_word_embeddings=False,
                                num_local_experts=3, num_experts_per_tok=2, sliding_window=8,
                                **old_rope(1000000.0)), {}),
        "gemma2_old": (dict(BASE, model_type="gemma2", head_dim=32, query_pre_attn_scalar=24,
                            sliding_window=8, attn_logit_softcapping=20.0,
                            final_logit_softcapping=10.0, num_hidden_layers=3,
                            hidden_act="gelu_pytorch_tanh", hidden_activation="gelu_pytorch_tanh",
                            **old_rope(10000.0)), {}),
        "gemma3_pattern": (dict(BASE, model_type="gemma3_text", head_dim=32, num_hidden_layers=4,
                                query_pre_attn_scalar=32, sliding_window=8,
                                sliding_window_pattern=2, rope_local_base_freq=10000.0,
                                **old_rope(1000000.0, rope_type="linear", factor=8.0)), {}),
        "opt_untied": ({"model_type": "opt", "vocab_size": 96, "hidden_size": 64, "ffn_dim": 96,
                        "num_hidden_layers": 2, "num_attention_heads": 4, "bos_token_id": 1,
                        "eos_token_id": 2, "pad_token_id": 0, "max_position_embeddings": 128,
                        "do_layer_norm_before": True, "tie_word_embeddings": False,
                        "activation_function": "gelu", "word_embed_proj_dim": 64, **OLD}, {}),
    }
    return {**cases, **family_option_cases(), **text_part_option_cases()}


def build_with_hash_weights(config):
    """The model of `config` with weight_values(), through a checkpoint with published names."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "config.json").write_text(json.dumps(config))
        loaded = transformers.AutoConfig.from_pretrained(folder)
        model = model_class(config).from_config(loaded, dtype=torch.float32)
        model.save_pretrained(folder / "saved")
        weights = folder / "saved/model.safetensors"
        tensors = {k: weight_values(k, v.shape) for k, v in load_file(weights).items()}
        save_file(tensors, weights, metadata={"format": "pt"})
        model = model_class(config).from_pretrained(
            folder / "saved", dtype=torch.float32, attn_implementation="eager")
        return model


def make_option_goldens(root, seed, only):
    folder = root / "testdata/model_options"
    folder.mkdir(parents=True, exist_ok=True)
    for name, (config, case) in option_cases().items():
        if only and name not in only:
            continue
        input_ids = random_ids(seed, config.get("text_config", config)["vocab_size"])
        model = build_with_hash_weights(config)
        golden = evaluate(model, input_ids, case.get("num_greedy", 12))
        write_json(folder / f"{name}.json",
                   {"max_length": case.get("max_length", 0), "config": config, **golden})


def make_demo_windows(root):
    model = root / "models/demo-21m"
    tokenizer = tokenizers.Tokenizer.from_file(str(model / "tokenizer.json"))
    golden = json.loads((model / "golden.json").read_text())
    windows = {}
    for name, text in (("wikitext2_test", "wikitext2_test.txt"), ("heldout", "docs_heldout.txt")):
        content = (root / "testdata/text" / text).read_text()
        ids = tokenizer.encode(content[:20000], add_special_tokens=False).ids[:1024]
        windows[name] = {"ids": ids, "nll": golden[name]["window_nll"][0]}
    write_json(root / "testdata/demo_windows.json", windows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--only", nargs="*", default=[])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    root = pathlib.Path(__file__).resolve().parent.parent
    make_family_goldens(root, arguments.seed, arguments.only)
    make_option_goldens(root, arguments.seed, arguments.only)
    make_demo_windows(root)


if __name__ == "__main__":
    main()
