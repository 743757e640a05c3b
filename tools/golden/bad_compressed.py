"""Bad compressed-tensors and QoQ checkpoints; bad_cases.py has the others."""

from .bad_cases import (CATASTROPHE, DOWN, F16_NAN, K, OUT, Q, V, bad, bad_field, bad_scales,
                        bad_scales_of_kv, contradiction, rejected)
from .edits import add, config, delete, file, put, reshape, retype

PACKED = "ct_4bit_g32_asym"
INT8 = "ct_int8_static"


def group(**patch):
    return config(config_groups={"group_0": patch})


def weights(**patch):
    return group(weights=patch)


def compressed_config():
    base = PACKED
    for form in ("marlin-24", "sparse-bitmask", "sparse-24-bitmask", "mxfp8-quantized",
                 "some-format"):
        rejected(f"ct_format_{form}", base, config(format=form), "format", form)
    rejected("ct_sparsity", base, config(sparsity_config={
        "format": "sparse-24-bitmask", "sparsity_structure": "2:4"}), "sparsity_config",
            "sparse-24-bitmask")
    rejected("ct_transform", base, config(transform_config={"config_groups": {"u": {
        "type": "hadamard", "apply": []}}}), "transform_config")
    rejected("ct_mixed_group_format", "ct_mixed", config(config_groups={"group_1": {
        "format": "some-format"}}), "format", "some-format")
    bad_field("ct_format_number", base, config(format=4), "format")
    bad_field("ct_no_groups", base, config(config_groups=None), "config_groups")
    bad_field("ct_groups_list", base, config(config_groups=[1]), "config_groups")
    bad_field("ct_targets_missing", base, group(targets=None), "targets")
    bad_field("ct_targets_text", base, group(targets="Linear"), "targets")
    bad_field("ct_target_number", base, group(targets=[4]), "targets")
    bad_field("ct_target_open_parenthesis", base, group(targets=["re:.*(q|k"]), "targets")
    bad_field("ct_target_catastrophe", base, group(targets=["re:" + CATASTROPHE]), "targets")
    bad_field("ct_ignore_open_class", base, config(ignore=["re:["]), "ignore")
    bad_field("ct_ignore_catastrophe", base, config(ignore=["re:" + CATASTROPHE]), "ignore")
    bad_field("ct_weights_missing", base, group(weights=None), "weights")
    rejected("ct_strategy", base, weights(strategy="diagonal"), "strategy", "diagonal")
    rejected("ct_type", base, weights(type="complex"), "type", "complex")
    rejected("ct_actorder", base, weights(actorder="banana"), "actorder", "banana")
    rejected("ct_bits_5", base, weights(num_bits=5), "num_bits", "5")
    bad_field("ct_bits_text", base, weights(num_bits="4"), "num_bits")
    bad_field("ct_bits_0", base, weights(num_bits=0), "num_bits", "0")
    bad_field("ct_group_0", base, weights(group_size=0), "group_size", "0")
    bad_field("ct_group_minus_2", base, weights(group_size=-2), "group_size", "-2")
    bad_field("ct_group_missing", base, weights(group_size=None), "group_size")
    rejected("ct_weights_dynamic", base, weights(dynamic=True), "dynamic")
    rejected("ct_output_activations", base, group(output_activations={
        "num_bits": 8, "type": "int", "strategy": "tensor"}), "output_activations")
    rejected("ct_inputs_4_bits", "ct_int8_token", group(input_activations={"num_bits": 4}),
            "input_activations", "4")
    rejected("ct_inputs_asymmetric", "ct_int8_token", group(
        input_activations={"symmetric": False}), "input_activations", "symmetric")
    rejected("ct_inputs_strategy", "ct_int8_token", group(
        input_activations={"strategy": "diagonal"}), "input_activations", "diagonal")


def compressed_packed():
    base, order = PACKED, "ct_4bit_g32_actorder_group"
    contradiction("ct_packed_columns", base, reshape(Q + ".weight_packed", [128, 17], "I32"),
                  Q + ".weight_packed", "16", "17")
    contradiction("ct_packed_type", base, retype(Q + ".weight_packed", "F32"),
                  Q + ".weight_packed")
    contradiction("ct_3bit_neither_packing", "ct_3bit_g128_asym_dense",
                  reshape(Q + ".weight_packed", [128, 14], "I32"), Q + ".weight_packed", "14")
    contradiction("ct_3bit_packings_mixed", "ct_3bit_g128_asym_dense",
                  reshape(Q + ".weight_zero_point", [13, 1], "I32"), Q + ".weight_zero_point",
                  "12", "13")
    contradiction("ct_bits_contradict", base, weights(num_bits=8), Q + ".weight_packed", "32",
                  "16")
    contradiction("ct_weight_shape_columns", base, put(Q + ".weight_shape", 8,
                  "0001000000000000"), Q + ".weight_shape", "256", "128")
    contradiction("ct_weight_shape_negative", base, put(Q + ".weight_shape", 0, "ff" * 8),
                  Q + ".weight_shape", "-1", "128")
    contradiction("ct_weight_shape_length", base, reshape(Q + ".weight_shape", [3], "I64"),
                  Q + ".weight_shape", "3")
    contradiction("ct_group_contradicts", base, weights(group_size=64), Q, ", 2]", ", 4]")
    contradiction("ct_group_does_not_divide", base, weights(group_size=48), "group_size", "48",
                  "128")
    contradiction("ct_symmetric_contradicts", "ct_4bit_g128_sym", weights(symmetric=False),
                  Q + ".weight_zero_point")
    contradiction("ct_zero_point_missing", base, delete(Q + ".weight_zero_point"),
                  Q + ".weight_zero_point")
    contradiction("ct_zero_point_shape", base, reshape(Q + ".weight_zero_point", [15, 4], "I32"),
                  Q + ".weight_zero_point", "16", "15")
    contradiction("ct_weight_packed_missing", base, delete(f"{Q}.weight_packed"), Q)
    contradiction("ct_weight_scale_missing", base, delete(f"{Q}.weight_scale"),
                  f"{Q}.weight_scale")
    bad("ct_weight_shape_missing", base, delete(f"{Q}.weight_shape"), "none")
    contradiction("ct_scale_type", base, retype(Q + ".weight_scale", "I16"), Q + ".weight_scale")
    bad_scales("ct_scale", base, Q + ".weight_scale", 9)
    bad_scales("ct_f32_scale", "ct_4bit_channel_sym", Q + ".weight_scale", 9, 4)
    contradiction("ct_g_idx_missing", order, delete(Q + ".weight_g_idx"), Q + ".weight_g_idx")
    contradiction("ct_g_idx_too_large", order, put(Q + ".weight_g_idx", 20, "04000000"),
                  Q + ".weight_g_idx", "4", "5")
    contradiction("ct_g_idx_negative", order, put(Q + ".weight_g_idx", 20, "ffffffff"),
                  Q + ".weight_g_idx", "-1", "5")
    contradiction("ct_g_idx_uneven", order, put(Q + ".weight_g_idx", 0, "00000000" * 8),
                  Q + ".weight_g_idx", "32")


