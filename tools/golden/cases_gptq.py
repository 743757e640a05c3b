"""The GPTQ and AWQ checkpoints."""

from .awq import AwqGemm, AwqGemv, AwqGemvFast
from .case import Case
from .gptq import Gptq, Marlin
from .layer import Dense


def gptq_config(bits=4, group=128, symmetric=True, **more):
    return {"quant_method": "gptq", "bits": bits, "group_size": group, "desc_act": False,
            "sym": symmetric, "lm_head": False, "checkpoint_format": "gptq",
            "pack_dtype": "int32", **more}


def gptq(name, bits=4, group=128, symmetric=True, **options):
    """One format for all layers; `layer` goes to Gptq(), `more` into the config."""
    layer = Gptq(bits, group, symmetric, **options.pop("layer", {}))
    config = gptq_config(bits, group, symmetric, **options.pop("more", {}))
    return Case(name, layer, config, **options)


def of_dynamic(name):
    if name.endswith(("o_proj", "k_proj")):
        return Dense()
    if name.endswith("down_proj"):
        return Gptq(8, 64, True)
    if name.endswith("v_proj"):
        return Gptq(8, 128, True)
    return Gptq(4, 128, True)


DYNAMIC = {"self_attn": {"bits": 3}, "-:.*\\.self_attn\\.o_proj": {},
           "+:.*\\.down_proj": {"bits": 8, "group_size": 64}, ".*\\.mlp\\.down.*": {"bits": 2},
           "+:.*\\.o_proj": {"bits": 2}, "-:.*\\.k_proj": {}, "+:.*\\.v_proj": {"bits": 8}}

GPTQ = [
    gptq("gptq_2bit_g128_asym", 2, symmetric=False),
    gptq("gptq_3bit_g128_asym", 3, symmetric=False),
    gptq("gptq_4bit_g128_asym", symmetric=False),
    gptq("gptq_8bit_g128_asym", 8, symmetric=False, inner=128),
    gptq("gptq_4bit_g128_sym"),
    gptq("gptq_4bit_channel_sym", group=-1, more={"desc_act": True},
         note="desc_act without groups changes nothing", inner=128),
    gptq("gptq_4bit_g16_sym", group=16, inner=64),
    gptq("gptq_4bit_g32_sym_no_g_idx", group=32, inner=64, layer={"has_g_idx": False}),
    gptq("gptq_4bit_g64_sym_bias", group=64, inner=64, biased=True,
         more={"static_groups": True}),
    gptq("gptq_4bit_g32_desc_act", group=32, symmetric=False, inner=128, layer={"order": "shared"},
         more={"desc_act": True}, note="layers with the same input share their g_idx"),
    gptq("gptq_3bit_g64_desc_act", 3, 64, False, inner=128, layer={"order": "own"},
         more={"desc_act": True}, note="every layer has its own g_idx"),
    gptq("gptq_4bit_g128_v2_sym", inner=128, layer={"version": 2},
         more={"checkpoint_format": "gptq_v2"}),
    gptq("gptq_4bit_g32_v2_asym", group=32, symmetric=False, inner=64,
         layer={"version": 2, "zeros_at_zero": True}, more={"checkpoint_format": "gptq_v2"},
         note="some zero points are 0"),
    gptq("gptq_4bit_g128_mislabelled_v2", inner=128, layer={"version": 2},
         warnings=[["checkpoint_format", "gptq_v2"]],
         note="says checkpoint_format gptq, but all stored zeros are 8, which is gptq_v2"),
    gptq("gptq_4bit_g32_zero_masked", group=32, symmetric=False, inner=64,
         layer={"zeros_at_zero": True},
         note="some stored zeros are 15, which means 0; the writer masked each field"),
    Case("gptq_marlin_g128", Marlin(128), gptq_config(checkpoint_format="marlin"), kv_heads=2,
         note="tensors B and s, as AutoGPTQ names them; a group of 128 is whole where K is 128"),
    Case("gptq_marlin_channel", Marlin(-1, ("qweight", "scales")),
         gptq_config(group=-1, is_marlin_format=True, checkpoint_format=None), kv_heads=2,
         inner=128, note="marked by is_marlin_format; tensors qweight and scales"),
    Case("gptq_dynamic", of_dynamic, gptq_config(dynamic=DYNAMIC),
         note="rules match from the start of the name and the first match wins", inner=128),
    Case("gptq_bits_fallback", Gptq(2, 128), {"bits": 2, "group_size": 128, "sym": True},
         inner=128, note="no quant_method and no desc_act"),
    Case("gptq_quantize_config_file", Gptq(2, 128), inner=128, files={"quantize_config.json": {
        "bits": 2, "group_size": 128, "damp_percent": 0.01, "desc_act": False,
        "static_groups": False, "sym": True, "true_sequential": True, "model_name_or_path": "",
        "model_file_base_name": "model", "quant_method": "gptq", "checkpoint_format": "gptq"}}),
]


def awq_config(version="gemm", group=128, **more):
    return {"quant_method": "awq", "bits": 4, "group_size": group, "zero_point": True,
            "version": version, "modules_to_not_convert": None, **more}


def without_o_proj(layer, dense=None):
    return lambda name: (dense or Dense()) if name.endswith("o_proj") else layer


AWQ = [
    Case("awq_gemm_g128", AwqGemm(128), awq_config()),
    Case("awq_gemm_g32", AwqGemm(32), awq_config(group=32), inner=64),
    Case("awq_gemv_g128", AwqGemv(128), awq_config("gemv")),
    Case("awq_gemv_g32", AwqGemv(32), awq_config("gemv", 32),
         note="zero points padded to four words", inner=64),
    Case("awq_gemv_fast_g128", AwqGemvFast(128), awq_config("gemv_fast")),
    Case("awq_llm_awq_g64", AwqGemvFast(64, "scaled_zeros"), awq_config("llm-awq", 64), inner=64,
         note="the tensor of zeros has the name that llm-awq gives it"),
    Case("awq_skip_o_proj", without_o_proj(AwqGemm(64)),
         awq_config(group=64, modules_to_not_convert=["o_proj", "visual"]), inner=64),
    Case("awq_quant_config_file", AwqGemm(128), inner=128, files={"quant_config.json": {
        "zero_point": True, "q_group_size": 128, "w_bit": 4, "version": "GEMM"}},
         note="no quant_method; the version in capitals"),
]
