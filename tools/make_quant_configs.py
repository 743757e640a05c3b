#!/usr/bin/env python3
"""Writes testdata/fuzz/quant_config: small good and bad configurations of quantized checkpoints,
seeds of the fuzzer. The files are the same on every run; the formats' unit tests hold the messages.
"""

import json
import pathlib

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "testdata" / "fuzz" / "quant_config"
CHANNEL_8 = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel"}
TOKEN_8 = {"num_bits": 8, "type": "int", "strategy": "token", "dynamic": True}
BLOCK_F8 = {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [32, 128]}
GROUP_F8 = {"num_bits": 8, "type": "float", "strategy": "group", "group_size": 128,
            "dynamic": True}


def inside(**fields):
    return {"model_type": "llama", "quantization_config": fields}


def fp8(scheme="dynamic", **more):
    return inside(quant_method="fp8", activation_scheme=scheme, **more)


def modelopt(algorithm, **more):
    return {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": algorithm, **more}}


def group(weights, inputs=None, targets=("Linear",), **more):
    return {"targets": list(targets), "weights": weights, "input_activations": inputs, **more}


def compressed(form, *groups, **more):
    return inside(quant_method="compressed-tensors", format=form, ignore=["lm_head"],
                  config_groups={f"group_{i}": g for i, g in enumerate(groups)}, **more)


def packed(bits, **more):
    return compressed("pack-quantized", group({
        "num_bits": bits, "type": "int", "strategy": "group", "group_size": 32, **more}))


CASES = {
    "fp8_dynamic": fp8(ignored_layers=["m.dense", "re:.*w[0-9]"]),
    "fp8_static": fp8("static", modules_to_not_convert=["dense", "m.*8"]),
    "fp8_block": fp8(weight_block_size=[128, 128], fmt="e4m3"),
    "fp8_block_other": fp8(weight_block_size=[32, 128]),
    "fp8_block_zero": fp8(weight_block_size=[0, 128]),
    "fp8_no_scheme": inside(quant_method="fp8"),
    "fp8_cache": fp8(kv_cache_scheme="static"),
    "fp8_bad_expression": fp8(ignored_layers=["re:("]),
    "fp8_slow_expression": fp8(ignored_layers=["re:(.*a)*(.*b)*(.*c)*$"]),
    "fp8_in_text_config": {"text_config": fp8()},
    "modelopt_fp8": modelopt("FP8", kv_cache_quant_algo="FP8", exclude_modules=["m.w*", "*qoq*"]),
    "modelopt_token": inside(quant_method="modelopt", quant_algo="FP8_PER_CHANNEL_PER_TOKEN"),
    "modelopt_nvfp4": modelopt("NVFP4", group_size=16),
    "packed_2": packed(2, symmetric=False),
    "packed_3": packed(3, symmetric=False),
    "packed_4": packed(4, symmetric=False),
    "packed_4_order": packed(4, actorder="group"),
    "packed_5": packed(5),
    "packed_8": packed(8, symmetric=False),
    "int8_token": compressed("int-quantized", group(CHANNEL_8, TOKEN_8)),
    "int8_static": compressed("int-quantized", group(CHANNEL_8, {"num_bits": 8})),
    "float8_block": compressed("float-quantized", group(BLOCK_F8, GROUP_F8)),
    "mixed": compressed(
        "mixed-precision",
        group({"num_bits": 4, "group_size": 32, "actorder": "dynamic"}, format="pack-quantized",
              targets=["m.w4_order", "re:.*order$"]),
        group(CHANNEL_8, TOKEN_8, ["m.s8"], format="int-quantized")),
    "cache": compressed("dense", kv_cache_scheme={"type": "float", "num_bits": 8}),
    "sparse": compressed("sparse-24-bitmask", group(CHANNEL_8)),
    "transforms": compressed("int-quantized", transform_config={"config_groups": {"a": {}}}),
    "qoq_channel": {"wbits": 4, "group_size": -1},
    "qoq_group": {"quant_method": "qoq", "wbits": 4, "group_size": 128},
    "qoq_group_64": {"wbits": 4, "group_size": 64},
    "blocks": inside(quant_method="fmpq", version=1, bits=4, group_size=128, kv_bits=4,
                     modules_to_not_convert=["m.dense", "re:m\\.[fsw].*"], s4_share=0.84),
    "blocks_8_bits": inside(quant_method="fmpq", version=1, bits=8, group_size=128, kv_bits=8),
    "blocks_version_2": inside(quant_method="fmpq", version=2, bits=4, group_size=128),
    "blocks_share": inside(quant_method="fmpq", version=1, bits=4, group_size=128, kv_bits=3,
                           s4_share=-1),
    "by_input": inside(quant_method="gptq", bits=4, group_size=32, desc_act=False),
    "by_input_order": {"bits": 4, "group_size": 32, "desc_act": True, "sym": False},
    "by_input_rules": inside(quant_method="gptq", bits=4, group_size=32,
                             dynamic={"-:m\\.d.*": {}, "+:.*w8": {"bits": 8}, "(": {}}),
    "by_output": inside(quant_method="awq", bits=4, group_size=32, zero_point=True,
                        version="gemm", modules_to_not_convert=["dense"]),
    "layers": inside(quant_method="mixed", layers={
        "m.by_i*": {"quant_method": "gptq", "bits": 4, "group_size": 32},
        "re:m\\.q": {"wbits": 4}}),
    "nested": inside(quant_method="nestedfp", version=1, exceptions=["m.dense"]),
    "nested_contradiction": inside(quant_method="nestedfp", version=1, exceptions=["m.nested"]),
    "nested_version": inside(quant_method="nestedfp", version=2),
    "nested_names": inside(quant_method="nestedfp", version=1, exceptions=[1]),
    "unsupported": inside(quant_method="SqueezeLLM", wbits=4),
    "method_missing": inside(something=4),
    "method_number": inside(quant_method=4),
}


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, content in CASES.items():
        (FOLDER / f"{name}.json").write_text(json.dumps(content) + "\n")


if __name__ == "__main__":
    main()