def compressed_agreement():
    base = PACKED
    contradiction("ct_ignored_is_quantized", base, config(ignore=["re:.*q_proj"]), Q, "ignore",
                  "re:.*q_proj")
    contradiction("ct_not_ignored_is_dense", "ct_mixed", config(ignore=["lm_head"]), OUT)
    contradiction("ct_not_targeted_is_quantized", base, group(targets=["re:.*mlp.*"]), Q)
    contradiction("ct_dense_besides", base, add(Q + ".weight", "F16", [128, 128], "0030"), Q)
    contradiction("ct_dense_instead", base, [
        delete(Q + part) for part in (".weight_packed", ".weight_scale", ".weight_shape",
                                      ".weight_zero_point")] + [
        add(Q + ".weight", "F16", [128, 128], "0030")], Q)
    bad("ct_ignores_nothing", base, config(ignore=["lm_head", "re:.*experts.*"]), "none")
    bad("ct_targets_by_regex", base, group(targets=["re:.*_proj$"]), "none")
    contradiction("ct_static_without_scale", "ct_int8_token", group(
        input_activations={"strategy": "tensor", "dynamic": False}), Q + ".input_scale")
    contradiction("ct_input_scale_missing", INT8, delete(V + ".input_scale"), V + ".input_scale")
    bad_scales("ct_input_scale", INT8, K + ".input_scale", 0, 4)
    bad_scales("ct_int8_scale", INT8, DOWN + ".weight_scale", 0, 4)
    contradiction("ct_int8_type", INT8, retype(Q + ".weight", "U8"), Q + ".weight")
    contradiction("ct_int8_scale_shape", "ct_int8_token",
                  reshape(Q + ".weight_scale", [127, 1], "BF16"), Q + ".weight_scale", "128",
                  "127")
    rejected("ct_kv_int4", "ct_kv_cache", config(kv_cache_scheme={"type": "int", "num_bits": 4}),
            "kv_cache_scheme", stage="kv")
    contradiction("ct_kv_scale_missing", "ct_kv_cache",
                  delete("model.layers.0.self_attn.v_scale"), "v_scale", stage="kv")
    bad_scales_of_kv("ct", "ct_kv_cache", "model.layers.0.self_attn.k_scale", 2)


def qoq():
    channel, groups, name = "qoq_channel", "qoq_g128", "quant_config.json"
    rejected("qoq_group_64", groups, file(name, group_size=64), "group_size", "64")
    bad_field("qoq_group_0", groups, file(name, group_size=0), "group_size", "0")
    rejected("qoq_bits_8", groups, file(name, wbits=8), "wbits", "8")
    bad_field("qoq_bits_text", groups, file(name, wbits="4"), "wbits")
    contradiction("qoq_groups_called_channel", groups, file(name, group_size=-1), Q)
    contradiction("qoq_channel_called_groups", channel, file(name, group_size=128), Q)
    for part in ("qweight", "s1_scales", "s2_scales", "s2_zeros"):
        contradiction(f"qoq_{part}_missing", groups, delete(f"{Q}.{part}"),
                      Q if part == "qweight" else f"{Q}.{part}")
    contradiction("qoq_szeros_missing", channel, delete(Q + ".s1_szeros"), Q + ".s1_szeros")
    contradiction("qoq_qweight_columns", groups, reshape(Q + ".qweight", [128, 63], "I8"),
                  Q + ".qweight", "64", "63")
    contradiction("qoq_scale_type", groups, retype(Q + ".s1_scales", "BF16"), Q + ".s1_scales")
    bad_scales("qoq_scale", channel, Q + ".s1_scales", 3)
    bad_scales("qoq_group_outer_scale", groups, Q + ".s1_scales", 3)
    contradiction("qoq_szero_nan", channel, put(Q + ".s1_szeros", 6, F16_NAN), Q + ".s1_szeros")
    contradiction("qoq_inner_scale_zero", groups, put(Q + ".s2_scales", 0, "00"),
                  Q + ".s2_scales")
    contradiction("qoq_inner_scale_negative", groups, put(Q + ".s2_scales", 0, "ff"),
                  Q + ".s2_scales", "-1")
    contradiction("qoq_beyond_8_bits", groups, [put(Q + ".s2_scales", 0, "7f"),
                                                put(Q + ".s2_zeros", 0, "00")], Q)


SECTIONS = [compressed_config, compressed_packed, compressed_agreement, qoq]
