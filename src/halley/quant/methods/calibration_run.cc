#include "halley/quant/methods/calibration_run.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/models/base/decoder_step.h"
#include "halley/quant/base/dense_tensor.h"

namespace halley {
namespace {

constexpr int64_t kPageTokens = 16;
// Rows of one step: enough for kernels to be at their best, few enough for small buffers.
constexpr int64_t kStepRows = 2048;

void check_tokens(const DecoderConfig& config, const CalibrationTokens& tokens) {
  if (tokens.sequence_length > config.max_positions) {
    throw InputError(str("calibration: expected sequences of at most ", config.max_positions,
                         " tokens, the model's longest, got ", tokens.sequence_length,
                         ". Ask for shorter ones."));
  }
  for (const int32_t id : tokens.ids) {
    if (id >= 0 && id < config.vocab_size) continue;
    throw InputError(str("calibration: expected token ids of 0 to ", config.vocab_size - 1,
                         ", got ", id, ". Check that the tokenizer belongs to the model."));
  }
}

/// Row ids[m] of a table [num_rows, K] times `scale`, added to row m of `hidden`.
void add_table_rows(const TensorView& table, std::span<const int32_t> ids, float scale,
                    Matrix hidden) {
  for (size_t m = 0; m < ids.size(); ++m) {
    const std::vector<float> row = to_f32(table.rows(ids[m], ids[m] + 1));
    float* out = hidden.row<float>(static_cast<int64_t>(m));
    for (size_t k = 0; k < row.size(); ++k) out[k] += row[k] * scale;
  }
}

}  // namespace

CalibrationTokens cut_calibration_tokens(std::span<const int32_t> text, int64_t num_sequences,
                                         int64_t length) {
  const auto num_ids = static_cast<int64_t>(text.size());
  if (num_ids < length || length < 1 || num_sequences < 1) {
    throw InputError(str("calibration text: expected at least one sequence of ", length,
                         " tokens, got ", num_ids,
                         " tokens. Give a longer text or ask for shorter "
                         "sequences."));
  }
  const int64_t count = std::min(num_sequences, num_ids / length);
  CalibrationTokens tokens = {.ids = {}, .sequence_length = length};
  for (int64_t i = 0; i < count; ++i) {
    const int64_t begin = count == 1 ? 0 : i * (num_ids - length) / (count - 1);
    tokens.ids.insert(tokens.ids.end(), text.begin() + begin, text.begin() + begin + length);
  }
  return tokens;
}

CalibrationRun::CalibrationRun(ExecContext& context, const DecoderConfig& config,
                               CalibrationTokens tokens, const TensorSource& source)
    : context_(context), config_(config), tokens_(std::move(tokens)) {
  check_tokens(config, tokens_);
  const int64_t K = config.hidden_size;
  hidden_ = HostBuffer(static_cast<size_t>(num_tokens() * K) * sizeof(float));
  std::memset(hidden_.data(), 0, hidden_.num_bytes());
  const Matrix hidden = f32_matrix(hidden_.as<float>().data(), num_tokens(), K);
  const TensorInfo& table =
      find_dense_tensor(source, config.embedding_name, {config.vocab_size, K});
  add_table_rows(source.view(table), tokens_.ids, config.embedding_scale, hidden);
  source.release(table);
  if (config.position_embedding_name.empty()) return;
  const int64_t num_rows = config.num_stored_positions + config.position_offset;
  const TensorInfo& positions =
      find_dense_tensor(source, config.position_embedding_name, {num_rows, K});
  std::vector<int32_t> rows;
  for (int64_t i = 0; i < num_tokens(); ++i) {
    rows.push_back(static_cast<int32_t>(i % tokens_.sequence_length + config.position_offset));
  }
  add_table_rows(source.view(positions), rows, 1.0f, hidden);
}

void CalibrationRun::run_layer(int64_t layer_index, const LayerWeights& weights, const Pass& pass) {
  const bool is_partial = pass.is_attention_only || pass.num_sequences_max > 0;
  HALLEY_CHECK(!(is_partial && pass.is_kept), layer_index);
  const int64_t T = tokens_.sequence_length, K = config_.hidden_size;
  const int64_t num_sequences = pass.num_sequences_max > 0
                                    ? std::min(pass.num_sequences_max, tokens_.num_sequences())
                                    : tokens_.num_sequences();
  const int64_t batch_size = std::min(std::max<int64_t>(1, kStepRows / T), num_sequences);
  const int64_t num_pages = ceil_div(T, kPageTokens);
  const KvPageLayout layout = {.dtype = pass.kv_dtype,
                               .num_kv_heads = config_.num_kv_heads,
                               .head_dim = config_.head_dim,
                               .page_tokens = kPageTokens};
  HostBuffer pages(static_cast<size_t>(num_pages * batch_size) * layout.page_bytes());
  const KvLayerView cache = {
      .layout = layout, .pages = pages.data(), .num_pages = num_pages * batch_size};
  std::vector<int32_t> page_table(static_cast<size_t>(num_pages * batch_size));
  for (size_t i = 0; i < page_table.size(); ++i) page_table[i] = static_cast<int32_t>(i);
  const Matrix all = f32_matrix(hidden_.as<float>().data(), num_tokens(), K);
  std::vector<RopeAngles> angles(config_.ropes.size());
  HostBuffer scratch(static_cast<size_t>(batch_size * T * K) * sizeof(float));
  const LayerSpec& spec = config_.layers.at(static_cast<size_t>(layer_index));

  for (int64_t first = 0; first < num_sequences; first += batch_size) {
    const int64_t count = std::min(batch_size, num_sequences - first);
    std::vector<BatchSequence> sequences;
    std::vector<int32_t> positions;
    for (int64_t i = 0; i < count; ++i) {
      sequences.push_back({.first_row = i * T,
                           .num_new_tokens = T,
                           .num_past_tokens = 0,
                           .page_table = std::span(page_table)
                                             .subspan(static_cast<size_t>(i * num_pages),
                                                      static_cast<size_t>(num_pages))});
      for (int64_t t = 0; t < T; ++t) positions.push_back(static_cast<int32_t>(t));
    }
    compute_angles(context_, config_, positions, angles);
    const ForwardBatch batch = {
        .token_ids = std::span(tokens_.ids)
                         .subspan(static_cast<size_t>(first * T), static_cast<size_t>(count * T)),
        .sequences = sequences,
        .logit_rows = {}};
    const Matrix rows = all.rows(first * T, (first + count) * T);
    Matrix hidden = rows;
    if (!pass.is_kept) {
      hidden = f32_matrix(scratch.as<float>().data(), count * T, K);
      std::memcpy(hidden.data, rows.data, static_cast<size_t>(count * T * K) * sizeof(float));
    }
    const DecoderStep step = {context_, config_, batch, angles, workspace_, pass.observer};
    if (pass.is_attention_only) {
      const Matrix out = workspace_.take(Slot::kBlockOut, hidden.num_rows, K);
      if (spec.input_norm) apply_norm(step, weights.input_norm, hidden, hidden);
      attention_block(step, spec, weights, cache, hidden, out);
    } else {
      halley::run_layer(step, spec, weights, cache, hidden);
    }
    if (pass.on_rows) pass.on_rows(count * T);
  }
}

}  // namespace halley
