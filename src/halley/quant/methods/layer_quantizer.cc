#include "halley/quant/methods/layer_quantizer.h"

#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "halley/base/check.h"
#include "halley/base/str.h"
#include "halley/kernels/linalg/linalg.h"
#include "halley/quant/awq/encode.h"
#include "halley/quant/compressed_tensors/encode.h"
#include "halley/quant/fmpq/encode.h"
#include "halley/quant/gptq/encode.h"
#include "halley/quant/methods/block_clip.h"
#include "halley/quant/methods/dense_types.h"
#include "halley/quant/methods/linear_quantizer.h"
#include "halley/quant/nestedfp/encode.h"
#include "halley/quant/qoq/encode.h"

namespace halley {
namespace {

/// Adds the tensors that stay as they are: norms, biases, layers that are not quantized.
void add_dense_tensors(const Recipe& recipe, const LayerInWork& layer, const TensorSource& original,
                       DType dense_dtype, LayerResult& result) {
  std::set<std::string> done;
  for (const CheckpointTensor& tensor : result.tensors) done.insert(tensor.info.name);
  for (const WrittenLayer& written : result.written) {
    if (written.is_quantized) done.insert(written.name + ".weight");
  }
  for (const TensorInfo& info : layer.tensors.tensors()) {
    if (done.count(info.name) > 0) continue;
    result.tensors.push_back(
        to_written_type(layer.context, recipe, info.name, layer.tensors.view(info),
                        stored_type_of(original, info.name, dense_dtype), result.roundings));
  }
}

void add_linear(const LinearJob& job, LayerInWork& layer, LayerResult& result) {
  QuantizedLinear quantized = quantize_linear(layer, job);
  for (CheckpointTensor& tensor : quantized.tensors) {
    result.tensors.push_back(std::move(tensor));
  }
  for (RoundingReport& report : quantized.roundings) result.roundings.push_back(std::move(report));
  for (WrittenLayer& written : quantized.written) {
    const Matrix w = weight_matrix(layer.tensors, written.name);
    LinearReport report = {.name = written.name,
                           .is_quantized = written.is_quantized,
                           .bits = written.is_quantized ? written.bits : 16,
                           .num_weights = w.num_rows * w.num_cols};
    if (job.plan != nullptr && written.is_quantized) {
      report.s4_share = 1.0 - static_cast<double>(job.plan->num_s8_blocks) /
                                  static_cast<double>(job.plan->num_blocks);
    }
    result.reports.push_back(std::move(report));
    result.written.push_back(std::move(written));
  }
}

const LinearOp& op_of(const LayerSpec& spec, const LayerWeights& weights,
                      const LinearSpec* linear) {
  if (linear == &spec.qkv) return weights.qkv;
  if (linear == &spec.o) return weights.o;
  if (spec.mlp.router && linear == &*spec.mlp.router) return *weights.mlp.router;
  for (size_t i = 0; i < spec.mlp.gate_up.size(); ++i) {
    if (linear == &spec.mlp.gate_up[i]) return weights.mlp.gate_up[i];
    if (linear == &spec.mlp.down[i]) return weights.mlp.down[i];
  }
  HALLEY_CHECK(false, linear->display_name());
  return weights.o;
}

double relative_error(ConstMatrix expected, ConstMatrix got) {
  double error = 0, total = 0;
  for (int64_t m = 0; m < expected.num_rows; ++m) {
    const float* y = expected.row<float>(m);
    const float* z = got.row<float>(m);
    for (int64_t n = 0; n < expected.num_cols; ++n) {
      const double difference = double{z[n]} - double{y[n]};
      error += difference * difference;
      total += double{y[n]} * double{y[n]};
    }
  }
  return total > 0 ? std::sqrt(error / total) : 0;
}

void measure_linear(LayerInWork& layer, const LinearSpec& linear, const LinearOp& op,
                    std::vector<LinearReport>& reports) {
  const InputStats& stats = layer.stats.of(linear);
  if (stats.num_rows == 0) return;
  const ConstMatrix x = stats.row_matrix();
  std::vector<float> written(static_cast<size_t>(x.num_rows * op.out_features()));
  const Matrix y = f32_matrix(written.data(), x.num_rows, op.out_features());
  op.run(layer.context, x, y);
  if (!op.bias().empty()) {
    for (int64_t m = 0; m < y.num_rows; ++m) {
      for (int64_t n = 0; n < y.num_cols; ++n) {
        y.row<float>(m)[n] -= op.bias()[static_cast<size_t>(n)];
      }
    }
  }
  // Parts are consecutive outputs; those of one stored tensor are one row of the report.
  int64_t begin = 0;
  for (const std::string& name : stored_names(linear)) {
    const Matrix w = weight_matrix(layer.tensors, name);
    std::vector<float> original(static_cast<size_t>(x.num_rows * w.num_rows));
    const Matrix expected = f32_matrix(original.data(), x.num_rows, w.num_rows);
    multiply_transposed(layer.context, x, w, expected);
    for (LinearReport& report : reports) {
      if (report.name != name) continue;
      report.relative_error = relative_error(expected, y.cols(begin, begin + w.num_rows));
    }
    begin += w.num_rows;
  }
}

}  // namespace

LayerResult quantize_layer(const Recipe& recipe, std::span<const LayerOverride> overrides,
                           LayerInWork& layer, const TensorSource& original, DType dense_dtype,
                           const LayerRuns& runs) {
  transform_layer(recipe, layer);
  const std::vector<ScalePoint> points = list_scale_points(layer.config, layer.index);
  std::map<const LinearSpec*, InputPlan> plans;
  if (recipe.format == WeightFormat::kFmpq) {
    for (const ScalePoint& point : points) {
      const InputPlan plan = plan_input(recipe, layer, point);
      for (const LinearSpec* linear : point.consumers) {
        if (is_quantized({recipe, overrides, *linear})) plans.emplace(linear, plan);
      }
    }
  }
  // Clip search and error feedback use the inputs that the kernels will see.
  std::optional<RoundedStats> rounded;
  if (!plans.empty() && (recipe.is_clipped || recipe.is_compensated)) {
    rounded.emplace(layer.context, plans);
    runs.whole(layer.tensors, *rounded);
    rounded->finish();
  }
  std::optional<BlockClip> block_clip;
  if (recipe.has_block_clip) {
    const std::string rejection = why_not_clip_by_block(layer.spec());
    if (rejection.empty()) {
      block_clip.emplace(layer, runs.attention);
    } else {
      layer.notes.push_back(str("layers.", layer.index, ": no block clip: ", rejection));
    }
  }
  LayerResult result;
  for (const LinearSpec* linear : list_linears(layer.spec())) {
    LinearJob job = {.recipe = recipe,
                     .overrides = overrides,
                     .spec = *linear,
                     .original = &original,
                     .dense_dtype = dense_dtype};
    if (const auto plan = plans.find(linear); plan != plans.end()) {
      job.plan = &plan->second;
      if (rounded) job.packed_stats = &rounded->of(*linear);
    }
    if (linear == &layer.spec().qkv && block_clip) job.block_clip = &*block_clip;
    add_linear(job, layer, result);
  }
  add_dense_tensors(recipe, layer, original, dense_dtype, result);
  result.notes = std::move(layer.notes);
  return result;
}

void measure_errors(LayerInWork& layer, const LayerWeights& weights,
                    std::vector<LinearReport>& reports) {
  for (const LinearSpec* linear : list_linears(layer.spec())) {
    measure_linear(layer, *linear, op_of(layer.spec(), weights, linear), reports);
  }
}

std::optional<OrderedJson> declaration_of(const Recipe& recipe,
                                          std::span<const LayerOverride> overrides,
                                          std::span<const WrittenLayer> written,
                                          const ModelTotals* totals) {
  const WrittenFormat format = {.bits = recipe.bits,
                                .group_size = recipe.group_size,
                                .is_symmetric = recipe.is_symmetric,
                                .has_zero_points = has_zero_points(recipe, overrides),
                                .has_act_order = recipe.has_act_order && !recipe.has_static_groups,
                                .has_static_groups = recipe.has_static_groups,
                                .damp = recipe.damp,
                                .is_per_tensor = recipe.format == WeightFormat::kFp8Tensor,
                                .is_activation_static = recipe.is_activation_static,
                                .kv_bits = recipe.kv_bits,
                                .layers = {written.begin(), written.end()}};
  switch (recipe.format) {
    case WeightFormat::kDense:
      return std::nullopt;
    case WeightFormat::kGptq:
      return gptq_declaration(format);
    case WeightFormat::kAwq:
      return awq_declaration(format);
    case WeightFormat::kPackedInt:
      return compressed_tensors_declaration(format, CodeStorage::kPacked);
    case WeightFormat::kInt8:
      return compressed_tensors_declaration(format, CodeStorage::kInt8);
    case WeightFormat::kFp8Channel:
    case WeightFormat::kFp8Tensor:
      return compressed_tensors_declaration(format, CodeStorage::kFloat8);
    case WeightFormat::kQoq:
      return qoq_declaration(format);
    case WeightFormat::kFmpq:
      return fmpq_declaration(format,
                              totals == nullptr ? std::nullopt : std::optional(totals->s4_share));
    case WeightFormat::kNestedFp:
      break;
  }
  return nestedfp_declaration(format, totals == nullptr ? RoundedModel() : totals->rounded);
}

}  // namespace halley
