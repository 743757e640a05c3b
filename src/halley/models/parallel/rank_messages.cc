#include "halley/models/parallel/rank_messages.h"

#include <algorithm>

namespace halley {
namespace {

/// A sequence without its page table.
struct RankSequence {
  int64_t first_row = 0, num_new_tokens = 0, num_past_tokens = 0, num_pages = 0;
};

struct Header {
  RankCall call = RankCall::kEnd;
  uint64_t num_bytes = 0;
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

std::optional<int64_t> least_free_bytes(Communicator& ranks, std::optional<int64_t> own) {
  constexpr int64_t kUnknown = -1;
  const int64_t bytes = own.value_or(kUnknown);
  std::vector<int64_t> all(static_cast<size_t>(ranks.num_ranks()));
  ranks.all_gather(&bytes, sizeof(bytes), all.data());
  const int64_t least = *std::min_element(all.begin(), all.end());
  return least == kUnknown ? std::nullopt : std::optional(least);
}

void send_call(Communicator& ranks, RankCall call, std::span<const std::byte> message) {
  Header header = {call, message.size()};
  ranks.broadcast_idle(&header, sizeof(header), 0);
  if (message.empty()) return;
  std::vector<std::byte> bytes(message.begin(), message.end());
  ranks.broadcast(bytes.data(), bytes.size(), 0);
}

RankCall receive_call(Communicator& ranks, std::vector<std::byte>& message) {
  Header header;
  ranks.broadcast_idle(&header, sizeof(header), 0);
  message.resize(header.num_bytes);
  if (header.num_bytes > 0) ranks.broadcast(message.data(), message.size(), 0);
  return header.call;
}

}  // namespace halley
