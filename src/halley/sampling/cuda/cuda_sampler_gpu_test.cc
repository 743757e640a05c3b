#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "halley/base/str.h"
#include "halley/cuda/runtime/cuda_check.h"
#include "halley/cuda/runtime/cuda_graph.h"
#include "halley/cuda/runtime/pinned_buffer.h"
#include "halley/cuda/testing/device_matrix.h"
#include "halley/cuda/testing/gpu_test.h"
#include "halley/sampling/base/sampler.h"
#include "halley/sampling/cuda/cuda_sampler.h"
#include "halley/sampling/cuda/sampling_cases.h"
#include "halley/sampling/cuda/slot_state.h"

namespace halley::cuda {
namespace {

/// Every byte of a record that nobody wrote.
constexpr int kUnwritten = 0xEE;

template <typename T>
std::vector<T> read(const CudaStream& stream, const void* device, size_t count) {
  std::vector<T> values(count);
  check_cuda(cudaMemcpyAsync(values.data(), device, count * sizeof(T), cudaMemcpyDeviceToHost,
                             stream.get()),
             "copy of a test's results");
  stream.synchronize();
  return values;
}

/// Rows that are chosen from together, in slots in no order, with one CPU sampler for each row.
class Batch {
 public:
  Batch(const CudaContext& context, int64_t vocab_size, std::vector<SamplingCase> cases,
        int64_t row_gap = 16)
      : context_(context),
        vocab_size_(vocab_size),
        cases_(std::move(cases)),
        slots_(shuffled_slots(cases_.size())),
        device_slots_(slots_),
        gpu_(vocab_size, static_cast<int64_t>(cases_.size()) + 3),
        logits_(DType::kF32, static_cast<int64_t>(cases_.size()), vocab_size, row_gap),
        deferred_slots_(deferred(slots_)),
        records_(std::vector<ChoiceRecord>(cases_.size())) {
    for (size_t row = 0; row < cases_.size(); ++row) start(row);
  }

  /// The row's slot belongs to its case, from the beginning.
  void start(size_t row) {
    samplers_.resize(cases_.size(), make_sampler(cases_[row]));
    samplers_[row] = make_sampler(cases_[row]);
    gpu_.start_slot(context_.stream, slots_[row], make_token_choice(cases_[row]),
                    cases_[row].prompt_ids, cases_[row].output_ids);
  }

  void set_logits(const std::vector<std::vector<float>>& rows) {
    std::vector<float> all;
    for (const std::vector<float>& row : rows) all.insert(all.end(), row.begin(), row.end());
    context_.stream.synchronize();
    logits_.set(all);
    check_cuda(cudaMemset(records_.data(), kUnwritten, cases_.size() * sizeof(ChoiceRecord)),
               "filling a test's records");
    check_cuda(cudaDeviceSynchronize(), "filling a test's records");
  }

  void choose() const {
    gpu_.choose(context_, logits_.matrix(),
                {.slots = device_slots_.data(), .records = records_.data()});
  }

  /// The same with the logits deferred, and each row's choice among the tokens of its mask.
  void choose_deferred(std::span<const TokenMask> masks) {
    gpu_.choose(context_, logits_.matrix(),
                {.slots = deferred_slots_.data(), .records = records_.data()});
    std::vector<MaskedChoice> choices;
    for (size_t row = 0; row < masks.size(); ++row) choices.push_back({slots_[row], &masks[row]});
    const size_t num_bytes = gpu_.image_bytes(static_cast<int64_t>(choices.size()));
    context_.stream.synchronize();
    image_ = PinnedBuffer(num_bytes);
    gpu_.write_image(choices, image_.data());
    gpu_.choose_deferred(context_, image_.data(), static_cast<int64_t>(choices.size()),
                         records_.data());
  }

  std::vector<ChoiceRecord> records() const {
    return read<ChoiceRecord>(context_.stream, records_.data(), cases_.size());
  }
  int32_t last_token(size_t row) const {
    return read<int32_t>(context_.stream, gpu_.last_tokens() + slots_[row], 1)[0];
  }

  /// Compares the results of choose() with the CPU's samplers, which choose too.
  void compare(const std::vector<std::vector<float>>& rows, const std::string& where,
               std::span<const TokenMask> masks = {}) {
    const std::vector<ChoiceRecord> all = records();
    const auto last_tokens = read<int32_t>(context_.stream, gpu_.last_tokens(), cases_.size() + 3);
    for (size_t row = 0; row < rows.size(); ++row) {
      SampledToken expected;
      const SampleStatus status = samplers_[row].sample(rows[row], scratch_, expected,
                                                        masks.empty() ? nullptr : &masks[row]);
      const std::string what =
          str(where, ", V ", vocab_size_, ", row ", row, ": ", to_string(cases_[row]));
      const ChosenToken got = to_chosen_token(all[row]);
      EXPECT_EQ(static_cast<int>(got.status), static_cast<int>(status)) << what;
      if (status != SampleStatus::kChosen || got.status != status) continue;
      EXPECT_EQ(difference_of(got.token, expected), "") << what;
      EXPECT_EQ(last_tokens[static_cast<size_t>(slots_[row])], got.token.token_id) << what;
    }
  }

