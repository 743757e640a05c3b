// A row's logits are the same bits in any batch, in any chunking, on any number of threads, with
// experts fused or one by one.
#include <cmath>
#include <cstring>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/checkpoint/safetensors/safetensors.h"
#include "halley/core/thread_pool.h"
#include "halley/json/json.h"
#include "halley/models/all/load_model.h"
#include "halley/models/all/testing/golden_model.h"

namespace halley {
namespace {

constexpr size_t kNumSequences = 3;

/// A loaded checkpoint with its own pool.
struct Loaded {
  explicit Loaded(const std::string& family, int num_threads, const TensorSource* other = nullptr)
      : config(HfConfig::load(testdata("models/" + family))),
        source(open_checkpoint_weights(testdata("models/" + family))),
        pool(num_threads),
        context{pool} {
    model = load_model(context, config, other != nullptr ? *other : *source, {}).model;
  }

  TestCache make_cache(KvDType kv_dtype) const {
    return {model->shape(), kv_dtype, kNumSequences, 64};
  }

  HfConfig config;
  std::unique_ptr<TensorSource> source;
  ThreadPool pool;
  ExecContext context;
  std::unique_ptr<CausalLm> model;
};

std::vector<int32_t> tokens(int seed, size_t count) {
  std::vector<int32_t> ids;
  for (size_t i = 0; i < count; ++i) {
    ids.push_back(
        static_cast<int32_t>((static_cast<size_t>(seed) * 131 + i * i * 7 + i * 29) % 384));
  }
  return ids;
}

bool is_same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

/// The logits of `ids`, all in one forward, alone.
std::vector<float> logits_alone(const Loaded& loaded, const std::vector<int32_t>& ids,
                                KvDType kv_dtype = KvDType::kF16) {
  const TestCache cache = loaded.make_cache(kv_dtype);
  return forward_all_rows(*loaded.model, cache, {{.sequence = 0, .ids = ids}});
}

struct BatchingCase {
  std::string family;
  KvDType kv_dtype = KvDType::kF16;
};

class Batching : public testing::TestWithParam<BatchingCase> {};

TEST_P(Batching, DoesNotChangeARow) {
  const auto& [family, kv_dtype] = GetParam();
  const Loaded loaded(family, 2);
  const auto V = static_cast<size_t>(loaded.model->shape().vocab_size);
  const TestCache cache = loaded.make_cache(kv_dtype);
  const std::vector<TestChunk> chunks = {{.sequence = 2, .ids = tokens(1, 37)},
                                         {.sequence = 0, .ids = tokens(2, 1)},
                                         {.sequence = 1, .ids = tokens(3, 18)}};
  const std::vector<float> together = forward_all_rows(*loaded.model, cache, chunks);
  auto next = together.begin();
  for (const TestChunk& chunk : chunks) {
    const auto end = next + static_cast<std::ptrdiff_t>(chunk.ids.size() * V);
    EXPECT_TRUE(is_same_bits({next, end}, logits_alone(loaded, chunk.ids, kv_dtype)))
        << "sequence " << chunk.sequence;
    next = end;
  }
}

TEST_P(Batching, DoesNotChangeADecodeNextToAPrefill) {
  const auto& [family, kv_dtype] = GetParam();
  const Loaded loaded(family, 2);
  const auto V = static_cast<size_t>(loaded.model->shape().vocab_size);
  const std::vector<int32_t> ids = tokens(5, 33);
  const std::vector<float> alone = logits_alone(loaded, ids, kv_dtype);
  const TestCache cache = loaded.make_cache(kv_dtype);
  forward_all_rows(*loaded.model, cache, {{.sequence = 1, .ids = {ids.begin(), ids.end() - 1}}});
  const std::vector<float> mixed =
      forward_all_rows(*loaded.model, cache,
                       {{.sequence = 0, .ids = tokens(6, 20)},
                        {.sequence = 1, .num_past_tokens = 32, .ids = {ids.back()}}});
  EXPECT_TRUE(is_same_bits({mixed.end() - static_cast<std::ptrdiff_t>(V), mixed.end()},
                           {alone.end() - static_cast<std::ptrdiff_t>(V), alone.end()}));
}

TEST_P(Batching, ChunkingDoesNotChangeARow) {
  const auto& [family, kv_dtype] = GetParam();
  const Loaded loaded(family, 2);
  const std::vector<int32_t> ids = tokens(4, 45);
  const std::vector<float> whole = logits_alone(loaded, ids, kv_dtype);
  for (const size_t chunk : {size_t{1}, size_t{7}, size_t{16}, size_t{32}}) {
    const TestCache cache = loaded.make_cache(kv_dtype);
    std::vector<float> parts;
    for (size_t begin = 0; begin < ids.size(); begin += chunk) {
      const size_t end = std::min(begin + chunk, ids.size());
      const std::vector<float> part =
          forward_all_rows(*loaded.model, cache,
                           {{.sequence = 0,
                             .num_past_tokens = static_cast<int64_t>(begin),
                             .ids = {ids.begin() + static_cast<std::ptrdiff_t>(begin),
                                     ids.begin() + static_cast<std::ptrdiff_t>(end)}}});
      parts.insert(parts.end(), part.begin(), part.end());
    }
    EXPECT_TRUE(is_same_bits(parts, whole)) << "chunks of " << chunk;
  }
}

TEST_P(Batching, ThreadsDoNotChangeARow) {
  const std::vector<int32_t> ids = tokens(9, 40);
  const auto& [family, kv_dtype] = GetParam();
  const std::vector<float> one = logits_alone(Loaded(family, 1), ids, kv_dtype);
  EXPECT_TRUE(is_same_bits(logits_alone(Loaded(family, 3), ids, kv_dtype), one));
}

std::vector<BatchingCase> batching_cases() {
  std::vector<BatchingCase> cases;
  for (const char* family :
       {"llama", "mistral_swa", "gemma2", "gemma3_text", "phi3", "opt", "qwen2", "qwen3_moe",
        "mixtral", "smollm3", "olmo3", "olmoe", "granite", "granitemoe", "glm4"}) {
    cases.push_back({family});
  }
  // Sliding windows and soft caps among them.
  for (const char* family : {"llama", "mistral_swa", "gemma2"}) {
    for (const KvDType kv_dtype : {KvDType::kInt8, KvDType::kInt4, KvDType::kFp8E4M3}) {
      cases.push_back({family, kv_dtype});
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Families, Batching, testing::ValuesIn(batching_cases()),
                         [](const auto& tested) {
                           return str(tested.param.family, "_", tested.param.kv_dtype);
                         });

/// The root of the mean square of the differences, in that of the logits.
double deviation(const std::vector<float>& logits, const std::vector<float>& expected) {
  double squares = 0, differences = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    const double difference = static_cast<double>(logits[i]) - static_cast<double>(expected[i]);
    squares += static_cast<double>(expected[i]) * static_cast<double>(expected[i]);
    differences += difference * difference;
  }
  return std::sqrt(differences / squares);
}

TEST(QuantizedCache, ChangesTheLogitsByAsMuchAsItsTypeRounds) {
  const Loaded loaded("llama", 2);
  const std::vector<int32_t> ids = tokens(7, 60);
  const std::vector<float> expected = logits_alone(loaded, ids, KvDType::kF32);
  // Twice of what was measured; int4 is 17 times coarser than int8, fp8 between the two.
  const std::pair<KvDType, double> bounds[] = {
      {KvDType::kInt8, 0.01}, {KvDType::kInt4, 0.15}, {KvDType::kFp8E4M3, 0.05}};
  for (const auto& [kv_dtype, bound] : bounds) {
    const double difference = deviation(logits_alone(loaded, ids, kv_dtype), expected);
    EXPECT_LE(difference, bound) << kv_dtype;
    EXPECT_GE(difference, 1e-5) << kv_dtype;  // it was used
  }
}

TEST(QuantizedCache, TakesTheModelsScalesForFp8) {
  const HfConfig config = HfConfig::load(testdata("models/llama"));
  const auto source = open_checkpoint_weights(testdata("models/llama"));
  ThreadPool pool(2);
  ExecContext context{pool};
  DecoderConfig decoder = read_decoder_config(config, *source, 0);
  const auto logits_with = [&](std::vector<KvScales> scales) {
    decoder.kv_scales = std::move(scales);
    const auto model = load_decoder(context, config, decoder, *source, {}).model;
    const TestCache cache(model->shape(), KvDType::kFp8E4M3, 1, 64);
    return forward_all_rows(*model, cache, {{.sequence = 0, .ids = tokens(7, 60)}});
  };
  const std::vector<float> expected =
      logits_alone(Loaded("llama", 2), tokens(7, 60), KvDType::kF32);
  const auto num_layers = static_cast<size_t>(decoder.num_layers);
  // Powers of two keep three bits of mantissa of all that is neither tiny nor beyond 448.
  const std::vector<float> fitting = logits_with({num_layers, {0.0625f, 0.0625f}});
  EXPECT_LE(deviation(fitting, expected), 0.05);
  EXPECT_FALSE(is_same_bits(fitting, logits_with({})));
  // Scales of which all elements are less than half of the smallest code leave nothing.
  EXPECT_GT(deviation(logits_with({num_layers, {1e6f, 1e6f}}), expected), 0.1);
}

/// The experts of a checkpoint as transformers 5 names them: one tensor for all, gate above up.
EditableSource with_fused_experts(const TensorSource& source, int64_t num_layers,
                                  const std::string& block, const std::vector<std::string>& names) {
  EditableSource fused(source);
  for (int64_t layer = 0; layer < num_layers; ++layer) {
    const std::string prefix = str("model.layers.", layer, ".");
    std::vector<std::byte> gate_up, down;
    int64_t num_experts = 0, F = 0, K = 0;
    for (;; ++num_experts) {
      const std::string expert = str(prefix, block, "experts.", num_experts, ".");
      const TensorInfo* gate = source.find(str(expert, names[0], ".weight"));
      if (gate == nullptr) break;
      F = gate->shape[0];
      K = gate->shape[1];
      for (const std::string& name : names) {
        const std::string full = str(expert, name, ".weight");
        const std::vector<std::byte> data = fused.data(full);
        std::vector<std::byte>& target = name == names[2] ? down : gate_up;
        target.insert(target.end(), data.begin(), data.end());
        fused.remove(full);
      }
    }
    const std::string router = str(prefix, block, "gate.weight");
    const std::vector<std::byte> router_data = fused.data(router);
    fused.remove(router);
    const std::string target = prefix + "mlp.";
    fused.set({.name = target + "gate.weight", .dtype = DType::kF16, .shape = {num_experts, K}},
              router_data);
    fused.set({.name = target + "experts.gate_up_proj",
               .dtype = DType::kF16,
               .shape = {num_experts, 2 * F, K}},
              gate_up);
    fused.set(
        {.name = target + "experts.down_proj", .dtype = DType::kF16, .shape = {num_experts, K, F}},
        down);
  }
  return fused;
}

TEST(FusedExperts, GiveTheSameBitsAsSingleOnes) {
  struct FusedCase {
    std::string family, block;
    std::vector<std::string> names;
  };
  for (const FusedCase& fused :
       {FusedCase{"qwen3_moe", "mlp.", {"gate_proj", "up_proj", "down_proj"}},
        FusedCase{"mixtral", "block_sparse_moe.", {"w1", "w3", "w2"}}}) {
    const Loaded single(fused.family, 2);
    const EditableSource source = with_fused_experts(
        *single.source, single.model->shape().num_layers, fused.block, fused.names);
    ASSERT_NE(source.find("model.layers.0.mlp.experts.gate_up_proj"), nullptr);
    const Loaded other(fused.family, 2, &source);
    const std::vector<int32_t> ids = tokens(8, 21);
    EXPECT_TRUE(is_same_bits(logits_alone(other, ids), logits_alone(single, ids))) << fused.family;
  }
}

TEST(Forward, GivesOnlyTheRowsThatAreAskedFor) {
  const Loaded loaded("llama", 2);
  const std::vector<int32_t> ids = tokens(3, 12);
  const std::vector<float> all = logits_alone(loaded, ids);
  const auto V = static_cast<size_t>(loaded.model->shape().vocab_size);
  const TestCache cache = loaded.make_cache(KvDType::kF16);
  const std::vector<int32_t> rows = {2, 11};
  std::vector<float> some(rows.size() * V);
  const BatchSequence sequence = {.num_new_tokens = 12, .page_table = cache.page_table(0)};
  loaded.model->forward({.token_ids = ids, .sequences = {&sequence, 1}, .logit_rows = rows},
                        cache.view(), f32_matrix(some.data(), 2, static_cast<int64_t>(V)));
  EXPECT_TRUE(std::equal(some.begin(), some.begin() + static_cast<std::ptrdiff_t>(V),
                         all.begin() + static_cast<std::ptrdiff_t>(2 * V)));
  EXPECT_TRUE(std::equal(some.end() - static_cast<std::ptrdiff_t>(V), some.end(),
                         all.end() - static_cast<std::ptrdiff_t>(V)));
}

TEST(Forward, RejectsTokensAndPositionsThatTheModelDoesNotHave) {
  const Loaded loaded("llama", 1);
  const TestCache cache(loaded.model->shape(), KvDType::kF16, 1, 640);
  const auto forward = [&](int32_t id, int64_t num_past) {
    forward_all_rows(*loaded.model, cache,
                     {{.sequence = 0, .num_past_tokens = num_past, .ids = {id}}});
  };
  EXPECT_THAT([&] { forward(384, 0); }, testing::ThrowsMessage<InputError>(testing::StartsWith(
                                            "token id: expected 0 to 383, got 384.")));
  EXPECT_THAT([&] { forward(-1, 0); },
              testing::ThrowsMessage<InputError>(testing::HasSubstr("got -1.")));
  EXPECT_THAT([&] { forward(5, 512); }, testing::ThrowsMessage<InputError>(testing::StartsWith(
                                            "sequence length: expected at most 512, got 513.")));
}

std::vector<std::string> profiled_ops(const std::string& family) {
  const Loaded loaded(family, 2);
  const TestCache cache = loaded.make_cache(KvDType::kF16),
                  other = loaded.make_cache(KvDType::kF16);
  const std::vector<int32_t> ids = tokens(5, 9);
  const std::vector<BatchSequence> sequences = {{0, 9, 0, cache.page_table(0)}};
  const std::vector<int32_t> rows = {8};
  const auto V = static_cast<size_t>(loaded.model->shape().vocab_size);
  std::vector<float> logits(V), profiled(V);
  loaded.model->forward({ids, sequences, rows}, cache.view(),
                        f32_matrix(logits.data(), 1, static_cast<int64_t>(V)));
  const std::vector<OpTime> times =
      loaded.model->profile({ids, sequences, rows}, other.view(),
                            f32_matrix(profiled.data(), 1, static_cast<int64_t>(V)));
  EXPECT_TRUE(is_same_bits(logits, profiled));
  std::vector<std::string> names;
  double end = 0;
  for (const OpTime& time : times) {
    EXPECT_GE(time.start_us, end) << time.name;
    EXPECT_GE(time.duration_us, 0) << time.name;
    end = time.start_us + time.duration_us;
    names.push_back(time.name);
  }
  return names;
}

TEST(Profile, NamesEveryOperationInOrder) {
  const std::vector<std::string> names = profiled_ops("llama");
  const std::vector<std::string> layer = {"norm",       "qkv",  "rope",    "kv_write",
                                          "attention",  "o",    "norm",    "gate_up",
                                          "activation", "down", "residual"};
  std::vector<std::string> expected = {"embedding"};
  for (const char* prefix : {"layers.0.", "layers.1."}) {
    for (const std::string& name : layer) expected.push_back(prefix + name);
  }
  expected.insert(expected.end(), {"final_norm", "output"});
  EXPECT_EQ(names, expected);
}

TEST(Profile, HasTheRoutingOfExperts) {
  const std::vector<std::string> names = profiled_ops("mixtral");
  EXPECT_THAT(names, testing::IsSupersetOf({"layers.0.router", "layers.0.gate_up", "layers.0.down",
                                            "layers.1.combine"}));
}

}  // namespace
}  // namespace halley
