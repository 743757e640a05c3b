"""Checkpoints that contradict themselves or ask for what Halley does not do, as edits of the good
ones. Written to testdata/quantized/bad_cases.json, whose schema the README there describes."""

import json

from .edits import (Checkpoint, add, config, delete, file, put, rename, reshape, retype,
                    declaration)

ATTENTION = "model.layers.0.self_attn."
Q, K, V, OUT = (ATTENTION + part + "_proj" for part in "qkvo")
DOWN = "model.layers.0.mlp.down_proj"
F16_NAN, F16_INFINITE, F16_ZERO, F16_MINUS_ZERO = "007e", "007c", "0000", "0080"
F16_MINUS_ONE = "00bc"
CATASTROPHE = "([a-z0-9_.]+)+[!-#]"  # 2^29 ways to fail on a layer's name

CASES = []


def bad(name, base, edits, error, *contains, stage="weights"):
    """`contains`: what the message must hold. Outcomes that are no errors: "none" (loads, with the
    weights of the base), "loads" (the weights differ), "warning" (as that, with a warning)."""
    CASES.append({"name": name, "base": base, "stage": stage,
                  "edits": edits if isinstance(edits, list) else [edits],
                  "error": error, "contains": list(contains)})


def contradiction(name, base, edits, *contains, **more):
    if "reshape" in edits:
        contains += (str(edits["shape"]),)
    bad(name, base, edits, "CheckpointError", *contains, **more)


def bad_field(name, base, edits, *contains):
    bad(name, base, edits, "InputError", *contains)


def rejected(name, base, edits, *contains, **more):
    bad(name, base, edits, "UnsupportedError", *contains, **more)


def bad_scales(prefix, base, tensor, index, width=2):
    """NaN, infinity and zeros of both signs at element `index` of an f16 (2) or f32 (4) tensor."""
    values = {"nan": F16_NAN, "infinite": F16_INFINITE, "zero": F16_ZERO,
              "minus_zero": F16_MINUS_ZERO}
    if width == 4:
        values = {"nan": "0000c07f", "infinite": "0000807f", "zero": "00000000",
                  "minus_zero": "00000080"}
    for name, data in values.items():
        contradiction(f"{prefix}_{name}", base, put(tensor, width * index, data), tensor)


def gptq_shapes():
    base, sym = "gptq_4bit_g128_asym", "gptq_4bit_g128_sym"
    contradiction("gptq_qweight_rows", base, reshape(Q + ".qweight", [15, 128], "I32"),
                  Q + ".qweight", "16", "15")
    contradiction("gptq_qweight_columns", base, reshape(Q + ".qweight", [16, 120], "I32"),
                  Q + ".qweight", "128", "120")
    contradiction("gptq_qweight_flat", base, reshape(Q + ".qweight", [2048], "I32"),
                  Q + ".qweight", "2048")
    contradiction("gptq_qweight_type", base, retype(Q + ".qweight", "F32"), Q + ".qweight")
    contradiction("gptq_qzeros_columns", base, reshape(Q + ".qzeros", [1, 15], "I32"),
                  Q + ".qzeros", "16", "15")
    contradiction("gptq_scales_rows", base, reshape(DOWN + ".scales", [1, 128], "F16"),
                  DOWN + ".scales", "2", "1")
    contradiction("gptq_scales_type", base, retype(Q + ".scales", "I16"), Q + ".scales")
    contradiction("gptq_g_idx_length", base, reshape(Q + ".g_idx", [127], "I32"),
                  Q + ".g_idx", "128", "127")
    contradiction("gptq_g_idx_type", base, retype(Q + ".g_idx", "F32"), Q + ".g_idx")
    for part in ("qweight", "qzeros", "scales"):
        contradiction(f"gptq_{part}_missing", base, delete(f"{Q}.{part}"), f"{Q}.{part}")
    contradiction("gptq_bits_contradict", base, config(bits=8), Q + ".qweight", "32", "16")
    contradiction("gptq_3_bits_contradict", base, config(bits=3), Q + ".qweight", "12", "16")
    contradiction("gptq_group_contradicts", base, config(group_size=64), Q, "[2, ", "[1, ")
    contradiction("gptq_group_does_not_divide", base, config(group_size=48), "group_size", "48",
                  "128")
    contradiction("gptq_sym_contradicts_zeros", sym, put(Q + ".qzeros", 4, "76777777"), Q, "sym")
    contradiction("gptq_dense_instead", base, [
        delete(Q + ".qweight"), delete(Q + ".qzeros"), delete(Q + ".scales"),
        delete(Q + ".g_idx"), add(Q + ".weight", "F16", [128, 128], "0030")], Q)
    contradiction("gptq_dense_besides", base, add(Q + ".weight", "F16", [128, 128], "0030"), Q)
    contradiction("gptq_marlin_label_only", sym, config(checkpoint_format="marlin"), Q)
    contradiction("gptq_marlin_shape", "gptq_marlin_g128", reshape(Q + ".B", [8, 128], "I32"),
                  Q + ".B", "256", "128")
    contradiction("gptq_marlin_scales_missing", "gptq_marlin_g128", delete(Q + ".s"), Q + ".s")
    contradiction("gptq_unlabelled_marlin", "gptq_marlin_g128", config(checkpoint_format="gptq"),
                  Q)


