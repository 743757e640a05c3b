// Tiny checkpoints of every family against transformers in f32 arithmetic.
//
// Most checkpoints have two goldens.
//
// - golden.json came with the checkpoint. Its model had been converted to f16 and back to f32. That
//   rounded more than the weights, since the rotary frequencies and Gemma's factor on the embedding
//   are tensors of the module too. The test rounds the frequencies of DecoderConfig in the same
//   way. The factor is rounded to the weights' type in any case.
// - golden_f32.json is from a plain f32 load (tools/make_model_goldens.py): nothing but the weights
//   is rounded. Here the test undoes the rounding of Gemma's factor. Families whose checkpoints
//   that tool made have this golden alone.
//
// Three runs compare with them.
//
// - golden.json with rounded frequencies, tolerances strict.
// - golden_f32.json, tolerances strict.
// - golden.json with our own frequencies, which shows the effect of that rounding.
//
// The first two run with a cache in f16 as well. Keys and values then lose 11 bits after the point,
// which the reference does not do, so that this cache has a tolerance of its own.
#include <cmath>

#include <gtest/gtest.h>

#include "halley/checkpoint/safetensors/safetensors.h"
#include "halley/core/thread_pool.h"
#include "halley/json/json.h"
#include "halley/models/all/load_model.h"
#include "halley/models/all/testing/golden_model.h"

namespace halley {
namespace {

// f32 accumulation in another order over at most 256 terms and 2 layers, and 6 digits in the files.
constexpr double kLogitsToleranceF32 = 2e-5;
constexpr double kLogsumexpToleranceF32 = 1e-4;
// Keys and values rounded to f16: 2^-11 relative each.
constexpr double kLogitsToleranceF16 = 2e-3;
constexpr double kLogsumexpToleranceF16 =
    5e-3;  // nats; models with tied embeddings have larger logits
// Frequencies rounded to f16 by the reference: 2^-11 relative, times 47 positions, in radians.
constexpr double kLogitsToleranceOfGiven = 4e-3;
constexpr double kLogsumexpToleranceOfGiven = 1e-2;

enum class Against : uint8_t { kGivenRounded, kGiven, kF32 };

struct ParityCase {
  std::string family;
  Against against;
  KvDType kv_dtype;
};

std::string name_of_case(const testing::TestParamInfo<ParityCase>& info) {
  const char* const names[] = {"_given_rounded", "_given", "_f32"};
  return info.param.family + names[static_cast<size_t>(info.param.against)] + "_cache_" +
         name_of(info.param.kv_dtype);
}

void leave_embedding_scale_in_f32(DecoderConfig& decoder) {
  if (!decoder.family.starts_with("gemma")) return;
  decoder.embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(decoder.hidden_size)));
}

class ModelParity : public testing::TestWithParam<ParityCase> {};

/// The decoder that the reference's model was.
DecoderConfig read_reference_decoder(const HfConfig& config, const TensorSource& source,
                                     Against against) {
  DecoderConfig decoder = read_decoder_config(config, source, 0);
  if (against == Against::kGivenRounded) round_frequencies_to_f16(decoder);
  if (against == Against::kF32) leave_embedding_scale_in_f32(decoder);
  return decoder;
}

TEST_P(ModelParity, LogitsAndGreedyTokensAreTheReferences) {
  const auto [family, against, kv_dtype] = GetParam();
  const auto dir = testdata("models/" + family);
  const HfConfig config = HfConfig::load(dir);
  const auto source = open_checkpoint_weights(dir);
  const Golden golden = read_golden(
      read_test_json(dir / (against == Against::kF32 ? "golden_f32.json" : "golden.json")));
  ThreadPool pool(2);
  ExecContext context{pool};
  const auto model =
      load_decoder(context, config, read_reference_decoder(config, *source, against), *source, {})
          .model;
  const TestCache cache(model->shape(), kv_dtype, 1, 128);

  const auto logits = forward_all_rows(*model, cache, {{.sequence = 0, .ids = golden.input_ids}});
  const Deviation deviation = compare(golden, logits, model->shape().vocab_size);
  RecordProperty("logits", std::to_string(1e6 * deviation.logits));  // millionths
  RecordProperty("logsumexp", std::to_string(1e6 * deviation.logsumexp));
  const bool is_given = against == Against::kGiven, is_f32 = kv_dtype == KvDType::kF32;
  EXPECT_LE(deviation.logits, is_given ? kLogitsToleranceOfGiven
                              : is_f32 ? kLogitsToleranceF32
                                       : kLogitsToleranceF16);
  EXPECT_LE(deviation.logsumexp, is_given ? kLogsumexpToleranceOfGiven
                                 : is_f32 ? kLogsumexpToleranceF32
                                          : kLogsumexpToleranceF16);
  EXPECT_EQ(deviation.num_wrong_argmax, 0);
  EXPECT_EQ(decode_greedily(*model, cache, golden.input_ids, golden.greedy_ids.size()),
            golden.greedy_ids);
}

std::vector<ParityCase> parity_cases() {
  std::vector<ParityCase> cases;
  for (const char* family :
       {"gemma2", "gemma3_text", "llama", "llama_mha_tied", "mistral", "mistral_swa", "mixtral",
        "opt", "phi3", "qwen2", "qwen3", "qwen3_moe", "yi"}) {
    for (const KvDType dtype : {KvDType::kF32, KvDType::kF16}) {
      cases.push_back({.family = family, .against = Against::kGivenRounded, .kv_dtype = dtype});
      cases.push_back({.family = family, .against = Against::kF32, .kv_dtype = dtype});
    }
    cases.push_back({.family = family, .against = Against::kGiven, .kv_dtype = KvDType::kF32});
  }
  for (const char* family : {"gemma3", "glm4", "granite", "granitemoe", "olmo2", "olmo3", "olmoe",
                             "qwen2_5_vl", "smollm3"}) {
    for (const KvDType dtype : {KvDType::kF32, KvDType::kF16}) {
      cases.push_back({.family = family, .against = Against::kF32, .kv_dtype = dtype});
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Families, ModelParity, testing::ValuesIn(parity_cases()), name_of_case);

}  // namespace
}  // namespace halley
