#include "halley/quant/methods/recipe.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>

#include "halley/base/error.h"
#include "halley/base/str.h"

namespace halley {
namespace {

constexpr std::array<Recipe, 9> kRecipes = {{
    {.method = "rtn",
     .description = "round to nearest; compressed-tensors (pack-quantized), or "
                    "GPTQ files for 2 and 3 bits",
     .format = WeightFormat::kPackedInt},
    {.method = "gptq",
     .description = "error feedback: rounds column by column, later columns compensate; GPTQ files",
     .format = WeightFormat::kGptq,
     .is_clipped = true,
     .is_compensated = true,
     .has_act_order = true,
     .has_static_groups = true},
    {.method = "awq",
     .description = "channel scales and clipping searched by output error; AWQ gemm files",
     .format = WeightFormat::kAwq,
     .block_input = Smoothing::kSearch,
     .block_output = Smoothing::kSearch,
     .is_clipped = true},
    {.method = "smoothquant",
     .description = "W8A8, outliers moved into the weights; compressed-tensors (int-quantized)",
     .format = WeightFormat::kInt8,
     .bits = 8,
     .group_size = 0,
     .is_symmetric = true,
     .block_input = Smoothing::kAlpha,
     .block_output = Smoothing::kAlpha,
     .alpha_output = 0.5},
    {.method = "fp8",
     .description = "e4m3 weights and activations; compressed-tensors (float-quantized)",
     .format = WeightFormat::kFp8Channel,
     .bits = 8,
     .group_size = 0,
     .is_symmetric = true},
    {.method = "qoq",
     .description = "W4A8KV4 of QServe, all six techniques; QServe's files",
     .format = WeightFormat::kQoq,
     .is_rotated = true,
     .block_output = Smoothing::kAlpha,
     .has_key_smoothing = true,
     .is_reordered = true,
     .is_clipped = true,
     .has_block_clip = true,
     .is_compensated = true,
     .kv_bits = 4},
    {.method = "fmpq",
     .description = "W4AxKV4 of COMET: activations in blocks of 4 or 8 bits; fmpq files",
     .format = WeightFormat::kFmpq,
     .is_symmetric = true,
     .block_input = Smoothing::kBlocks,
     .block_output = Smoothing::kBlocks,
     .has_key_smoothing = true,
     .is_reordered = true,
     .is_clipped = true,
     .is_compensated = true,
     .kv_bits = 4,
     .has_activation_clip = true},
    {.method = "nestedfp",
     .description = "one 16-bit weight in two precisions, exact f16 and e4m3; nestedfp files",
     .format = WeightFormat::kNestedFp,
     .bits = 16,
     .group_size = 0,
     .is_symmetric = true},
    {.method = "none",
     .description = "weights stay; with a calibration text, keys are smoothed for a KV cache of "
                    "4 bits",
     .format = WeightFormat::kDense,
     .bits = 16,
     .group_size = 0,
     .is_symmetric = true,
     .has_key_smoothing = true,
     .is_calibration_optional = true},
}};

constexpr std::array<Technique, 10> kTechniques = {{
    {"rotation", [](const Recipe& r) { return r.is_rotated; },
     [](Recipe& r) { r.is_rotated = false; }, /*is_calibrated=*/false},
    {"smooth-attention", [](const Recipe& r) { return r.has_key_smoothing; },
     [](Recipe& r) { r.has_key_smoothing = false; }},
    {"input-smoothing", [](const Recipe& r) { return r.block_input != Smoothing::kNone; },
     [](Recipe& r) { r.block_input = Smoothing::kNone; }},
    {"output-smoothing", [](const Recipe& r) { return r.block_output != Smoothing::kNone; },
     [](Recipe& r) { r.block_output = Smoothing::kNone; }},
    {"reorder", [](const Recipe& r) { return r.is_reordered; },
     [](Recipe& r) { r.is_reordered = false; }},
    {"clip", [](const Recipe& r) { return r.is_clipped; }, [](Recipe& r) { r.is_clipped = false; }},
    {"block-clip", [](const Recipe& r) { return r.has_block_clip; },
     [](Recipe& r) { r.has_block_clip = false; }},
    {"compensation", [](const Recipe& r) { return r.is_compensated; },
     [](Recipe& r) { r.is_compensated = false; }},
    {"activation-clip", [](const Recipe& r) { return r.has_activation_clip; },
     [](Recipe& r) { r.has_activation_clip = false; }},
    {"progressive",
     [](const Recipe& r) { return r.format == WeightFormat::kQoq && r.group_size != 0; },
     [](Recipe& r) { r.group_size = 0; }, /*is_calibrated=*/false},
}};

void switch_off(const std::string& name, Recipe& recipe) {
  std::vector<std::string> known;
  for (const Technique& technique : kTechniques) {
    if (technique.has(recipe)) known.emplace_back(technique.name);
    if (name != technique.name) continue;
    if (technique.has(recipe)) return technique.switch_off(recipe);
    throw InputError(str("--without ", name, ": expected a technique that method ", recipe.method,
                         " has, got one that it does not have. Leave it out."));
  }
  throw InputError(str("--without: expected one of ", known, ", got ", quote(name), "."));
}

/// Leaves nothing in the recipe that needs calibration tokens.
void drop_calibration(Recipe& recipe) {
  for (const Technique& technique : kTechniques) {
    if (!recipe.is_calibration_optional) break;
    if (technique.is_calibrated && technique.has(recipe)) technique.switch_off(recipe);
  }
  const std::vector<std::string> parts = calibrated_parts(recipe);
  if (parts.empty()) return;
  throw InputError(str("--calibrate: expected a text, from which method ", recipe.method,
                       " computes ", parts,
                       ", got none. Name a UTF-8 file of text like that which the model will see, "
                       "or use a method without calibration: rtn, fp8 or nestedfp."));
}

struct Limits {
  std::vector<int> bits;
  std::vector<int64_t> group_sizes;  // 0: per-channel; empty: any
  bool can_be_symmetric = true, can_be_asymmetric = true;
};

Limits limits_of(WeightFormat format) {
  switch (format) {
    case WeightFormat::kGptq:
      return {.bits = {2, 3, 4, 8}, .group_sizes = {}};
    case WeightFormat::kAwq:
      return {.bits = {4}, .group_sizes = {}};
    case WeightFormat::kPackedInt:
      return {.bits = {2, 3, 4, 8}, .group_sizes = {}};
    case WeightFormat::kQoq:
      return {.bits = {4}, .group_sizes = {0, 128}, .can_be_symmetric = false};
    case WeightFormat::kFmpq:
      return {.bits = {4}, .group_sizes = {128}, .can_be_asymmetric = false};
    case WeightFormat::kInt8:
    case WeightFormat::kFp8Channel:
    case WeightFormat::kFp8Tensor:
      return {.bits = {8}, .group_sizes = {0}, .can_be_asymmetric = false};
    case WeightFormat::kDense:
    case WeightFormat::kNestedFp:
      break;
  }
  return {.bits = {16}, .group_sizes = {0}, .can_be_asymmetric = false};
}

void check_number(const char* option, double value, double min, double max) {
  if (value >= min && value <= max) return;
  throw InputError(str(option, ": expected ", min, " to ", max, ", got ", value, "."));
}

void check_weights(const Recipe& recipe) {
  const Limits limits = limits_of(recipe.format);
  const auto has = [](const auto& values, auto value) {
    return std::find(values.begin(), values.end(), value) != values.end();
  };
  if (!has(limits.bits, recipe.bits)) {
    throw InputError(str("--bits: expected one of ", limits.bits, " for method ", recipe.method,
                         ", got ", recipe.bits, "."));
  }
  if (limits.group_sizes.empty()) {
    if (recipe.group_size < 0 || recipe.group_size > 65'536 || recipe.group_size % 8 != 0) {
      throw InputError(str("--group-size: expected -1 or a multiple of 8 up to 65536, got ",
                           recipe.group_size, "."));
    }
  } else if (!has(limits.group_sizes, recipe.group_size)) {
    throw InputError(str("--group-size: expected one of ", limits.group_sizes,
                         " (0: per-channel) for method ", recipe.method, ", got ",
                         recipe.group_size, "."));
  }
  if (recipe.is_symmetric ? limits.can_be_symmetric : limits.can_be_asymmetric) return;
  throw InputError(str("--symmetric: expected ", recipe.is_symmetric ? "false" : "true",
                       " for method ", recipe.method, ", whose files hold nothing else."));
}

template <typename T>
void change(const std::optional<T>& value, T& field) {
  if (value) field = *value;
}

const Recipe& find_recipe(const std::string& method) {
  std::vector<std::string> known;
  for (const Recipe& recipe : kRecipes) {
    if (method == recipe.method) return recipe;
    known.emplace_back(recipe.method);
  }
  throw InputError(str("--method: expected one of ", known, ", got ", quote(method), "."));
}

int64_t parse_integer(std::string_view text, const std::string& whole) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size() && value >= -1 && value <= 65'536) {
    return value;
  }
  throw InputError(
      str("--override: expected an integer, got ", quote(text), " in ", quote(whole), "."));
}

}  // namespace