 private:
  static std::vector<int32_t> shuffled_slots(size_t count) {
    std::vector<int32_t> slots(count + 3);
    for (size_t i = 0; i < slots.size(); ++i) slots[i] = static_cast<int32_t>(i);
    std::mt19937 random(5);
    std::shuffle(slots.begin(), slots.end(), random);
    slots.resize(count);
    return slots;
  }

  static std::vector<int32_t> deferred(std::vector<int32_t> slots) {
    for (int32_t& slot : slots) slot |= kIsDeferred;
    return slots;
  }

  const CudaContext& context_;
  int64_t vocab_size_;
  std::vector<SamplingCase> cases_;
  std::vector<int32_t> slots_;
  DeviceArray<int32_t> device_slots_;
  CudaSampler gpu_;
  DeviceMatrix logits_;
  DeviceArray<int32_t> deferred_slots_;
  PinnedBuffer image_;
  DeviceArray<ChoiceRecord> records_;
  std::vector<Sampler> samplers_;
  SamplerScratch scratch_;
};

class CudaSamplerTest : public GpuTest {
 protected:
  std::vector<SamplingCase> random_cases(size_t count, int64_t vocab_size) {
    std::vector<SamplingCase> cases;
    for (size_t i = 0; i < count; ++i) {
      cases.push_back(random_sampling_case(vocab_size, random_));
    }
    return cases;
  }

  /// Row i has kind (first_kind + i), or `only`.
  std::vector<std::vector<float>> random_rows(size_t count, int64_t vocab_size, size_t first_kind) {
    std::vector<std::vector<float>> rows;
    for (size_t row = 0; row < count; ++row) {
      const auto kind = (first_kind + row) % static_cast<size_t>(LogitKind::kEnd);
      rows.push_back(random_logits(static_cast<LogitKind>(kind), vocab_size, random_));
    }
    return rows;
  }

  void compare_steps(int64_t vocab_size, size_t num_rows, size_t num_steps, int64_t row_gap) {
    Batch batch(context_, vocab_size, random_cases(num_rows, vocab_size), row_gap);
    for (size_t step = 0; step < num_steps; ++step) {
      const auto rows = random_rows(num_rows, vocab_size, 4 * step);
      batch.set_logits(rows);
      batch.choose();
      batch.compare(rows, str("step ", step));
      ASSERT_FALSE(HasFailure()) << "V " << vocab_size << ", " << num_rows << " rows";
    }
  }

