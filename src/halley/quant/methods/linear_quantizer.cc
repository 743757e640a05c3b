#include "halley/quant/methods/linear_quantizer.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/quant/awq/encode.h"
#include "halley/quant/compressed_tensors/encode.h"
#include "halley/quant/fmpq/encode.h"
#include "halley/quant/gptq/encode.h"
#include "halley/quant/methods/dense_types.h"
#include "halley/quant/nestedfp/encode.h"
#include "halley/quant/qoq/encode.h"
#include "halley/quant/solve/clip_search.h"
#include "halley/quant/solve/gptq_solver.h"
#include "halley/quant/solve/grid_rule.h"
#include "halley/quant/stored/float8_tensors.h"

namespace halley {
namespace {

/// One stored tensor and its quantization settings.
struct Target {
  std::string name;
  bool is_dense = false;
  GridOptions grid;
  int64_t declared_group = 0;  // as declared in config.json; 0: per-channel
};

Target target_of(const LinearJob& job, const LinearSpec::Part& part) {
  Target target = {.name = part.name,
                   .is_dense = part.is_usually_dense || job.recipe.format == WeightFormat::kDense,
                   .grid = {.bits = job.recipe.bits,
                            .group_size = job.recipe.group_size,
                            .is_symmetric = job.recipe.is_symmetric}};
  for (const LayerOverride& change : job.overrides) {
    if (!change.pattern.matches(part.name)) continue;
    target.is_dense = change.is_dense;
    if (change.bits) target.grid.bits = *change.bits;
    if (change.group_size) target.grid.group_size = *change.group_size;
    if (change.is_symmetric) target.grid.is_symmetric = *change.is_symmetric;
    break;
  }
  const int64_t K = job.spec.in_features;
  target.declared_group = target.grid.group_size > K ? 0 : target.grid.group_size;
  if (target.declared_group == 0) target.grid.group_size = K;
  return target;
}

std::vector<Target> targets_of(const LinearJob& job) {
  std::vector<Target> targets;
  for (const LinearSpec::Part& part : job.spec.parts) {
    const bool is_known = std::any_of(targets.begin(), targets.end(),
                                      [&](const Target& t) { return t.name == part.name; });
    if (!is_known) targets.push_back(target_of(job, part));
  }
  return targets;
}

bool have_same_grid(const GridOptions& a, const GridOptions& b) {
  return a.bits == b.bits && a.group_size == b.group_size && a.is_symmetric == b.is_symmetric;
}

/// The weights of some targets stacked along their rows, their inputs permuted by the plan.
class StackedWeight {
 public:
  StackedWeight(TensorStore& tensors, std::span<const Target* const> targets,
                const InputPlan* plan) {
    for (const Target* target : targets) {
      const Matrix w = weight_matrix(tensors, target->name);
      num_rows_ += w.num_rows;
      K_ = w.num_cols;
    }
    data_.resize(static_cast<size_t>(num_rows_ * K_));
    float* out = data_.data();
    for (const Target* target : targets) {
      const Matrix w = weight_matrix(tensors, target->name);
      for (int64_t n = 0; n < w.num_rows; ++n, out += K_) {
        const float* row = w.row<float>(n);
        for (int64_t k = 0; k < K_; ++k) {
          out[k] = plan == nullptr || plan->perm.empty() ? row[k]
                                                         : row[plan->perm[static_cast<size_t>(k)]];
        }
      }
    }
  }

  Matrix matrix() { return f32_matrix(data_.data(), num_rows_, K_); }

