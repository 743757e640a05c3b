#include "halley/models/base/low_rank.h"

#include "halley/base/check.h"
#include "halley/kernels/norm/norm.h"
#include "halley/models/base/decoder_step.h"

namespace halley {
namespace {

void add_parts(const DecoderStep& step, const std::vector<LowRankPart>& parts, ConstMatrix x,
               Matrix y) {
  for (const LowRankPart& part : parts) {
    const int64_t num_outputs = part.b.out_features();
    const Matrix inner = step.workspace.take(Slot::kLowRank, x.num_rows, part.a.out_features());
    part.a.run(step.context, x, inner);
    const Matrix added = step.workspace.take(Slot::kLowRankOut, x.num_rows, num_outputs);
    part.b.run(step.context, inner, added);
    add_rows(step.context, added, y.cols(part.first_output, part.first_output + num_outputs));
  }
}

}  // namespace

void add_low_rank(const DecoderStep& step, const LinearSpec& spec, ConstMatrix x, Matrix y) {
  const ForwardBatch& batch = step.batch;
  for (size_t i = 0; i < batch.adapters.size();) {
    // Sequences that follow each other with the same adapter are one run of rows.
    const Adapter* adapter = batch.adapters[i];
    const int64_t begin = batch.sequences[i].first_row;
    int64_t end = begin;
    for (; i < batch.adapters.size() && batch.adapters[i] == adapter; ++i) {
      end += batch.sequences[i].num_new_tokens;
    }
    if (adapter == nullptr) continue;
    const auto layer = adapter->layers.find(spec.parts.front().name);
    if (layer == adapter->layers.end()) continue;
    HALLEY_CHECK(x.num_rows == step.num_rows(), x.num_rows, step.num_rows());
    add_parts(step, layer->second, x.rows(begin, end), y.rows(begin, end));
  }
}

}  // namespace halley
