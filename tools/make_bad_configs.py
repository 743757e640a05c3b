#!/usr/bin/env python3
"""Writes testdata/fuzz/config: small good and bad configurations, one case each.

The files are the same on every run. They seed the fuzzer, and config_corpus_test.cc says of each
what message it must give.
"""

import json
import pathlib

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "testdata" / "fuzz" / "config"

LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16",
    "hidden_size": 64, "num_hidden_layers": 2, "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-05, "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": [2, 3],
}


def llama(**more):
    return json.dumps({**LLAMA, **more}, indent=1)


def rope(**parameters):
    return json.dumps({"rope_scaling": parameters})


LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8192}
CASES = {
    "good_older": llama(rope_theta=500000.0, rope_scaling=LLAMA3),
    "good_newer": llama(rope_parameters={**LLAMA3, "rope_theta": 500000.0}),
    "good_layer_types": llama(rope_parameters={
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}),
    "good_longrope": llama(original_max_position_embeddings=4096, rope_scaling={
        "type": "su", "short_factor": [1.0, 1.25], "long_factor": [2.5, 64.0]}),
    "good_yarn": llama(rope_scaling={
        "type": "yarn", "factor": 40, "beta_fast": 32, "beta_slow": 1, "mscale": 0.707,
        "mscale_all_dim": 0, "truncate": False, "original_max_position_embeddings": 4096}),
    "good_mrope": llama(rope_scaling={"type": "mrope", "mrope_section": [16, 24, 24]}),
    "good_nested": json.dumps({"model_type": "gemma3", "text_config": LLAMA}),
    "good_generation": json.dumps({"eos_token_id": 2, "do_sample": True, "temperature": 0.6,
                                   "top_p": 0.9, "top_k": 20, "repetition_penalty": 1.05}),
    "good_nulls": llama(rope_scaling=None, eos_token_id=None, torch_dtype=None),
    "empty": "",
    "array": "[]",
    "cut": llama()[:100],
    "depth_bomb": '{"a":' * 2000,
    "duplicate_field": '{"hidden_size": 1, "hidden_size": 2}',
    "nan": '{"rope_theta": NaN}',
    "infinite_by_digits": '{"rope_theta": 1e400}',
    "not_utf8": b'{"model_type": "\xff"}',
    "theta_string": llama(rope_theta="10000"),
    "theta_zero": llama(rope_theta=0),
    "scaling_string": llama(rope_scaling="linear"),
    "scaling_layer_type_missing": llama(rope_parameters={"sliding_attention": {}}),
    "scaling_type_number": rope(type=1),
    "factor_negative": rope(rope_type="linear", factor=-2),
    "factor_huge": rope(rope_type="linear", factor=1e300),
    "original_length_zero": rope(rope_type="llama3", original_max_position_embeddings=0),
    "original_length_huge": rope(rope_type="llama3", original_max_position_embeddings=2**63),
    "long_factor_zero": rope(rope_type="longrope", long_factor=[1, 0]),
    "long_factor_string": rope(rope_type="longrope", long_factor=["1"]),
    "long_factor_long": rope(rope_type="longrope", long_factor=[1] * 1025),
    "eos_negative": llama(eos_token_id=-1),
    "eos_large": llama(eos_token_id=[2**31]),
    "eos_string": llama(eos_token_id="</s>"),
    "top_p_above_1": json.dumps({"top_p": 1.5}),
    "temperature_negative": json.dumps({"temperature": -1}),
}


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    for path in FOLDER.glob("*.json"):
        if path.stem not in CASES:
            path.unlink()
    for name, content in CASES.items():
        data = content if isinstance(content, bytes) else content.encode()
        (FOLDER / f"{name}.json").write_bytes(data)


if __name__ == "__main__":
    main()