 private:
  std::vector<float> data_;
  int64_t num_rows_ = 0;
  int64_t K_ = 0;
};

bool is_fp8(WeightFormat format) {
  return format == WeightFormat::kFp8Channel || format == WeightFormat::kFp8Tensor;
}

/// Rows [begin, begin + count).
QuantizedWeight slice_rows(const QuantizedWeight& weight, int64_t begin, int64_t count) {
  QuantizedWeight slice = weight;
  slice.N = count;
  const auto cut = [&](auto& values, int64_t width) {
    if (values.empty()) return;
    values = {values.begin() + begin * width, values.begin() + (begin + count) * width};
  };
  cut(slice.codes, weight.K);
  cut(slice.scales, weight.num_groups());
  cut(slice.zeros, weight.num_groups());
  cut(slice.factors, weight.num_groups());
  cut(slice.channel_scales, 1);
  return slice;
}

/// The rule that quantizes w [N, K], given the clipping ratios of its groups.
ClippedRule rule_of(const Recipe& recipe, const Target& target, ConstMatrix w) {
  const GridOptions grid = target.grid;
  const bool is_progressive = recipe.format == WeightFormat::kQoq && target.declared_group != 0;
  const int64_t num_groups = ceil_div(w.num_cols, grid.group_size);
  return [=](std::vector<float> clip) {
    return is_progressive ? make_progressive_rule(w, grid.group_size, std::move(clip))
                          : make_minmax_rule(grid, std::move(clip), num_groups);
  };
}

QuantizedWeight solve_codes(const Recipe& recipe, LayerInWork& layer, const std::string& name,
                            Matrix w, const GridRule& rule, InputStats stats) {
  const bool is_reached = stats.num_tokens > 0;
  if (!is_reached && (recipe.is_clipped || recipe.is_compensated)) {
    layer.notes.push_back(str(name, ": rounded to nearest: no calibration token reached it"));
  }
  if (!recipe.is_compensated || !is_reached) return round_to_nearest(layer.context, w, rule);
  const GptqOptions options = {.has_act_order = recipe.has_act_order,
                               .has_static_groups = recipe.has_static_groups,
                               .damp = recipe.damp};
  return solve_gptq(layer.context, name, w, stats.gram_matrix(), rule, options);
}

/// A function that quantizes rows of the targets as solve_codes() does; rows are independent.
BlockClip::Quantize quantize_function_of(const LinearJob& job, LayerInWork& layer,
                                         const Target& target, ConstMatrix w,
                                         const InputStats& stats) {
  return [&job, &layer, &target, w, &stats](std::vector<float> clip) {
    std::vector<float> used(w.row<float>(0), w.row<float>(0) + w.num_rows * w.num_cols);
    const auto rule = rule_of(job.recipe, target, w)(std::move(clip));
    return solve_codes(job.recipe, layer, target.name,
                       f32_matrix(used.data(), w.num_rows, w.num_cols), *rule, copy_of(stats));
  };
}

/// Clip search: the ratios of all groups, [N, num_groups] of the targets' rows w; empty: no
/// clipping.
std::vector<float> find_clip(const LinearJob& job, LayerInWork& layer,
                             std::span<const Target* const> targets, ConstMatrix w,
                             const InputStats& stats) {
  const Recipe& recipe = job.recipe;
  // With act-order and no static groups, a group's inputs are not consecutive: nothing to search.
  const bool has_consecutive_groups = !recipe.has_act_order || recipe.has_static_groups;
  if (!recipe.is_clipped || stats.num_tokens == 0 || !has_consecutive_groups) return {};
  const GridOptions& grid = targets.front()->grid;
  std::vector<float> clip = search_clip(layer.context, w, stats, grid.group_size,
                                        rule_of(recipe, *targets.front(), w), {});
  if (job.block_clip == nullptr) return clip;
  const int64_t num_groups = ceil_div(w.num_cols, grid.group_size);
  int64_t begin = 0;
  for (const Target* target : targets) {
    const int64_t end = begin + weight_matrix(layer.tensors, target->name).num_rows;
    const auto first = static_cast<size_t>(begin * num_groups);
    const auto count = static_cast<size_t>((end - begin) * num_groups);
    job.block_clip->choose(target->name,
                           quantize_function_of(job, layer, *target, w.rows(begin, end), stats),
                           std::span(clip).subspan(first, count));
    begin = end;
  }
  return clip;
}

std::vector<CheckpointTensor> encode(const LinearJob& job, const std::string& name,
                                     const QuantizedWeight& weight) {
  switch (job.recipe.format) {
    case WeightFormat::kGptq:
      return encode_gptq(name, weight, gptq_storage(has_zero_points(job.recipe, job.overrides)));
    case WeightFormat::kAwq:
      return encode_awq(name, weight);
    case WeightFormat::kPackedInt:
      return encode_pack_quantized(name, weight);
    case WeightFormat::kInt8:
      return encode_int_quantized(name, weight);
    case WeightFormat::kQoq:
      return encode_qoq(name, weight);
    case WeightFormat::kFmpq:
      return encode_fmpq(name, weight,
                         {.input_perm = job.plan->perm,
                          .num_s8_blocks = job.plan->num_s8_blocks,
                          .s4_clip = job.plan->s4_clip});
    case WeightFormat::kFp8Channel:
    case WeightFormat::kFp8Tensor:
    case WeightFormat::kNestedFp:
    case WeightFormat::kDense:
      break;
  }
  HALLEY_CHECK(false, name);
  return {};
}

void append(QuantizedLinear& result, std::vector<CheckpointTensor> tensors) {
  for (CheckpointTensor& tensor : tensors) result.tensors.push_back(std::move(tensor));
}

void quantize_integers(LayerInWork& layer, const LinearJob& job,
                       std::span<const Target* const> targets, QuantizedLinear& result) {
  StackedWeight stacked(layer.tensors, targets, job.plan);
  const Matrix w = stacked.matrix();
  InputStats stats =
      copy_of(job.packed_stats != nullptr ? *job.packed_stats : layer.stats.of(job.spec));
  const bool is_in_order = job.packed_stats != nullptr || job.plan == nullptr;
  if (!is_in_order && !job.plan->perm.empty()) permute_stats(stats, job.plan->perm);
  const auto rule =
      rule_of(job.recipe, *targets.front(), w)(find_clip(job, layer, targets, w, stats));
  const QuantizedWeight quantized =
      solve_codes(job.recipe, layer, targets.front()->name, w, *rule, std::move(stats));
  int64_t begin = 0;
  for (const Target* target : targets) {
    const int64_t N = weight_matrix(layer.tensors, target->name).num_rows;
    append(result, encode(job, target->name, slice_rows(quantized, begin, N)));
    begin += N;
  }
}

void quantize_fp8(LayerInWork& layer, const LinearJob& job, const Target& target,
                  QuantizedLinear& result) {
  std::optional<float> input_scale;
  if (job.recipe.is_activation_static) {
    const InputStats& stats = layer.stats.of(job.spec);
    const float largest = *std::max_element(stats.abs_max.begin(), stats.abs_max.end());
    if (stats.num_tokens == 0 || largest == 0) {
      throw InputError(str(target.name, ": expected calibration tokens that reach the layer, got ",
                           stats.num_tokens, ". Use more text, or dynamic activations."));
    }
    input_scale = e4m3_scale(largest);
  }
  const std::span<const float> w = layer.tensors.f32(target.name + ".weight");
  const int64_t K = job.spec.in_features;
  const bool is_per_tensor = job.recipe.format == WeightFormat::kFp8Tensor;
  append(result,
         encode_float8(target.name, w, K,
                       is_per_tensor ? Float8Scales::kTensor : Float8Scales::kOutput, input_scale));
}

/// False: an exception, which stays in f16, or as it is where a value overflows f16.
bool quantize_nested(LayerInWork& layer, const LinearJob& job, const Target& target,
                     QuantizedLinear& result) {
  const TensorInfo& info = *layer.tensors.find(target.name + ".weight");
  NestedFpLayer encoded = encode_nestedfp(layer.context, target.name, layer.tensors.view(info));
  if (encoded.tensors.empty()) return false;
  const DType stored = stored_type_of(*job.original, info.name, job.dense_dtype);
  if (stored != DType::kF16) {
    result.roundings.push_back({.name = info.name,
                                .dtype = name_of(stored),
                                .rounding = encoded.rounding,
                                .kept_because = {}});
  }
  append(result, std::move(encoded.tensors));
  if (encoded.exception.empty()) return true;
  layer.notes.push_back(str(target.name, " stays f16: ", encoded.exception));
  return false;
}

}  // namespace

bool is_quantized(const LinearJob& job) {
  const std::vector<Target> targets = targets_of(job);
  return std::any_of(targets.begin(), targets.end(),
                     [](const Target& target) { return !target.is_dense; });
}

QuantizedLinear quantize_linear(LayerInWork& layer, const LinearJob& job) {
  std::vector<Target> targets = targets_of(job);
  QuantizedLinear result;
  std::vector<const Target*> waiting;
  for (Target& target : targets) {
    if (target.is_dense) continue;
    if (is_fp8(job.recipe.format)) {
      quantize_fp8(layer, job, target, result);
    } else if (job.recipe.format == WeightFormat::kNestedFp) {
      target.is_dense = !quantize_nested(layer, job, target, result);
    } else {
      waiting.push_back(&target);
    }
  }
  while (!waiting.empty()) {
    // Targets with the same grid options are solved together: they share the input's Hessian.
    const GridOptions grid = waiting.front()->grid;
    std::vector<const Target*> together, rest;
    for (const Target* target : waiting) {
      (have_same_grid(target->grid, grid) ? together : rest).push_back(target);
    }
    quantize_integers(layer, job, together, result);
    waiting = std::move(rest);
  }
  for (const Target& target : targets) {
    result.written.push_back({.name = target.name,
                              .is_quantized = !target.is_dense,
                              .bits = target.grid.bits,
                              .group_size = target.declared_group,
                              .is_symmetric = target.grid.is_symmetric});
  }
  return result;
}

}  // namespace halley
