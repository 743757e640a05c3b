// Steps in flight on the GPU against the same model's forward(): prompts in chunks, tokens chosen
// on the device, graphs, filled-up batches.
#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "halley/models/all/testing/gpu_test_model.h"
#include "halley/models/all/testing/two_planes.h"
#include "halley/models/base/step_runner.h"
#include "halley/models/cuda/cuda_decoder.h"

namespace halley {
namespace {

constexpr int64_t kNumSequences = 9;
constexpr int64_t kLengthMax = 64;

std::vector<int32_t> tokens(int seed, size_t count) {
  std::vector<int32_t> ids;
  for (size_t i = 0; i < count; ++i) {
    ids.push_back(
        static_cast<int32_t>((static_cast<size_t>(seed) * 131 + i * i * 7 + i * 29) % 384));
  }
  return ids;
}

bool is_same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

/// A prepared model with a cache and its runner. Sequence i has slot i.
class Running {
 public:
  explicit Running(const std::string& family) : gpu_(testdata("models/" + family)) { prepare(); }
  Running(HfConfig config, std::unique_ptr<TensorSource> source, LoadOptions options)
      : gpu_(std::move(config), std::move(source), std::move(options)) {
    prepare();
  }

  void set_precision(Precision precision) { gpu_.set_precision(precision); }
  cuda::CudaStepRunner& runner() {
    return *dynamic_cast<cuda::CudaDecoder&>(gpu_.model()).cuda_step_runner();
  }
  CausalLm& model() const { return gpu_.model(); }
  const TestCache& cache() const { return *cache_; }
  TestCache other_cache() const { return gpu_.make_cache(kv_dtype_, kNumSequences, kLengthMax); }
  size_t vocab_size() const { return static_cast<size_t>(gpu_.model().shape().vocab_size); }

  /// Chooses for the last row of each chunk whose sequence is in `slots`.
  void launch(const std::vector<TestChunk>& chunks, const std::vector<int32_t>& slots,
              const std::vector<int32_t>& logit_rows = {}, bool is_deferred = false) {
    std::vector<int32_t> ids;
    std::vector<BatchSequence> sequences;
    std::vector<RowChoice> choices;
    for (const TestChunk& chunk : chunks) {
      sequences.push_back({.first_row = static_cast<int64_t>(ids.size()),
                           .num_new_tokens = static_cast<int64_t>(chunk.ids.size()),
                           .num_past_tokens = chunk.num_past_tokens,
                           .page_table = cache().page_table(chunk.sequence)});
      ids.insert(ids.end(), chunk.ids.begin(), chunk.ids.end());
      const auto slot = static_cast<int32_t>(chunk.sequence);
      if (std::find(slots.begin(), slots.end(), slot) != slots.end()) {
        choices.push_back({.row = static_cast<int32_t>(ids.size()) - 1,
                           .slot = slot,
                           .is_deferred = is_deferred});
      }
    }
    runner().launch({.batch = {.token_ids = ids, .sequences = sequences, .logit_rows = logit_rows},
                     .choices = choices},
                    cache().view());
  }

  void choose(int32_t slot, const TokenMask& allowed) {
    const MaskedChoice choice = {.slot = slot, .allowed = &allowed};
    runner().choose({&choice, 1});
  }

  /// Waits for the oldest step or choice; returns its tokens.
  std::vector<int32_t> wait() {
    std::vector<int32_t> ids;
    for (const ChosenToken& chosen : runner().wait().chosen) {
      EXPECT_EQ(chosen.status, SampleStatus::kChosen);
      ids.push_back(chosen.token.token_id);
    }
    return ids;
  }

  void start_greedy(int32_t slot, const std::vector<int32_t>& prompt) {
    runner().start_slot(slot, {.params = {.temperature = 0}}, prompt, {});
  }

 private:
  void prepare() {
    kv_dtype_ = gpu_.model().shape().kv_dtype_default;
    const auto kv_bytes = gpu_.model().prepare({.num_sequences = kNumSequences,
                                                .num_rows = 64,
                                                .num_logit_rows = 16,
                                                .max_length = kLengthMax,
                                                .kv_dtype = kv_dtype_});
    EXPECT_GT(kv_bytes.value_or(0), int64_t{1} << 30);
    cache_.emplace(gpu_.make_cache(kv_dtype_, kNumSequences, kLengthMax));
  }