def gptq_data():
    base, order = "gptq_4bit_g128_asym", "gptq_4bit_g32_desc_act"
    bad_scales("gptq_scale", base, Q + ".scales", 7)
    bad_scales("gptq_marlin_scale", "gptq_marlin_g128", Q + ".s", 7)
    bad("gptq_scale_negative", base, put(Q + ".scales", 14, F16_MINUS_ONE), "loads")
    contradiction("gptq_g_idx_too_large", base, put(DOWN + ".g_idx", 20, "02000000"),
                  DOWN + ".g_idx", "2", "5")
    contradiction("gptq_g_idx_huge", base, put(DOWN + ".g_idx", 20, "ffffff7f"),
                  DOWN + ".g_idx", "2147483647")
    contradiction("gptq_g_idx_negative", base, put(DOWN + ".g_idx", 20, "ffffffff"),
                  DOWN + ".g_idx", "-1", "5")
    contradiction("gptq_g_idx_uneven", base, put(DOWN + ".g_idx", 20, "01000000"),
                  DOWN + ".g_idx", "128")
    contradiction("gptq_desc_act_uneven", order,
                  put(Q + ".g_idx", 0, "00000000" * 8), Q + ".g_idx", "32")
    for name, base_name in (("asym", base), ("masked", "gptq_4bit_g32_zero_masked")):
        bad(f"gptq_corrupt_zeros_{name}", base_name, put(Q + ".qzeros", 0, "27ffffff"),
            "warning", Q, "qzeros")
    bad("gptq_zeros_of_v2_not_suspicious", "gptq_4bit_g32_v2_asym",
        put(Q + ".qzeros", 0, "27ffffff"), "loads")


