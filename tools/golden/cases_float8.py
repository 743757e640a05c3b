"""The FP8, FP4, compressed-tensors and QoQ checkpoints."""

import numpy as np

from .case import Case
from .cases_gptq import without_o_proj
from .compressed import Int8, Packed
from .float4 import Float4
from .float8 import Float8
from .fmpq import FMPQ_CONFIG, Fmpq
from .layer import Dense
from .llama import LAYER
from .qoq import Qoq
from .tensor_file import tensor


def kv_scales(dtype, shape, names):
    values = {name: 0.0123 + 0.004 * i for i, name in enumerate(names)}
    return {LAYER + "self_attn." + name: tensor(dtype, np.full(shape, value))
            for name, value in values.items()}


def fp8_config(scheme="dynamic", **more):
    return {"quant_method": "fp8", "activation_scheme": scheme, **more}


# Calibrated apart, so layers that a loader would like to join differ.
INPUT_SCALES = {"k_proj": 1.125, "v_proj": 0.9375, "up_proj": 1.0625}


def own_input_scale(name):
    return INPUT_SCALES.get(name.rsplit(".", 1)[1], 1.0)


MODELOPT = {"producer": {"name": "modelopt", "version": "0.33.0"}, "quantization": {
    "quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}}

FP8 = [
    Case("fp8_tensor_dynamic", Float8(), fp8_config(), inner=128),
    Case("fp8_tensor_static", Float8(activation="e4m3_tensor_static", scale_shape=(1,)),
         fp8_config("static", ignored_layers=["lm_head"]), inner=64,
         input_scale_of=own_input_scale,
         note="q, k, v and gate, up have different weight and input scales"),
    Case("fp8_channel", Float8("channel"), fp8_config(), inner=64,
         note="weight_scale [N, 1]"),
    Case("fp8_block", Float8("block", "e4m3_token_group128"),
         fp8_config(weight_block_size=[128, 128], fmt="e4m3"),
         note="k and v have a partial block"),
    Case("fp8_block_e8m0", Float8("block", "e4m3_token_group128", scale_dtype="F8_E8M0"),
         fp8_config(weight_block_size=[128, 128], scale_fmt="ue8m0"), inner=64,
         note="the scales of the blocks are powers of two, of one byte"),
    Case("fp8_ignored_layers", without_o_proj(Float8()),
         fp8_config(ignored_layers=["lm_head", LAYER + "self_attn.o_proj"]), inner=64),
    Case("fp8_modelopt", Float8(activation="e4m3_tensor_static"), inner=64,
         files={"hf_quant_config.json": MODELOPT},
         extra=kv_scales("F32", (), ["k_proj.k_scale", "v_proj.v_scale"]),
         note="scales of an FP8 cache are stored; the logits are for an unquantized cache"),
    Case("nvfp4_modelopt", Float4("modelopt"), inner=64, files={"hf_quant_config.json": {
        **MODELOPT, "quantization": {"quant_algo": "NVFP4", "group_size": 16,
                                     "exclude_modules": ["lm_head"]}}},
         warnings=[["quant_algo", "4-bit float activations", "not rounded"]],
         note="activations stay in floating point"),
]


def weights_args(num_bits, kind="int", **more):
    return {"num_bits": num_bits, "type": kind, "symmetric": True, "strategy": "channel",
            "group_size": None, "block_structure": None, "dynamic": False, "actorder": None,
            "observer": "minmax", "observer_kwargs": {}, **more}


def group_args(num_bits, group, **more):
    if group == -1:
        return weights_args(num_bits, **more)
    return weights_args(num_bits, strategy="group", group_size=group, **more)


def scheme(weights, inputs=None, targets=("Linear",), **more):
    return {"targets": list(targets), "weights": weights, "input_activations": inputs,
            "output_activations": None, **more}


def compressed_config(form, *schemes, **more):
    return {"quant_method": "compressed-tensors", "format": form, "ignore": ["lm_head"],
            "config_groups": {f"group_{i}": s for i, s in enumerate(schemes)},
            "kv_cache_scheme": None, "quantization_status": "compressed",
            "global_compression_ratio": None, **more}


def packed(name, layer, **options):
    args = group_args(layer.bits, layer.group, symmetric=layer.symmetric,
                      **options.pop("args", {}))
    return Case(name, layer, compressed_config("pack-quantized", scheme(args)), **options)


TOKEN_INT8 = weights_args(8, strategy="token", dynamic=True)
TENSOR_INT8 = weights_args(8, strategy="tensor")
TOKEN_FP8 = weights_args(8, "float", strategy="token", dynamic=True)
TENSOR_FP8 = weights_args(8, "float", strategy="tensor")


def mixed(name):
    if name.endswith("o_proj"):
        return Dense("BF16")
    if "self_attn" in name:
        return Float8("channel", kind="ct_fp8", scale_dtype="BF16")
    return Packed(4, 128, True, scale_dtype="BF16")


MIXED = compressed_config(
    "mixed-precision",
    scheme(group_args(4, 128), format="pack-quantized",
           targets=[LAYER + "mlp.gate_proj", "re:.*up_proj$", "Linear"]),
    scheme(weights_args(8, "float"), TOKEN_FP8, format="float-quantized",
           targets=["re:.*self_attn\\.(q|k|v|o)_proj$"]),
    ignore=["lm_head", "re:.*\\.o_proj$"])

COMPRESSED = [
    packed("ct_4bit_g128_sym", Packed(scale_dtype="BF16"), dtype="BF16"),
    packed("ct_4bit_g32_asym", Packed(4, 32, False), inner=64),
    packed("ct_4bit_channel_sym", Packed(4, -1, scale_dtype="F32"), inner=64),
    packed("ct_8bit_g128_sym", Packed(8, 128), inner=128),
    packed("ct_3bit_g128_asym_dense", Packed(3, 128, False),
           note="32 values in three words: values lie across words"),
    packed("ct_3bit_g64_asym_padded", Packed(3, 64, False, padded=True), inner=128,
           note="10 values to a word, as older writers did it; only the shape tells"),
    packed("ct_2bit_g64_sym", Packed(2, 64), inner=64),
    packed("ct_4bit_g32_actorder_group", Packed(4, 32, False, scattered=True),
           args={"actorder": "group"}, inner=128),
    packed("ct_4bit_g64_actorder_weight", Packed(4, 64), args={"actorder": "weight"}, inner=64,
           note="no weight_g_idx"),
    Case("ct_int8_token", Int8("s8_token", scale_dtype="BF16"), compressed_config(
        "int-quantized", scheme(weights_args(8), TOKEN_INT8)), dtype="BF16", inner=128),
    Case("ct_int8_static", Int8("s8_tensor_static", "tensor"), compressed_config(
        "int-quantized", scheme(weights_args(8, strategy="tensor"), TENSOR_INT8)), inner=64),
    Case("ct_fp8_static", Float8(activation="e4m3_tensor_static", scale_shape=(1,), kind="ct_fp8",
                                 scale_dtype="BF16", input_scale_dtype="BF16"),
         compressed_config("float-quantized", scheme(weights_args(8, "float", strategy="tensor"),
                                                     TENSOR_FP8)), dtype="BF16", inner=64),
    Case("ct_fp8_channel_token", Float8("channel", kind="ct_fp8", scale_dtype="BF16"),
         compressed_config("float-quantized", scheme(weights_args(8, "float"), TOKEN_FP8)),
         dtype="BF16", inner=128),
    Case("ct_nvfp4", Float4("ct"), compressed_config("nvfp4-pack-quantized", scheme(
        weights_args(4, "float", strategy="tensor_group", group_size=16),
        weights_args(4, "float", strategy="tensor_group", group_size=16, dynamic="local"))),
         dtype="BF16", inner=64,
         warnings=[["input_activations", "4-bit float activations", "not rounded"]],
         note="activations stay in floating point"),
    Case("ct_mxfp4a16", Float4("mx"), compressed_config("mxfp4-pack-quantized", scheme(
        weights_args(4, "float", strategy="group", group_size=32))), dtype="BF16", inner=64),
    Case("ct_mixed", mixed, MIXED, dtype="BF16", note="a regex goes before a class name, and a "
         "full name before both; ignore goes before all", inner=128),
    Case("ct_kv_cache", Packed(4, 128), compressed_config(
        "pack-quantized", scheme(group_args(4, 128)), kv_cache_scheme=TENSOR_FP8), inner=128,
         extra=kv_scales("F16", (1,), ["k_scale", "v_scale"]),
         note="scales of an FP8 cache are stored; the logits are for an unquantized cache"),
]

FMPQ = [
    Case("fmpq_natural", lambda name: Fmpq(0 if name.endswith(("q_proj", "up_proj")) else 1),
         FMPQ_CONFIG, inner=200,
         note="no order; some layers have no block of 8 bits; the last block is short"),
    Case("fmpq_order", lambda name: Fmpq(int(not name.endswith("v_proj")), ordered=True,
                                         clip=0.85 if name.endswith("gate_proj") else 1.0),
         FMPQ_CONFIG, note="each layer has its own order"),
]

QOQ = [
    Case("qoq_channel", Qoq(-1), files={"quant_config.json": {"wbits": 4, "group_size": -1}},
         note="the zero point is stored times the scale", inner=128),
    Case("qoq_g128", Qoq(128), files={"quant_config.json": {
        "quant_method": "qoq", "wbits": 4, "group_size": 128}}),
]
