// For tests: models from testdata with a KV cache to run them in, and goldens of a reference.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "halley/checkpoint/config/hf_config.h"
#include "halley/checkpoint/safetensors/tensor_source.h"
#include "halley/core/host_buffer.h"
#include "halley/models/base/causal_lm.h"
#include "halley/models/base/decoder_config.h"

namespace halley {

/// KV pages for a number of sequences of equal maximal length; the pages of sequences interleave.
class TestCache {
 public:
  TestCache(const ModelShape& shape, KvDType dtype, int64_t num_sequences, int64_t num_tokens_max);
  /// The same where the model keeps its cache; `fill` sets all bits of memory there.
  using Fill = std::function<void(std::byte*, size_t)>;
  TestCache(const CausalLm& model, KvDType dtype, int64_t num_sequences, int64_t num_tokens_max,
            const Fill& fill);
  KvCacheView view() const { return {layers_}; }
  std::span<const int32_t> page_table(size_t sequence) const { return page_tables_[sequence]; }

 private:
  using Allocate = std::function<std::byte*(size_t)>;
  void make(const ModelShape& shape, const KvPageLayout& layout, int64_t num_sequences,
            int64_t pages_each, const Allocate& allocate);

  std::vector<HostBuffer> storage_;
  std::vector<std::unique_ptr<KvMemory>> memory_;
  std::vector<KvLayerView> layers_;
  std::vector<std::vector<int32_t>> page_tables_;
};

/// One sequence's part of a step.
struct TestChunk {
  size_t sequence = 0;
  int64_t num_past_tokens = 0;
  std::vector<int32_t> ids;
  const Adapter* adapter = nullptr;
};

/// One forward over the chunks; the logits [M, V] of all rows.
std::vector<float> forward_all_rows(CausalLm& model, const TestCache& cache,
                                    const std::vector<TestChunk>& chunks);

/// The most probable next tokens after `ids` in sequence 0, one decode step each.
std::vector<int32_t> decode_greedily(CausalLm& model, const TestCache& cache,
                                     std::vector<int32_t> ids, size_t num_tokens);

/// The outputs of a reference for `input_ids`.
struct Golden {
  std::vector<int32_t> input_ids, argmax, greedy_ids;
  std::vector<double> logits_row_0, logits_row_last, logsumexp;
};
Golden read_golden(const Json& json);
Json read_test_json(const std::filesystem::path& path);

/// The largest deviations from a golden.
struct Deviation {
  double logits = 0;  // of the stored rows, in standard deviations of the row
  double logsumexp = 0;
  int num_wrong_argmax = 0;  // rows where the top two differ by more than 1e-3
};
Deviation compare(const Golden& golden, std::span<const float> logits, int64_t vocab_size);

/// The largest difference from the rows of logits, in units of the largest of them; NaN stays.
double relative_error(const Json& expected, std::span<const float> logits);

/// Rounds the rotary frequencies as conversion to f16 and back rounds those of a reference's model,
/// where they are tensors like its weights.
void round_frequencies_to_f16(DecoderConfig& decoder);

/// `testdata/<name>` of the repository.
std::filesystem::path testdata(const std::string& name);

/// Weights as tools/make_model_goldens.py makes them from the tensors' names, in f32.
std::unique_ptr<TensorSource> make_hash_weights(std::vector<TensorInfo> infos);

/// Owned tensors that a test may change: starts as a copy of `source`.
class EditableSource : public TensorSource {
 public:
  explicit EditableSource(const TensorSource& source);
  std::string description() const override { return "edited"; }
  const std::vector<TensorInfo>& tensors() const override { return infos_; }
  const TensorInfo* find(std::string_view name) const override;
  TensorView view(const TensorInfo& info) const override;

  void remove(const std::string& name);
  /// Replaces or adds a tensor.
  void set(TensorInfo info, std::vector<std::byte> data);
  const std::vector<std::byte>& data(const std::string& name) const;

 private:
  size_t index_of(std::string_view name) const;
  std::vector<TensorInfo> infos_;
  std::vector<std::vector<std::byte>> data_;
};

}  // namespace halley
