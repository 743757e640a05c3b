// The GPU's choice for a row, with its threads emulated on the host, against the CPU's sampler.
#include "halley/sampling/cuda/choose_row.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "halley/base/str.h"
#include "halley/sampling/base/sampler.h"
#include "halley/sampling/cuda/emulated_row.h"
#include "halley/sampling/cuda/sampling_cases.h"

namespace halley::cuda {
namespace {

/// A slot in host memory, as start_slot() leaves it in the GPU's.
struct HostSlot {
  HostSlot(const SamplingCase& what, int64_t vocab_size)
      : marks(static_cast<size_t>(vocab_size / 32 + 1)), words(static_cast<size_t>(vocab_size)) {
    const TokenChoice choice = make_token_choice(what);
    write_slot_image(choice, what.prompt_ids, what.output_ids, *image);
    const SlotState& state = image->state;
    const auto mark = [&](int32_t id) {
      marks[static_cast<size_t>(id) / 32] |= uint32_t{1} << (id % 32);
    };
    for (int i = 0; i < state.num_biases; ++i) mark(image->bias_ids[i]);
    for (int i = 0; i < state.num_stop_ids; ++i) mark(image->stop_ids[i]);
    if (!has_penalty(state.params)) return;
    if (state.params.repetition_penalty != 1) {
      for (const int32_t id : what.prompt_ids) {
        words[static_cast<size_t>(id)] |= kIsInPrompt;
        mark(id);
      }
    }
    for (const int32_t id : what.output_ids) {
      ++words[static_cast<size_t>(id)];
      mark(id);
    }
  }
  SlotView view() { return {image.get(), marks.data(), words.data(), &last_token}; }

  std::unique_ptr<SlotImage> image = std::make_unique<SlotImage>();
  std::vector<uint32_t> marks, words;
  int32_t last_token = 0;
};

template <int kThreads, int kNumCtas>
class EmulatedSampler {
 public:
  ChosenToken choose(const std::vector<float>& logits, HostSlot& slot,
                     const uint32_t* allowed = nullptr) {
    ChoiceRecord record;
    using Machine = typename EmulatedRow<kThreads, kNumCtas>::Machine;
    memory_.fibers.run(kThreads * kNumCtas, ++num_runs_, [&](int index) {
      Machine machine(memory_, index);
      RowTeam<Machine> team(machine, logits.data(), static_cast<int>(logits.size()),
                            logits.size() % 4 == 0);
      RowChooser<Machine> chooser(team, slot.view(), allowed);
      chooser.choose(record);
    });
    return to_chosen_token(record);
  }