std::span<const Recipe> recipes() { return kRecipes; }
std::span<const Technique> techniques() { return kTechniques; }

std::vector<std::string> calibrated_parts(const Recipe& recipe) {
  std::vector<std::string> parts;
  for (const Technique& technique : kTechniques) {
    if (technique.is_calibrated && technique.has(recipe)) parts.emplace_back(technique.name);
  }
  if (recipe.is_activation_static) parts.emplace_back("static activations");
  if (recipe.format == WeightFormat::kFmpq) parts.emplace_back("activation blocks");
  return parts;
}

Recipe make_recipe(const std::string& method, const RecipeChanges& changes) {
  Recipe recipe = find_recipe(method);
  change(changes.bits, recipe.bits);
  change(changes.group_size, recipe.group_size);
  recipe.is_group_size_given = changes.group_size.has_value();
  recipe.group_size = std::max<int64_t>(recipe.group_size, 0);
  change(changes.is_symmetric, recipe.is_symmetric);
  change(changes.has_act_order, recipe.has_act_order);
  change(changes.has_static_groups, recipe.has_static_groups);
  change(changes.is_activation_static, recipe.is_activation_static);
  change(changes.damp, recipe.damp);
  change(changes.alpha, recipe.alpha_input);
  change(changes.s8_share_max, recipe.s8_share_max);
  change(changes.kv_bits, recipe.kv_bits);
  if (changes.is_per_tensor) {
    if (recipe.format != WeightFormat::kFp8Channel) {
      throw InputError(str("--per-tensor: expected method fp8, got ", recipe.method, "."));
    }
    recipe.format = WeightFormat::kFp8Tensor;
  }
  for (const std::string& name : changes.without) switch_off(name, recipe);
  // Other servers read pack-quantized of 4 and 8 bits alone; GPTQ files hold 2 and 3 bits too.
  if (recipe.format == WeightFormat::kPackedInt && recipe.bits < 4) {
    recipe.format = WeightFormat::kGptq;
  }
  check_weights(recipe);
  check_number("--damp", recipe.damp, 1e-6, 1);
  check_number("--alpha", recipe.alpha_input, 0, 1);
  check_number("--s8-share", recipe.s8_share_max, 0, 1);
  if (recipe.kv_bits != 16 && recipe.kv_bits != 8 && recipe.kv_bits != 4) {
    throw InputError(str("--kv-bits: expected 16, 8 or 4, got ", recipe.kv_bits, "."));
  }
  const bool states_kv =
      recipe.format == WeightFormat::kQoq || recipe.format == WeightFormat::kFmpq;
  if (recipe.kv_bits != 16 && !states_kv) {
    throw InputError(str("--kv-bits: expected 16 for method ", recipe.method,
                         ", whose files do not state a KV cache, got ", recipe.kv_bits,
                         ". Leave it out, and run the model with --kv-dtype."));
  }
  if (!recipe.is_clipped) recipe.has_block_clip = false;
  if ((recipe.has_act_order || recipe.has_static_groups) && !recipe.is_compensated) {
    recipe.has_act_order = recipe.has_static_groups = false;
  }
  if (recipe.has_act_order && !recipe.has_static_groups && recipe.format != WeightFormat::kGptq) {
    throw InputError(str("--desc-act: expected static groups for method ", recipe.method,
                         ", whose files have no g_idx. Add --static-groups."));
  }
  if (!changes.has_calibration) drop_calibration(recipe);
  return recipe;
}

