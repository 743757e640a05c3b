// LoRA adapters against PEFT: tools/make_lora_goldens.py.
#include <gtest/gtest.h>

#include "halley/checkpoint/safetensors/safetensors.h"
#include "halley/core/thread_pool.h"
#include "halley/models/all/load_model.h"
#include "halley/models/all/testing/golden_model.h"
#include "halley/models/lora/load_adapter.h"

namespace halley {
namespace {

// As parity_test.cc: f32 in another order, and 6 digits in the files.
constexpr double kLogitsTolerance = 2e-5;
constexpr double kLogsumexpTolerance = 1e-4;

/// A base model and the adapters of testdata/lora that belong to it.
class Base {
 public:
  explicit Base(const std::string& name) : context_{pool_}, dir_(testdata(name)) {
    const HfConfig config = HfConfig::load(dir_);
    const auto source = open_checkpoint_weights(dir_);
    decoder_ = read_decoder_config(config, *source, 0);
    model_ = load_decoder(context_, config, decoder_, *source, {}).model;
  }

  CausalLm& model() { return *model_; }
  std::shared_ptr<const Adapter> load(const std::string& name) const {
    return load_adapter(testdata("lora/" + name), decoder_, name);
  }
  std::vector<float> logits(const std::vector<TestChunk>& chunks) {
    const TestCache cache(model_->shape(), KvDType::kF32, 4, 128);
    return forward_all_rows(*model_, cache, chunks);
  }

 private:
  ThreadPool pool_{2};
  ExecContext context_;
  std::filesystem::path dir_;
  DecoderConfig decoder_;
  std::unique_ptr<CausalLm> model_;
};

Json golden_json(const std::string& name) {
  return read_test_json(testdata("lora/" + name + "/golden.json"));
}

class AdapterParity : public testing::TestWithParam<const char*> {};

TEST_P(AdapterParity, LogitsAreThoseOfPeft) {
  const Json json = golden_json(GetParam());
  const Golden golden = read_golden(json);
  Base base(json.at("base"));
  const auto adapter = base.load(GetParam());
  const int64_t V = base.model().shape().vocab_size;

  const auto logits = base.logits({{.ids = golden.input_ids, .adapter = adapter.get()}});

  const Deviation deviation = compare(golden, logits, V);
  EXPECT_LE(deviation.logits, kLogitsTolerance);
  EXPECT_LE(deviation.logsumexp, kLogsumexpTolerance);
  EXPECT_EQ(deviation.num_wrong_argmax, 0);
  // Without it the model says something else, so that the comparison can fail.
  EXPECT_GT(compare(golden, base.logits({{.ids = golden.input_ids}}), V).logits, 0.1);
}

INSTANTIATE_TEST_SUITE_P(Cases, AdapterParity,
                         testing::Values("llama", "qwen3_stabilized", "phi3_fused",
                                         "mixtral_attention"),
                         [](const auto& test) { return std::string(test.param); });

std::vector<float> rows_of(const std::vector<float>& logits, size_t first, size_t num_rows,
                           size_t vocab_size) {
  const auto begin = logits.begin() + static_cast<std::ptrdiff_t>(first * vocab_size);
  return {begin, begin + static_cast<std::ptrdiff_t>(num_rows * vocab_size)};
}

TEST(Adapter, SequencesOfABatchHaveTheirOwnBitForBit) {
  Base base("models/llama");
  const auto first = base.load("llama");
  Adapter other = {.name = "other", .layers = {}};  // one that adds nothing
  const Golden golden = read_golden(golden_json("llama"));
  const std::vector<int32_t>& ids = golden.input_ids;
  const std::vector<int32_t> head(ids.begin(), ids.begin() + 5);
  const auto V = static_cast<size_t>(base.model().shape().vocab_size);
  const auto plain = base.logits({{.ids = head}});
  const auto adapted = base.logits({{.ids = ids, .adapter = first.get()}});
  const auto adapted_head = base.logits({{.ids = head, .adapter = first.get()}});

  const auto mixed = base.logits({{.sequence = 0, .ids = head},
                                  {.sequence = 1, .ids = ids, .adapter = first.get()},
                                  {.sequence = 2, .ids = head, .adapter = first.get()},
                                  {.sequence = 3, .ids = head, .adapter = &other}});

  EXPECT_EQ(rows_of(mixed, 0, 5, V), plain);
  EXPECT_EQ(rows_of(mixed, 5, ids.size(), V), adapted);
  EXPECT_EQ(rows_of(mixed, 5 + ids.size(), 5, V), adapted_head);
  EXPECT_EQ(rows_of(mixed, 10 + ids.size(), 5, V), plain);
}

TEST(Adapter, IdsAreNeverUsedTwice) {
  const Base base("models/llama");
  EXPECT_NE(base.load("llama")->id, base.load("llama")->id);
}

TEST(Adapter, SaysItsSize) {
  const Base base("models/llama");
  const auto adapter = base.load("llama");
  EXPECT_EQ(adapter->rank_max, 6);
  EXPECT_EQ(adapter->layers.size(), 8u);  // qkv, o, gate_up and down of two layers
  EXPECT_GE(adapter->num_bytes, 70'000u);
}

}  // namespace
}  // namespace halley
