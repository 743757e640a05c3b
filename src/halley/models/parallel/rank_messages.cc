#include "halley/models/parallel/rank_messages.h"

namespace halley {
namespace {

/// A sequence without its page table.
struct RankSequence {
  int64_t first_row = 0, num_new_tokens = 0, num_past_tokens = 0, num_pages = 0;
};

}  // namespace

std::vector<std::byte> write_step(const ForwardBatch& batch, Precision precision,
                                  std::span<const RankLayer> layers) {
  MessageWriter writer;
  writer.put(precision);
  writer.put_array(layers);
  writer.put_array(batch.token_ids);
  writer.put_array(batch.logit_rows);
  std::vector<RankSequence> sequences;
  std::vector<int32_t> pages;
  for (const BatchSequence& sequence : batch.sequences) {
    const auto num_pages = static_cast<int64_t>(sequence.page_table.size());
    sequences.push_back(
        {sequence.first_row, sequence.num_new_tokens, sequence.num_past_tokens, num_pages});
    pages.insert(pages.end(), sequence.page_table.begin(), sequence.page_table.end());
  }
  writer.put_array(std::span<const RankSequence>(sequences));
  writer.put_array(std::span<const int32_t>(pages));
  return writer.bytes();
}

RankStep read_step(std::span<const std::byte> bytes) {
  MessageReader reader(bytes);
  RankStep step;
  step.precision = reader.take<Precision>();
  reader.take_array(step.layers);
  reader.take_array(step.token_ids);
  reader.take_array(step.logit_rows);
  std::vector<RankSequence> sequences;
  reader.take_array(sequences);
  reader.take_array(step.pages);
  std::span<const int32_t> pages = step.pages;
  for (const RankSequence& sequence : sequences) {
    const auto num_pages = static_cast<size_t>(sequence.num_pages);
    step.sequences.push_back({.first_row = sequence.first_row,
                              .num_new_tokens = sequence.num_new_tokens,
                              .num_past_tokens = sequence.num_past_tokens,
                              .page_table = pages.first(num_pages)});
    pages = pages.subspan(num_pages);
  }
  return step;
}

}  // namespace halley