 private:
  typename EmulatedRow<kThreads, kNumCtas>::Memory memory_;
  uint32_t num_runs_ = 0;
};

/// Words of 32 bits for a whole vocabulary.
std::vector<uint32_t> words_of(const TokenMask& mask, int64_t vocab_size) {
  std::vector<uint32_t> words(static_cast<size_t>(vocab_size / 32 + 1));
  for (int64_t id = 0; id < vocab_size; ++id) {
    if (has_token(mask, static_cast<size_t>(id))) {
      words[static_cast<size_t>(id) / 32] |= uint32_t{1} << (id % 32);
    }
  }
  return words;
}

/// Several tokens of a sequence, each from new logits; with `has_masks` among the tokens of a mask.
template <class Emulated>
void compare_sequence(Emulated& emulated, int64_t vocab_size, LogitKind kind, int num_tokens,
                      std::mt19937& random, bool has_masks = false) {
  const SamplingCase what = random_sampling_case(vocab_size, random);
  Sampler sampler = make_sampler(what);
  HostSlot slot(what, vocab_size);
  SamplerScratch scratch;
  for (int i = 0; i < num_tokens; ++i) {
    const std::vector<float> logits = random_logits(kind, vocab_size, random);
    SampledToken expected;
    TokenMask mask;
    std::vector<uint32_t> words;
    if (has_masks) {
      mask = random_mask(vocab_size, i % 2 == 0 ? 3 : 50, random);
      words = words_of(mask, vocab_size);
    }
    const SampleStatus status =
        sampler.sample(logits, scratch, expected, has_masks ? &mask : nullptr);
    const ChosenToken got = emulated.choose(logits, slot, has_masks ? words.data() : nullptr);
    const std::string where = str("V ", vocab_size, ", kind ", static_cast<int>(kind), ", token ",
                                  i, ", ", to_string(what));
    ASSERT_EQ(static_cast<int>(got.status), static_cast<int>(status)) << where;
    if (status != SampleStatus::kChosen) continue;
    ASSERT_EQ(difference_of(got.token, expected), "") << where;
    ASSERT_EQ(slot.last_token, expected.token_id) << where;
  }
}

TEST(ChooseRow, ChoosesWhatTheSamplerChooses) {
  std::mt19937 random(1);
  EmulatedSampler<32, 4> emulated;
  for (const int64_t vocab_size : {1, 2, 17, 128, 129, 257, 1000}) {
    for (int kind = 0; kind < static_cast<int>(LogitKind::kEnd); ++kind) {
      for (int i = 0; i < 4; ++i) {
        compare_sequence(emulated, vocab_size, static_cast<LogitKind>(kind), 2, random);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(ChooseRow, ChoosesAmongTheTokensOfAMask) {
  std::mt19937 random(5);
  EmulatedSampler<32, 4> emulated;
  for (const int64_t vocab_size : {1, 17, 129, 1000}) {
    for (int kind = 0; kind < static_cast<int>(LogitKind::kEnd); ++kind) {
      for (int i = 0; i < 4; ++i) {
        compare_sequence(emulated, vocab_size, static_cast<LogitKind>(kind), 3, random, true);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(ChooseRow, DoesNotDependOnTheNumberOfThreads) {
  std::mt19937 random(2);
  EmulatedSampler<64, 2> emulated;
  for (int i = 0; i < 20; ++i) {
    compare_sequence(emulated, 700, LogitKind::kPeaked, 4, random);
    if (HasFatalFailure()) return;
  }
}

// Half of the tokens have weight 1, the others nearly equal ones: a small mistake in the sum of the
// latter changes how many of them are kept.
TEST(RowSelection, KeepsAsManyTokensAsTheSampler) {
  constexpr int kVocabSize = 3000;
  using Row = EmulatedRow<64, 2>;
  using Machine = Row::Machine;
  Row::Memory memory;
  std::mt19937 random(4);
  SamplerScratch scratch;
  for (uint32_t i = 0; i < 20; ++i) {
    std::vector<float> logits = random_logits(LogitKind::kNormal, kVocabSize, random);
    for (size_t id = 0; id < logits.size(); ++id) {
      logits[id] = id % 2 == 0 ? 0 : 0.01f * logits[id] - 0.5f;
    }
    SamplingParams params;
    params.top_p = std::uniform_real_distribution<double>(0.65, 1)(random);
    ASSERT_EQ(Sampler(token_choice_of(params, {}, 0), {}).filter(logits, scratch),
              SampleStatus::kChosen);
    const float max = *std::max_element(logits.begin(), logits.end());
    Threshold threshold;
    memory.fibers.run(128, i, [&](int index) {
      Machine machine(memory, index);
      RowTeam<Machine> team(machine, logits.data(), kVocabSize, true);
      const ScoreScale scale = score_scale(max, 1);
      const auto candidate = [&](int32_t, float logit, bool, double& score, double& position) {
        score = double{logit};
        position = position_of(scale, score);
        return true;
      };
      RowSelection<Machine, decltype(candidate)> selection(
          team, nullptr, scale, {.is_of_weight = true, .part = params.top_p}, candidate);
      threshold = selection.find();
    });
    size_t num_kept = 0;
    for (int32_t id = 0; id < kVocabSize; ++id) {
      num_kept += passes(threshold, double{logits[static_cast<size_t>(id)]}, id) ? 1 : 0;
    }
    ASSERT_EQ(num_kept, scratch.candidates.size()) << params.top_p;
  }
}

TEST(ChooseRow, CountsTheTokensOfALongOutput) {
  std::mt19937 random(3);
  EmulatedSampler<64, 2> emulated;
  for (int i = 0; i < 4; ++i) {
    compare_sequence(emulated, 40, LogitKind::kNormal, 40, random);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace halley::cuda