  std::mt19937 random_{7};
};

TEST_F(CudaSamplerTest, ChoosesWhatTheCpusSamplerChooses) {
  for (const int64_t vocab_size : {1, 2, 17, 127, 128, 1000, 1025}) {
    compare_steps(vocab_size, 70, 6, 16);
    if (HasFailure()) return;
  }
  compare_steps(32000, 40, 4, 16);
}

TEST_F(CudaSamplerTest, ChoosesFromLargeVocabularies) {
  compare_steps(128256, 27, 2, 16);
  compare_steps(151936, 18, 1, 16);
  compare_steps(262208, 9, 1, 16);
}

TEST_F(CudaSamplerTest, ChoosesFromRowsAtAnyAddress) {
  compare_steps(17, 9, 3, 0);
  compare_steps(1000, 18, 3, 1);
  compare_steps(32001, 9, 2, 2);
}

TEST_F(CudaSamplerTest, GivesASequenceItsTokensOverManySteps) { compare_steps(300, 36, 60, 16); }

TEST_F(CudaSamplerTest, ChoosesAmongTheTokensOfAMaskFromLogitsThatWait) {
  for (const int64_t vocab_size : {1, 17, 127, 1000, 32001, 128256}) {
    const size_t num_rows = vocab_size > 10000 ? 18 : 45;
    Batch batch(context_, vocab_size, random_cases(num_rows, vocab_size));
    for (size_t step = 0; step < 6; ++step) {
      const auto rows = random_rows(num_rows, vocab_size, 4 * step);
      std::vector<TokenMask> masks;
      for (size_t row = 0; row < num_rows; ++row) {
        masks.push_back(random_mask(vocab_size, row % 3 == 0 ? 200 : 2, random_));
      }
      batch.set_logits(rows);
      batch.choose_deferred(masks);
      batch.compare(rows, str("step ", step), masks);
      ASSERT_FALSE(HasFailure()) << "V " << vocab_size;
    }
  }
}

TEST_F(CudaSamplerTest, GivesTheSameBitsWithAMaskOfAllTokens) {
  constexpr int64_t kVocabSize = 5000;
  constexpr size_t kNumRows = 27;
  const std::vector<SamplingCase> cases = random_cases(kNumRows, kVocabSize);
  const auto rows = random_rows(kNumRows, kVocabSize, 0);
  const std::vector<TokenMask> masks(kNumRows, TokenMask(kVocabSize / 64 + 1, ~uint64_t{0}));
  Batch plain(context_, kVocabSize, cases), masked(context_, kVocabSize, cases);
  plain.set_logits(rows);
  plain.choose();
  masked.set_logits(rows);
  masked.choose_deferred(masks);
  const auto expected = plain.records(), got = masked.records();
  for (size_t row = 0; row < kNumRows; ++row) {
    EXPECT_EQ(std::memcmp(&got[row], &expected[row], sizeof(ChoiceRecord)), 0)
        << "row " << row << ": " << to_string(cases[row]);
  }
}

TEST_F(CudaSamplerTest, GivesARowTheSameBitsInAnyBatch) {
  for (const int64_t vocab_size : {1000, 128256}) {
    constexpr size_t kNumRows = 18;
    const std::vector<SamplingCase> cases = random_cases(kNumRows, vocab_size);
    const auto rows = random_rows(kNumRows, vocab_size, 0);
    Batch together(context_, vocab_size, cases);
    together.set_logits(rows);
    together.choose();
    const std::vector<ChoiceRecord> records = together.records();
    for (size_t row = 0; row < kNumRows; ++row) {
      // In other bytes of memory, and with loads of single logits where it is alone.
      Batch alone(context_, vocab_size, {cases[row]}, 1);
      alone.set_logits({rows[row]});
      alone.choose();
      EXPECT_EQ(std::memcmp(&alone.records()[0], &records[row], sizeof(ChoiceRecord)), 0)
          << "row " << row << ": " << to_string(cases[row]);
    }
  }
}

TEST_F(CudaSamplerTest, ReplaysAGraphAtTheSlotsState) {
  constexpr int64_t kVocabSize = 5000;
  constexpr size_t kNumRows = 27;
  Batch batch(context_, kVocabSize, random_cases(kNumRows, kVocabSize));
  const CudaGraph graph = CudaGraph::capture(stream_, [&] { batch.choose(); });
  for (size_t step = 0; step < 12; ++step) {
    if (step == 5) {
      for (size_t row = 0; row < kNumRows; row += 2) batch.start(row);
    }
    const auto rows = random_rows(kNumRows, kVocabSize, step);
    batch.set_logits(rows);
    graph.launch(stream_);
    batch.compare(rows, str("step ", step));
    ASSERT_FALSE(HasFailure());
  }
}

TEST_F(CudaSamplerTest, LeavesRowsWithoutAChoiceAlone) {
  constexpr int64_t kVocabSize = 1000;
  CudaSampler sampler(kVocabSize, 2);
  sampler.start_slot(stream_, 0, {.params = {.temperature = 0}}, std::vector<int32_t>{3, 4}, {});
  sampler.start_slot(stream_, 1, {.params = {.temperature = 0}}, std::vector<int32_t>{5},
                     std::vector<int32_t>{6});
  DeviceMatrix logits(DType::kF32, 3, kVocabSize);
  logits.fill_normal(1);
  const DeviceArray<int32_t> slots(std::vector<int32_t>{-1, 1, -7});
  const DeviceArray<ChoiceRecord> records(std::vector<ChoiceRecord>(3));
  check_cuda(cudaMemset(records.data(), kUnwritten, 3 * sizeof(ChoiceRecord)), "filling");
  check_cuda(cudaDeviceSynchronize(), "filling");
  EXPECT_EQ(read<int32_t>(stream_, sampler.last_tokens(), 2), (std::vector<int32_t>{4, 6}));
  sampler.choose(context_, logits.matrix(), {.slots = slots.data(), .records = records.data()});
  const auto bytes = read<uint8_t>(stream_, records.data(), 3 * sizeof(ChoiceRecord));
  for (const size_t row : {size_t{0}, size_t{2}}) {
    for (size_t i = 0; i < sizeof(ChoiceRecord); ++i) {
      ASSERT_EQ(bytes[row * sizeof(ChoiceRecord) + i], kUnwritten) << row;
    }
  }
  const ChosenToken chosen = to_chosen_token(read<ChoiceRecord>(stream_, records.data() + 1, 1)[0]);
  EXPECT_EQ(chosen.status, SampleStatus::kChosen);
  EXPECT_FALSE(chosen.token.logprob.has_value());
  EXPECT_EQ(read<int32_t>(stream_, sampler.last_tokens(), 2),
            (std::vector<int32_t>{4, chosen.token.token_id}));
  EXPECT_TRUE(logits.guards_are_intact(stream_));
}

TEST_F(CudaSamplerTest, StartsManySlotsWithLongPromptsAtOnce) {
  // More chunks than there are, while the stream is still busy.
  constexpr int64_t kVocabSize = 20000;
  std::vector<SamplingCase> cases = random_cases(60, kVocabSize);
  for (SamplingCase& what : cases) {
    what.params.repetition_penalty = 1.5;
    what.prompt_ids.clear();
    for (int i = 0; i < 17000; ++i) {
      what.prompt_ids.push_back(static_cast<int32_t>(random_() % kVocabSize));
    }
  }
  Batch batch(context_, kVocabSize, cases);
  const auto rows = random_rows(cases.size(), kVocabSize, 0);
  batch.set_logits(rows);
  batch.choose();
  batch.compare(rows, "long prompts");
}

}  // namespace
}  // namespace halley::cuda