  GpuTestModel gpu_;
  KvDType kv_dtype_ = KvDType::kF16;
  std::optional<TestCache> cache_;
};

std::vector<int32_t> greedy_by_forward(Running& running, const std::vector<int32_t>& prompt,
                                       size_t count) {
  return decode_greedily(running.model(), running.other_cache(), prompt, count);
}

class GpuRunner : public testing::TestWithParam<std::string> {};

TEST_P(GpuRunner, ChoosesTheTokensOfForward) {
  Running running(GetParam());
  const std::vector<int32_t> prompt = tokens(3, 21);
  const std::vector<int32_t> expected = greedy_by_forward(running, prompt, 12);
  running.start_greedy(0, prompt);
  running.launch({{.sequence = 0, .ids = prompt}}, {0});
  std::vector<int32_t> got = running.wait();
  while (got.size() < expected.size()) {
    const auto num_past = static_cast<int64_t>(prompt.size() + got.size()) - 1;
    running.launch({{.num_past_tokens = num_past, .ids = {got.back()}}}, {0});
    got.push_back(running.wait().at(0));
  }
  EXPECT_EQ(got, expected);
  EXPECT_EQ(running.runner().graph_stats().num_graphs, 1);
  EXPECT_EQ(running.runner().graph_stats().num_launches, 10);
}

TEST_P(GpuRunner, RunsAheadOfTokensThatNobodyHasSeen) {
  Running running(GetParam());
  const std::vector<int32_t> prompt = tokens(4, 18);
  const std::vector<int32_t> expected = greedy_by_forward(running, prompt, 12);
  running.start_greedy(5, prompt);
  // A chunk without a choice first.
  running.launch({{.sequence = 5, .ids = {prompt.begin(), prompt.begin() + 10}}}, {});
  running.launch(
      {{.sequence = 5, .num_past_tokens = 10, .ids = {prompt.begin() + 10, prompt.end()}}}, {5});
  EXPECT_TRUE(running.wait().empty());
  std::vector<int32_t> got;
  for (size_t i = 0; i + 1 < expected.size(); ++i) {
    const auto num_past = static_cast<int64_t>(prompt.size() + i);
    running.launch({{.sequence = 5, .num_past_tokens = num_past, .ids = {slot_token(5)}}}, {5});
    got.push_back(running.wait().at(0));
  }
  got.push_back(running.wait().at(0));
  EXPECT_EQ(got, expected);
}

TEST_P(GpuRunner, ChoosesByMasksFromLogitsThatWait) {
  Running running(GetParam());
  const std::vector<int32_t> prompt = tokens(4, 18);
  const std::vector<int32_t> expected = greedy_by_forward(running, prompt, 8);
  const TokenMask all((running.vocab_size() + 63) / 64, ~uint64_t{0});
  running.start_greedy(5, prompt);
  running.launch({{.sequence = 5, .ids = prompt}}, {5}, {}, /*is_deferred=*/true);
  std::vector<int32_t> got;
  for (size_t i = 0; i + 1 < expected.size(); ++i) {
    running.choose(5, all);
    // The next step runs before anybody has seen the token.
    const auto num_past = static_cast<int64_t>(prompt.size() + i);
    running.launch({{.sequence = 5, .num_past_tokens = num_past, .ids = {slot_token(5)}}}, {5}, {},
                   /*is_deferred=*/true);
    EXPECT_TRUE(running.wait().empty());
    got.push_back(running.wait().at(0));
  }
  TokenMask without_best = all;
  without_best[static_cast<size_t>(expected.back()) / 64] &=
      ~(uint64_t{1} << (expected.back() % 64));
  running.choose(5, without_best);
  EXPECT_TRUE(running.wait().empty());
  EXPECT_NE(running.wait().at(0), expected.back());
  got.push_back(expected.back());
  EXPECT_EQ(got, expected);
}

TEST_P(GpuRunner, KeepsLogitsThatWaitWhileOtherStepsRun) {
  Running running(GetParam());
  const std::vector<int32_t> late = tokens(4, 18), other = tokens(9, 11);
  const std::vector<int32_t> expected = greedy_by_forward(running, late, 1);
  const TokenMask all((running.vocab_size() + 63) / 64, ~uint64_t{0});
  running.start_greedy(2, late);
  running.launch({{.sequence = 2, .ids = late}}, {2}, {}, /*is_deferred=*/true);
  EXPECT_TRUE(running.wait().empty());
  running.start_greedy(3, other);
  running.launch({{.sequence = 3, .ids = other}}, {3});
  int32_t last = running.wait().at(0);
  for (int64_t i = 0; i < 5; ++i) {
    const auto num_past = static_cast<int64_t>(other.size()) + i;
    running.launch({{.sequence = 3, .num_past_tokens = num_past, .ids = {last}}}, {3});
    last = running.wait().at(0);
  }
  running.choose(2, all);
  EXPECT_EQ(running.wait(), expected);
}

INSTANTIATE_TEST_SUITE_P(Families, GpuRunner,
                         testing::Values("llama", "gemma2", "gemma3_text", "opt", "qwen3", "phi3",
                                         "olmo2", "granite", "glm4"),
                         [](const auto& tested) { return tested.param; });

/// Prompts of all sequences in the cache; the token that follows each.
std::vector<int32_t> fill_all(Running& running) {
  std::vector<int32_t> next;
  for (int32_t i = 0; i < kNumSequences; ++i) {
    const std::vector<int32_t> prompt = tokens(i, static_cast<size_t>(11 + 3 * i));
    running.start_greedy(i, prompt);
    running.launch({{.sequence = static_cast<size_t>(i), .ids = prompt}}, {i});
    next.push_back(running.wait().at(0));
  }
  return next;
}

std::vector<TestChunk> decodes(const std::vector<int32_t>& next, size_t count) {
  std::vector<TestChunk> chunks;
  for (size_t i = 0; i < count; ++i) {
    chunks.push_back(
        {.sequence = i, .num_past_tokens = static_cast<int64_t>(11 + 3 * i), .ids = {next[i]}});
  }
  return chunks;
}

std::vector<int32_t> first_rows(size_t count) {
  std::vector<int32_t> rows(count);
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

/// Logits of the runner's next step.
std::vector<float> next_logits(Running& running, const std::vector<TestChunk>& chunks) {
  running.launch(chunks, {}, first_rows(chunks.size()));
  const ConstMatrix rows = running.runner().wait().logits;
  EXPECT_EQ(rows.num_rows, static_cast<int64_t>(chunks.size()));
  const float* begin = rows.row<float>(0);
  return {begin, begin + chunks.size() * running.vocab_size()};
}

TEST(GpuGraphs, HaveTheBitsOfSingleLaunches) {
  for (size_t count = 1; count <= kNumSequences; ++count) {
    Running running("llama");
    const auto chunks = decodes(fill_all(running), count);
    std::vector<std::vector<float>> logits;
    for (int i = 0; i < 4; ++i) {  // launch by launch, captured, and twice as it was captured
      logits.push_back(next_logits(running, chunks));
      EXPECT_EQ(running.runner().graph_stats().num_graphs, i == 0 ? 0 : 1) << count;
      EXPECT_EQ(running.runner().graph_stats().num_launches, i) << count;
    }
    for (size_t i = 1; i < logits.size(); ++i) {
      EXPECT_TRUE(is_same_bits(logits[i], logits[0])) << count << " rows, run " << i;
    }
    const auto by_forward = forward_all_rows(running.model(), running.cache(), chunks);
    EXPECT_LE(row_difference(logits[0], by_forward, running.vocab_size()), 2e-2) << count;
  }
}

TEST(GpuGraphs, ServeAllNumbersOfRowsUpToTheirSize) {
  Running running("llama");
  const std::vector<int32_t> next = fill_all(running);
  for (int i = 0; i < 2; ++i) {
    for (size_t count = 1; count <= kNumSequences; ++count) {
      next_logits(running, decodes(next, count));
    }
  }
  EXPECT_EQ(running.runner().graph_stats().num_graphs, 5);  // 1, 2, 4, 8 and 9 rows
}

/// A model whose weights hold two precisions: each step runs in the one that is set when it is
/// launched, with a graph of its own.
TEST(GpuPrecision, MayChangeBetweenSteps) {
  const auto folder = testdata("models/llama");
  const HfConfig config = HfConfig::load(folder);
  const auto source = open_checkpoint_weights(folder);
  const TwoPlaneCheckpoint nested(read_decoder_config(config, *source, 0), *source);
  Running dense("llama");
  Running running(config, std::make_unique<EditableSource>(nested.source), nested.options());
  const std::vector<int32_t> next = fill_all(running);
  fill_all(dense);
  const auto chunks = decodes(next, 3);
  const size_t full_bytes = bytes_read(running.model());
  const std::vector<float> full = next_logits(running, chunks);
  EXPECT_LE(row_difference(full, next_logits(dense, chunks), running.vocab_size()), 2e-2);
  running.set_precision(Precision::kLow);
  EXPECT_LT(bytes_read(running.model()), full_bytes);
  EXPECT_GT(bytes_read(running.model()), full_bytes / 2);
  const std::vector<float> low = next_logits(running, chunks);
  EXPECT_FALSE(is_same_bits(low, full));
  EXPECT_LE(difference(low, full), kLowDifferenceMax);
  for (int i = 0; i < 3; ++i) {
    running.set_precision(Precision::kFull);
    EXPECT_TRUE(is_same_bits(next_logits(running, chunks), full)) << i;
    running.set_precision(Precision::kLow);
    EXPECT_TRUE(is_same_bits(next_logits(running, chunks), low)) << i;
  }
  EXPECT_EQ(running.runner().graph_stats().num_graphs, 2);
}

TEST(GpuGraphs, ServeOneCacheAndAreMadeAnewForAnother) {
  Running running("llama");
  const std::vector<int32_t> next = fill_all(running);
  for (int i = 0; i < 3; ++i) {
    running.launch(decodes(next, 2), {});
    running.wait();
  }
  EXPECT_EQ(running.runner().graph_stats().num_graphs, 1);
  const TestCache other = running.other_cache();
  const int32_t id = 7;
  const BatchSequence sequence = {.num_new_tokens = 1, .page_table = other.page_table(0)};
  running.runner().launch(
      {.batch = {.token_ids = {&id, 1}, .sequences = {&sequence, 1}, .logit_rows = {}},
       .choices = {}},
      other.view());
  running.wait();
  EXPECT_EQ(running.runner().graph_stats().num_graphs, 0);
}

TEST(GpuSteps, MixPromptsAndDecodes) {
  Running running("mistral_swa");
  const std::vector<int32_t> next = fill_all(running);
  const std::vector<int32_t> prompt = tokens(40, 23);
  const std::vector<int32_t> expected = greedy_by_forward(running, prompt, 1);
  // The token of each decode that runs alone.
  std::vector<int32_t> alone;
  for (size_t i = 0; i < 4; ++i) {
    auto chunk = decodes(next, i + 1);
    running.launch({chunk.back()}, {static_cast<int32_t>(i)});
    alone.push_back(running.wait().at(0));
  }
  auto chunks = decodes(next, 4);
  running.start_greedy(8, prompt);
  chunks.insert(chunks.begin() + 2, {.sequence = 8, .ids = prompt});
  running.launch(chunks, {0, 1, 2, 3, 8}, {0, 5, 24, 25});
  const StepResult& result = running.runner().wait();
  std::vector<int32_t> got;
  for (const ChosenToken& chosen : result.chosen) got.push_back(chosen.token.token_id);
  EXPECT_EQ(got, (std::vector<int32_t>{alone[0], alone[1], expected[0], alone[2], alone[3]}));
  // Rows for the host, whether or not a token is chosen from them.
  ASSERT_EQ(result.logits.num_rows, 4);
  const auto all = forward_all_rows(running.model(), running.cache(), chunks);
  const auto V = running.vocab_size();
  const std::vector<size_t> rows = {0, 5, 24, 25};
  for (size_t i = 0; i < rows.size(); ++i) {
    const float* row = result.logits.row<float>(static_cast<int64_t>(i));
    EXPECT_LE(row_difference({row, V}, std::span(all).subspan(rows[i] * V, V), V), 2e-2)
        << "row " << rows[i];
  }
}

TEST(GpuForward, BatchesAndChunksHardlyChangeARow) {
  for (const std::string family : {"llama", "gemma2", "opt", "mistral_swa"}) {
    const GpuTestModel gpu(testdata("models/" + family));
    const auto V = static_cast<size_t>(gpu.model().shape().vocab_size);
    const std::vector<TestChunk> chunks = {{.sequence = 2, .ids = tokens(1, 37)},
                                           {.sequence = 0, .ids = tokens(2, 1)},
                                           {.sequence = 1, .ids = tokens(3, 18)}};
    const TestCache cache = gpu.make_cache(3, 64);
    const std::vector<float> together = forward_all_rows(gpu.model(), cache, chunks);
    size_t begin = 0;
    for (const TestChunk& chunk : chunks) {
      const TestCache other = gpu.make_cache(3, 64);
      const auto alone = forward_all_rows(gpu.model(), other, {{.ids = chunk.ids}});
      EXPECT_LE(row_difference(std::span(together).subspan(begin, alone.size()), alone, V), 2e-2)
          << family << ", sequence " << chunk.sequence;
      begin += alone.size();
    }
    for (const size_t step : {size_t{1}, size_t{7}, size_t{16}}) {
      const std::vector<int32_t> ids = tokens(1, 37);
      const TestCache other = gpu.make_cache(1, 64);
      std::vector<float> parts;
      for (size_t at = 0; at < ids.size(); at += step) {
        const size_t end = std::min(at + step, ids.size());
        const auto part =
            forward_all_rows(gpu.model(), other,
                             {{.num_past_tokens = static_cast<int64_t>(at),
                               .ids = {ids.begin() + static_cast<std::ptrdiff_t>(at),
                                       ids.begin() + static_cast<std::ptrdiff_t>(end)}}});
        parts.insert(parts.end(), part.begin(), part.end());
      }
      EXPECT_LE(row_difference(parts, std::span(together).first(parts.size()), V), 2e-2)
          << family << ", chunks of " << step;
    }
  }
}

TEST(GpuForward, ProfileNamesEveryOperation) {
  const GpuTestModel gpu(testdata("models/llama"));
  const TestCache cache = gpu.make_cache(1, 64);
  const std::vector<int32_t> ids = tokens(1, 20);
  const BatchSequence sequence = {.num_new_tokens = 20, .page_table = cache.page_table(0)};
  const int32_t row = 19;
  std::vector<float> logits(static_cast<size_t>(gpu.model().shape().vocab_size));
  const auto times = gpu.model().profile(
      {.token_ids = ids, .sequences = {&sequence, 1}, .logit_rows = {&row, 1}}, cache.view(),
      f32_matrix(logits.data(), 1, static_cast<int64_t>(logits.size())));
  // At this small M the GEMM's epilogue applies the gate: a layer has no operation "activation".
  ASSERT_EQ(times.size(), 1 + 2 * 8 + 3);
  EXPECT_EQ(times.front().name, "embedding");
  EXPECT_EQ(times[2].name, "layers.0.qkv");
  EXPECT_EQ(times.back().name, "output");
  for (const OpTime& time : times) {
    EXPECT_GE(time.duration_us, 0) << time.name;
    EXPECT_LT(time.duration_us, 1e5) << time.name;
  }
}

TEST(GpuForward, OpCostsAreOfTheStepAndOfEveryKindOfOperation) {
  const GpuTestModel gpu(testdata("models/llama"));
  const TestCache cache = gpu.make_cache(1, 64);
  forward_all_rows(gpu.model(), cache, {{.ids = tokens(1, 20)}});
  const int32_t id = 5, row = 0;
  const BatchSequence sequence = {
      .num_new_tokens = 1, .num_past_tokens = 20, .page_table = cache.page_table(0)};
  const ForwardBatch batch = {
      .token_ids = {&id, 1}, .sequences = {&sequence, 1}, .logit_rows = {&row, 1}};
  std::vector<float> before(static_cast<size_t>(gpu.model().shape().vocab_size));
  std::vector<float> after(before.size());
  const auto num_logits = static_cast<int64_t>(before.size());
  gpu.model().forward(batch, cache.view(), f32_matrix(before.data(), 1, num_logits));
  const auto costs =
      gpu.model().op_costs(batch, cache.view(), f32_matrix(after.data(), 1, num_logits));
  EXPECT_TRUE(is_same_bits(before, after));
  std::vector<std::string> names;
  for (const OpTime& cost : costs) names.push_back(cost.name);
  // At M = 1 the norms are fused into qkv and gate_up.
  EXPECT_EQ(names,
            (std::vector<std::string>{"step", "embedding", "qkv", "rope_kv", "attention", "o",
                                      "gate_up", "down", "final_add", "final_norm", "output"}));
  EXPECT_GT(costs[0].duration_us, 0);
}

TEST(GpuRunnerSpans, FollowEachOther) {
  Running running("llama");
  const std::vector<int32_t> prompt = tokens(4, 18);
  running.start_greedy(0, prompt);
  // A chunk without a choice, one with, decodes by launches and by a graph.
  running.launch({{.ids = {prompt.begin(), prompt.begin() + 10}}}, {});
  running.launch({{.num_past_tokens = 10, .ids = {prompt.begin() + 10, prompt.end()}}}, {0});
  double end_us = 0;
  for (int64_t i = 0; i < 6; ++i) {
    const std::optional<StepSpan> span = running.runner().wait().span;
    ASSERT_TRUE(span.has_value()) << i;
    EXPECT_GE(span->begin_us, end_us) << i;
    EXPECT_GE(span->end_us, span->begin_us) << i;
    end_us = span->end_us;
    running.launch({{.num_past_tokens = 18 + i, .ids = {slot_token(0)}}}, {0});
  }
  running.wait();
  running.wait();
}

/// Decodes behind prompts of their own lengths; the logits of each, alone or all in one step.
std::vector<std::vector<float>> decode_logits(bool is_together) {
  const auto folder = testdata("models/llama");
  LoadOptions options = GpuTestModel::options_of(folder);
  options.is_batch_invariant = true;
  const GpuTestModel gpu(HfConfig::load(folder), open_checkpoint_weights(folder), options);
  constexpr size_t kNumDecodes = 40;  // M > 16, in another range of GEMM kernels than M = 1
  const TestCache cache = gpu.make_cache(kNumDecodes, kLengthMax);
  std::vector<TestChunk> decodes;
  for (size_t i = 0; i < kNumDecodes; ++i) {
    const std::vector<int32_t> prompt = tokens(static_cast<int>(i), 2 + i);
    forward_all_rows(gpu.model(), cache, {{.sequence = i, .ids = prompt}});
    decodes.push_back({.sequence = i,
                       .num_past_tokens = static_cast<int64_t>(prompt.size()),
                       .ids = {static_cast<int32_t>(i)}});
  }
  std::vector<std::vector<float>> logits;
  const auto vocab_size = gpu.model().shape().vocab_size;
  if (is_together) {
    const std::vector<float> all = forward_all_rows(gpu.model(), cache, decodes);
    for (size_t i = 0; i < kNumDecodes; ++i) {
      const auto row = all.begin() + static_cast<int64_t>(i) * vocab_size;
      logits.emplace_back(row, row + vocab_size);
    }
  } else {
    for (const TestChunk& decode : decodes) {
      logits.push_back(forward_all_rows(gpu.model(), cache, {decode}));
    }
  }
  return logits;
}

TEST(GpuBatchInvariance, ADecodesLogitsAreTheSameBitsInAnyBatch) {
  const auto alone = decode_logits(false), together = decode_logits(true);
  ASSERT_EQ(alone.size(), together.size());
  for (size_t i = 0; i < alone.size(); ++i) EXPECT_TRUE(is_same_bits(alone[i], together[i])) << i;
}

}  // namespace
}  // namespace halley