std::string describe(const Recipe& recipe) {
  std::string text = str(recipe.bits, " bits, ");
  text += recipe.group_size == 0 ? "per-channel" : str("group ", recipe.group_size);
  text += recipe.is_symmetric ? ", symmetric" : ", asymmetric";
  const char* separator = "; ";
  for (const Technique& technique : kTechniques) {
    if (!technique.has(recipe)) continue;
    text += str(separator, technique.name);
    separator = ", ";
  }
  if (recipe.has_act_order) text += str(separator, "act order");
  if (recipe.kv_bits != 16) text += str("; KV cache ", recipe.kv_bits, " bits");
  return text;
}

bool has_zero_points(const Recipe& recipe, std::span<const LayerOverride> overrides) {
  return !recipe.is_symmetric ||
         std::any_of(overrides.begin(), overrides.end(),
                     [](const LayerOverride& change) { return change.is_symmetric == false; });
}

LayerOverride parse_layer_override(const std::string& text) {
  const size_t equal = text.find('=');
  if (equal == std::string::npos || equal == 0) {
    throw InputError(str("--override: expected PATTERN=none or PATTERN=bits=8,group=64,sym, got ",
                         quote(text), "."));
  }
  LayerOverride result = {.pattern = NamePattern::parse(text.substr(0, equal), "--override")};
  std::string_view rest = std::string_view(text).substr(equal + 1);
  while (true) {
    const size_t comma = rest.find(',');
    const std::string_view item = rest.substr(0, comma);
    if (item == "none") {
      result.is_dense = true;
    } else if (item == "sym" || item == "asym") {
      result.is_symmetric = item == "sym";
    } else if (item.starts_with("bits=")) {
      result.bits = static_cast<int>(parse_integer(item.substr(5), text));
    } else if (item.starts_with("group=")) {
      result.group_size = std::max<int64_t>(0, parse_integer(item.substr(6), text));
    } else {
      throw InputError(str("--override: expected none, bits=N, group=N, sym or asym, got ",
                           quote(item), " in ", quote(text), "."));
    }
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  if (result.is_dense && (result.bits || result.group_size || result.is_symmetric)) {
    throw InputError(str("--override: expected none alone, got ", quote(text), "."));
  }
  return result;
}

}  // namespace halley
