// Tiny checkpoints of every family, their f16 weights split into two planes: full precision is the
// model as it was, bit for bit, and the precision may change between two steps.
#include <algorithm>
#include <cstring>
#include <filesystem>

#include <gtest/gtest.h>

#include "halley/checkpoint/safetensors/safetensors.h"
#include "halley/core/thread_pool.h"
#include "halley/models/all/load_model.h"
#include "halley/models/all/testing/golden_model.h"
#include "halley/models/all/testing/two_planes.h"

namespace halley {
namespace {

std::vector<std::string> family_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(testdata("models"))) {
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<float> logits_of(CausalLm& model, const std::vector<int32_t>& ids) {
  const TestCache cache(model.shape(), KvDType::kF32, 1, 128);
  return forward_all_rows(model, cache, {{.sequence = 0, .num_past_tokens = 0, .ids = ids}});
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

class NestedModel : public testing::TestWithParam<std::string> {};

TEST_P(NestedModel, FullPrecisionHasTheBitsOfTheF16Model) {
  const auto dir = testdata("models/" + GetParam());
  const HfConfig config = HfConfig::load(dir);
  EditableSource source(*open_checkpoint_weights(dir));
  const DecoderConfig decoder = read_decoder_config(config, source, 0);
  // One weight that makes its layer an exception.
  const std::string changed = linear_names(decoder, source).at(1) + ".weight";
  std::vector<std::byte> data = source.data(changed);
  data[0] = std::byte{0x00};
  data[1] = std::byte{0x40};
  source.set(*source.find(changed), data);

  const TwoPlaneCheckpoint nested(decoder, source);
  EXPECT_FALSE(nested.format.layers.at(1).is_quantized);
  EXPECT_TRUE(nested.format.layers.at(0).is_quantized);
  ThreadPool pool(2);
  ExecContext context{pool};
  const auto dense_model = load_model(context, config, source, {}, {}).model;
  const auto nested_model = load_model(context, config, nested.source, {}, nested.options()).model;
  const auto ids = read_golden(read_test_json(dir / "golden_f32.json")).input_ids;
  const std::vector<float> expected = logits_of(*dense_model, ids);
  EXPECT_TRUE(same_bits(logits_of(*nested_model, ids), expected));

  const size_t full_bytes = bytes_read(*nested_model);
  context.precision = Precision::kLow;
  EXPECT_LT(bytes_read(*nested_model), full_bytes);
  EXPECT_GE(bytes_read(*nested_model), full_bytes / 2);
  EXPECT_TRUE(same_bits(logits_of(*dense_model, ids), expected));
  const std::vector<float> low = logits_of(*nested_model, ids);
  EXPECT_FALSE(same_bits(low, expected));
  EXPECT_LE(difference(low, expected), kLowDifferenceMax);

  context.precision = Precision::kFull;
  EXPECT_TRUE(same_bits(logits_of(*nested_model, ids), expected));
}

INSTANTIATE_TEST_SUITE_P(Families, NestedModel, testing::ValuesIn(family_names()),
                         [](const auto& tested) { return tested.param; });

}  // namespace
}  // namespace halley
