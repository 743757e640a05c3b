#include "halley/models/all/load_model.h"

#include <utility>

#include "halley/models/base/decoder.h"
#include "halley/models/base/decoder_parts.h"
#include "halley/models/base/decoder_weights.h"
#include "halley/quant/all/formats.h"

namespace halley {
namespace {

const char* kind_name(PartKind kind) {
  switch (kind) {
    case PartKind::kEmbedding:
      return "embedding";
    case PartKind::kPositions:
      return "embedding";
    case PartKind::kNorm:
      return "norm";
    case PartKind::kLinear:
      break;
  }
  return "linear";
}

size_t bytes_per_token(const ModelShape& shape) {
  const auto numbers =
      static_cast<size_t>(2 * shape.num_layers * shape.num_kv_heads * shape.head_dim);
  return numbers * static_cast<size_t>(bits_of(shape.kv_dtype_default) / 8);
}

ModelPlan plan_decoder(DecoderConfig decoder, const TensorSource& source,
                       const QuantScheme& scheme) {
  ModelPlan plan;
  plan.config = std::move(decoder);
  plan.format = scheme.format_name();
  for (const DecoderPart& part : list_decoder_parts(plan.config)) {
    plan.parts.push_back({.name = part.name,
                          .kind = kind_name(part.kind),
                          .plan = plan_part(plan.config, part, source, scheme)});
    plan.packed_bytes += plan.parts.back().plan.packed_bytes;
  }
  check_all_tensors_used(plan.config, source, scheme);
  for (const TensorInfo& info : source.tensors()) plan.stored_bytes += info.num_bytes;
  plan.kv_bytes_per_token = bytes_per_token(shape_of(plan.config));
  return plan;
}

}  // namespace

ModelPlan plan_model(const HfConfig& config, const TensorSource& source, int64_t max_length) {
  const std::unique_ptr<QuantScheme> scheme = detect_quant_scheme(config, source);
  return plan_decoder(read_decoder_config(config, source, max_length), source, *scheme);
}

std::unique_ptr<CausalLm> load_decoder(ExecContext& context, const HfConfig& config,
                                       DecoderConfig decoder, const TensorSource& source,
                                       const LoadProgress& progress) {
  const std::unique_ptr<QuantScheme> scheme = detect_quant_scheme(config, source);
  ModelPlan plan = plan_decoder(std::move(decoder), source, *scheme);
  size_t done = 0;
  const auto on_part = [&](size_t num_bytes) {
    done += num_bytes;
    if (progress) progress(done, plan.packed_bytes);
  };
  DecoderWeights weights = load_decoder_weights(
      context, plan.config, {.source = source, .scheme = *scheme, .on_part = on_part});
  return std::make_unique<Decoder>(context, std::move(plan.config), std::move(weights));
}

std::unique_ptr<CausalLm> load_model(ExecContext& context, const HfConfig& config,
                                     const TensorSource& source, const LoadProgress& progress,
                                     int64_t max_length) {
  return load_decoder(context, config, read_decoder_config(config, source, max_length), source,
                      progress);
}

std::vector<TensorInfo> list_dense_tensors(const DecoderConfig& config) {
  return list_decoder_tensors(config);
}

}  // namespace halley