def gptq_config():
    base = "gptq_4bit_g128_sym"
    rejected("gptq_bits_5", base, config(bits=5), "bits", "5")
    rejected("gptq_bits_1", base, config(bits=1), "bits", "1")
    bad_field("gptq_bits_0", base, config(bits=0), "bits", "0")
    bad_field("gptq_bits_negative", base, config(bits=-4), "bits", "-4")
    bad_field("gptq_bits_text", base, config(bits="4"), "bits")
    bad_field("gptq_bits_fraction", base, config(bits=4.5), "bits", "4.5")
    bad_field("gptq_bits_huge", base, config(bits=1e300), "bits")
    bad_field("gptq_bits_missing", base, config(bits=None), "bits")
    bad_field("gptq_group_0", base, config(group_size=0), "group_size", "0")
    bad_field("gptq_group_minus_2", base, config(group_size=-2), "group_size", "-2")
    bad_field("gptq_group_text", base, config(group_size="128"), "group_size")
    bad_field("gptq_desc_act_text", base, config(desc_act="yes"), "desc_act")
    bad_field("gptq_sym_number", base, config(sym=1), "sym")
    for form in ("gptq_p", "bitblas", "qqq", "exl3", "some_format"):
        rejected(f"gptq_format_{form}", base, config(checkpoint_format=form), form)
    bad_field("gptq_format_number", base, config(checkpoint_format=2), "checkpoint_format")
    rejected("gptq_marlin_bits_8", "gptq_marlin_g128", config(bits=8), "bits", "8")
    bad("gptq_nested_text_config", base, [
        {"config": {"quantization_config": None}},
        {"config": {"text_config": {"quantization_config": {
            "quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True}}}}], "none")


def gptq_dynamic():
    base = "gptq_4bit_g128_sym"

    def dynamic(**rules):
        return config(dynamic=rules)

    contradiction("dynamic_skips_quantized", base, dynamic(**{"-:.*q_proj": {}}), Q, "dynamic",
                  "-:.*q_proj")
    contradiction("dynamic_bits_contradict", base, dynamic(**{"+:.*down_proj": {"bits": 8}}),
                  DOWN, "64", "32")
    contradiction("dynamic_first_match_wins", base, dynamic(
        **{".*down_proj": {"bits": 8}, "+:.*mlp\\.down_proj": {"bits": 4}}), DOWN, "64", "32")
    contradiction("dynamic_not_skipped_is_dense", "gptq_dynamic", config(
        dynamic={"-:.*\\.self_attn\\.o_proj": None, "+:.*\\.o_proj": None}), OUT)
    bad("modules_in_block", "gptq_dynamic", config(
        dynamic={"-:.*\\.self_attn\\.o_proj": None, "+:.*\\.o_proj": None, "-:.*\\.k_proj": None},
        modules_in_block_to_quantize=[["self_attn.q_proj", "self_attn.v_proj"],
                                      ["mlp.gate_proj", "mlp.up_proj"], ["mlp.down_proj"]]), "none")
    bad("dynamic_matches_nothing", base, dynamic(**{"-:.*\\.experts\\..*": {}}), "none")
    bad("dynamic_matches_from_the_start", base, dynamic(**{"-:q_proj": {}}), "none")
    bad("dynamic_10000_rules", base, {"dynamic_rules": 10000}, "none")
    rejected("dynamic_bits_7", base, dynamic(**{".*down_proj": {"bits": 7}}), "bits", "7")
    bad_field("dynamic_bits_text", base, dynamic(**{".*down_proj": {"bits": "8"}}), "bits")
    bad_field("dynamic_group_0", base, dynamic(**{".*down_proj": {"group_size": 0}}),
              "group_size", "0")
    bad_field("dynamic_is_a_list", base, config(dynamic=[".*"]), "dynamic")
    bad_field("dynamic_rule_is_a_number", base, dynamic(**{".*": 4}), "dynamic")
    bad_field("dynamic_open_parenthesis", base, dynamic(**{"+:(": {"bits": 8}}), "dynamic")
    bad_field("dynamic_open_class", base, dynamic(**{"-:[a-": {}}), "dynamic")
    bad_field("dynamic_unknown_group", base, dynamic(**{"-:\\2(a)": {}}), "dynamic")
    bad_field("dynamic_deep_nesting", base, dynamic(
        **{"-:" + "(" * 3000 + "a" + ")" * 3000: {}}), "dynamic")
    bad_field("dynamic_catastrophe", base, dynamic(**{"-:" + CATASTROPHE: {}}), "dynamic")
    bad_field("dynamic_endless_recursion", base, dynamic(**{"-:(?R)": {}}), "dynamic")


def awq():
    base = "awq_gemm_g128"
    contradiction("awq_gemm_called_gemv", base, config(version="gemv"), Q)
    contradiction("awq_gemv_called_gemm", "awq_gemv_g128", config(version="gemm"), Q)
    contradiction("awq_gemv_fast_called_gemm", "awq_gemv_fast_g128", config(version="gemm"),
                  Q + ".qweight")
    contradiction("awq_qweight_shape", base, reshape(Q + ".qweight", [128, 15], "I32"),
                  Q + ".qweight", "16", "15")
    contradiction("awq_group_contradicts", base, config(group_size=64), Q, "[2, ", "[1, ")
    contradiction("awq_group_does_not_divide", base, config(group_size=48), "group_size", "48",
                  "128")
    for part in ("qweight", "qzeros", "scales"):
        contradiction(f"awq_{part}_missing", base, delete(f"{Q}.{part}"), f"{Q}.{part}")
    contradiction("awq_scales_type", base, retype(Q + ".scales", "I16"), Q + ".scales")
    bad_scales("awq_scale", base, Q + ".scales", 5)
    bad_scales("awq_gemv_scale", "awq_gemv_g32", Q + ".scales", 32 * 3 + 1)
    bad_scales("awq_gemv_fast_scale", "awq_gemv_fast_g128", Q + ".scales", 5)
    contradiction("awq_gemv_fast_zero_nan", "awq_gemv_fast_g128", put(Q + ".qzeros", 10, F16_NAN),
                  Q + ".qzeros")
    contradiction("awq_gemv_fast_type", "awq_gemv_fast_g128", retype(Q + ".qweight", "F16"),
                  Q + ".qweight")
    contradiction("awq_gemv_zeros_width", "awq_gemv_g32", reshape(Q + ".qzeros", [128, 3], "I32"),
                  Q + ".qzeros", "4", "3")
    contradiction("awq_skipped_is_quantized", base, config(modules_to_not_convert=["q_proj"]), Q,
                  "modules_to_not_convert")
    contradiction("awq_not_skipped_is_dense", "awq_skip_o_proj",
                  config(modules_to_not_convert=["visual"]), OUT)
    bad("awq_skips_nothing", base, config(modules_to_not_convert=["visual"]), "none")
    rejected("awq_bits_8", base, config(bits=8), "bits", "8")
    rejected("awq_version", base, config(version="some_version"), "version", "some_version")
    bad_field("awq_version_number", base, config(version=2), "version")
    bad_field("awq_group_0", base, config(group_size=0), "group_size", "0")
    bad_field("awq_skip_is_text", base, config(modules_to_not_convert="o_proj"),
              "modules_to_not_convert")
    bad_field("awq_w_bit_text", "awq_quant_config_file", file("quant_config.json", w_bit="4"),
              "w_bit")


def fp8():
    base, static, block = "fp8_tensor_dynamic", "fp8_tensor_static", "fp8_block"
    bad_field("fp8_scheme_missing", base, config(activation_scheme=None), "activation_scheme")
    rejected("fp8_scheme", base, config(activation_scheme="some_scheme"), "activation_scheme",
            "some_scheme")
    bad_field("fp8_scheme_number", base, config(activation_scheme=1), "activation_scheme")
    contradiction("fp8_static_without_scale", base, config(activation_scheme="static"),
                  Q + ".input_scale")
    contradiction("fp8_input_scale_missing", static, delete(V + ".input_scale"),
                  V + ".input_scale")
    rejected("fp8_block_static", block, config(activation_scheme="static"), "static")
    contradiction("fp8_block_64", block, config(weight_block_size=[64, 64]),
                  Q + ".weight_scale_inv", "[2, 2]", "[1, 1]")
    bad_field("fp8_block_one_number", block, config(weight_block_size=[128]), "weight_block_size")
    bad_field("fp8_block_0", block, config(weight_block_size=[0, 128]), "weight_block_size")
    bad_field("fp8_block_text", block, config(weight_block_size="128"), "weight_block_size")
    rejected("fp8_e5m2", base, config(fmt="e5m2"), "fmt", "e5m2")
    bad_scales("fp8_weight_scale", base, Q + ".weight_scale", 0, 4)
    bad_scales("fp8_block_scale", block, DOWN + ".weight_scale_inv", 1, 4)
    bad_scales("fp8_input_scale", static, K + ".input_scale", 0, 4)
    contradiction("fp8_block_scale_e8m0_nan", "fp8_block_e8m0",
                  put(Q + ".weight_scale_inv", 0, "ff"), Q + ".weight_scale_inv")
    contradiction("fp8_weight_scale_missing", base, delete(Q + ".weight_scale"),
                  Q + ".weight_scale")
    contradiction("fp8_weight_scale_shape", static, reshape(Q + ".weight_scale", [2], "F32"),
                  Q + ".weight_scale", "2")
    contradiction("fp8_weight_scale_type", base, retype(Q + ".weight_scale", "I32"),
                  Q + ".weight_scale")
    contradiction("fp8_block_scale_shape", block,
                  reshape(DOWN + ".weight_scale_inv", [1, 1], "F32"), DOWN + ".weight_scale_inv",
                  "2", "1")
    contradiction("fp8_block_scale_name", block,
                  rename(Q + ".weight_scale_inv", Q + ".weight_scale"), Q)
    contradiction("fp8_weight_type", base, retype(Q + ".weight", "I8"), Q + ".weight")
    contradiction("fp8_weight_shape", base, reshape(Q + ".weight", [128, 127], "F8_E4M3"),
                  Q + ".weight", "128", "127")
    contradiction("fp8_dense_instead", base, [
        delete(Q + ".weight"), delete(Q + ".weight_scale"),
        add(Q + ".weight", "F16", [128, 128], "0030")], Q)
    contradiction("fp8_ignored_is_quantized", base, config(ignored_layers=[Q]), Q,
                  "ignored_layers")
    contradiction("fp8_not_ignored_is_dense", "fp8_ignored_layers",
                  config(ignored_layers=["lm_head"]), OUT)
    bad("fp8_ignores_nothing", base, config(ignored_layers=["model.layers.7.mlp.up_proj"]), "none")


def modelopt():
    base, name = "fp8_modelopt", "hf_quant_config.json"
    for algorithm in ("W4A16_AWQ", "W4A8_AWQ", "MXFP8", "MIXED_PRECISION", "SOME_ALGO"):
        rejected(f"modelopt_{algorithm.lower()}", base,
                file(name, quantization={"quant_algo": algorithm}), algorithm)
    contradiction("modelopt_nvfp4_of_fp8_weights", base, {"config": {"quantization_config": {
        "quant_method": "modelopt", "quant_algo": "NVFP4"}}}, Q + ".weight", "U8".lower())
    bad_field("modelopt_no_algorithm", base, file(name, quantization={"quant_algo": None}),
              "quant_algo")
    bad_field("modelopt_algorithm_number", base, file(name, quantization={"quant_algo": 8}),
              "quant_algo")
    contradiction("modelopt_excluded_is_quantized", base,
                  file(name, quantization={"exclude_modules": ["lm_head", "*q_proj"]}), Q,
                  "exclude_modules")
    contradiction("modelopt_input_scale_missing", base, delete(Q + ".input_scale"),
                  Q + ".input_scale")
    contradiction("modelopt_kv_scale_missing", base, delete(V + ".v_scale"), "v_scale", stage="kv")
    bad_scales_of_kv("modelopt", base, K + ".k_scale", 4)


def bad_scales_of_kv(prefix, base, tensor, width):
    for name, data in (("nan", {2: F16_NAN, 4: "0000c07f"}), ("zero", {2: "0000", 4: "0" * 8})):
        contradiction(f"{prefix}_kv_scale_{name}", base, put(tensor, 0, data[width]), tensor,
                      stage="kv")


def methods():
    base = "gptq_4bit_g128_sym"
    contradiction("method_bitsandbytes", base,
                  declaration({"quant_method": "bitsandbytes", "load_in_4bit": True}),
                  Q + ".weight")
    fields = {"gguf": {}, "torchao": {"quant_type": "int4_weight_only"}, "quark": {"export": {}},
              "squeezellm": {"wbits": 4}, "qqq": {"wbits": 4, "group_size": 128}, "exl3": {},
              "mxfp4": {}, "nvfp4": {}, "hqq": {"nbits": 4}, "aqlm": {}, "some_method": {"bits": 4}}
    for name, more in fields.items():
        rejected(f"method_{name}", base, declaration({"quant_method": name, **more}), name)
    bad_field("method_number", base, config(quant_method=7), "quant_method")
    bad_field("method_list", base, config(quant_method=["gptq"]), "quant_method")
    bad_field("method_untold", base, declaration({"sym": True}), "quant_method")
    bad_field("declaration_text", base, {"config": {"quantization_config": "gptq"}},
              "quantization_config")
    contradiction("declaration_missing", base, {"config": {"quantization_config": None}},
                  "quantization_config", "qweight")


SECTIONS = [gptq_shapes, gptq_data, gptq_config, gptq_dynamic, awq, fp8, modelopt, methods]


def write_bad_cases(folder, sections):
    """Checks that every edit fits its base and writes bad_cases.json. Returns (cases, bytes)."""
    CASES.clear()
    for section in sections:
        section()
    names = [case["name"] for case in CASES]
    assert len(set(names)) == len(names), sorted(n for n in names if names.count(n) > 1)
    for case in CASES:
        checkpoint = Checkpoint(folder / case["base"])
        for edit in case["edits"]:
            if "dynamic_rules" in edit:
                continue
            try:
                checkpoint.apply(edit)
            except (KeyError, ValueError, OSError) as error:
                raise AssertionError(f"{case['name']}: {error!r}") from error
    path = folder / "bad_cases.json"
    lines = ["  " + json.dumps(case) for case in CASES]
    path.write_text('{"cases": [\n' + ",\n".join(lines) + "\n]}\n")
    return len(CASES), path.stat().st_size
