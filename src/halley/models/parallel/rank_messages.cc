#include "halley/models/parallel/rank_messages.h"

namespace halley {
namespace {

/// A sequence without its page table.
struct RankSequence {
  int64_t first_row = 0, num_new_tokens = 0, num_past_tokens = 0, num_pages = 0;
};

void put_step(const ForwardBatch& batch, Precision precision, std::span<const RankLayer> layers,
              MessageWriter& writer) {
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
}

RankStep take_step(MessageReader& reader) {
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

/// The numbers of a TokenChoice, without its lists.
struct ChoiceNumbers {
  ChoiceParams params;
  int64_t min_tokens = 0;
  uint64_t seed = 0;
  int num_logprobs = -1;
};

struct BiasedToken {
  int32_t token_id = 0;
  double bias = 0;
};

}  // namespace

std::vector<std::byte> write_step(const ForwardBatch& batch, Precision precision,
                                  std::span<const RankLayer> layers) {
  MessageWriter writer;
  put_step(batch, precision, layers, writer);
  return writer.bytes();
}

RankStep read_step(std::span<const std::byte> bytes) {
  MessageReader reader(bytes);
  return take_step(reader);
}

std::vector<std::byte> write_slot(int32_t slot, const TokenChoice& choice,
                                  std::span<const int32_t> prompt_ids,
                                  std::span<const int32_t> output_ids) {
  MessageWriter writer;
  writer.put(slot);
  writer.put(ChoiceNumbers{choice.params, choice.min_tokens, choice.seed, choice.num_logprobs});
  std::vector<BiasedToken> biased;
  for (const auto& [id, bias] : choice.logit_bias) biased.push_back({id, bias});
  writer.put_array(std::span<const BiasedToken>(biased));
  writer.put_array(std::span<const int32_t>(choice.stop_ids));
  writer.put_array(prompt_ids);
  writer.put_array(output_ids);
  return writer.bytes();
}

RankSlot read_slot(std::span<const std::byte> bytes) {
  MessageReader reader(bytes);
  RankSlot slot;
  slot.slot = reader.take<int32_t>();
  const auto numbers = reader.take<ChoiceNumbers>();
  slot.choice = {.params = numbers.params,
                 .min_tokens = numbers.min_tokens,
                 .seed = numbers.seed,
                 .num_logprobs = numbers.num_logprobs};
  std::vector<BiasedToken> biased;
  reader.take_array(biased);
  for (const auto& [id, bias] : biased) slot.choice.logit_bias.emplace_back(id, bias);
  reader.take_array(slot.choice.stop_ids);
  reader.take_array(slot.prompt_ids);
  reader.take_array(slot.output_ids);
  return slot;
}

std::vector<std::byte> write_launch(uint64_t num_waits, const RunnerStep& step, Precision precision,
                                    std::span<const RankLayer> layers) {
  MessageWriter writer;
  writer.put(num_waits);
  writer.put_array(step.choices);
  put_step(step.batch, precision, layers, writer);
  return writer.bytes();
}

RankLaunch read_launch(std::span<const std::byte> bytes) {
  MessageReader reader(bytes);
  RankLaunch launch;
  launch.num_waits = reader.take<uint64_t>();
  reader.take_array(launch.choices);
  launch.step = take_step(reader);
  return launch;
}

std::vector<std::byte> write_choices(uint64_t num_waits, std::span<const MaskedChoice> choices) {
  MessageWriter writer;
  writer.put(num_waits);
  writer.put(static_cast<uint64_t>(choices.size()));
  for (const MaskedChoice& choice : choices) {
    writer.put(choice.slot);
    writer.put_array(std::span<const uint64_t>(*choice.allowed));
  }
  return writer.bytes();
}

RankChoices read_choices(std::span<const std::byte> bytes) {
  MessageReader reader(bytes);
  RankChoices choices;
  choices.num_waits = reader.take<uint64_t>();
  const auto count = reader.take<uint64_t>();
  for (uint64_t i = 0; i < count; ++i) {
    choices.slots.push_back(reader.take<int32_t>());
    reader.take_array(choices.allowed.emplace_back());
  }
  return choices;
}

}  // namespace halley
