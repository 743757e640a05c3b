#include "halley/models/base/causal_lm.h"

#include <chrono>

#include "halley/base/check.h"
#include "halley/core/host_buffer.h"

namespace halley {
namespace {

class HostKvMemory final : public KvMemory {
 public:
  explicit HostKvMemory(size_t num_bytes) : buffer_(num_bytes) {}
  std::byte* data() override { return buffer_.data(); }

 private:
  HostBuffer buffer_;
};

}  // namespace

size_t kv_bytes_per_token(const ModelShape& shape, KvDType dtype) {
  const KvPageLayout layout = {
      .dtype = dtype, .num_kv_heads = shape.num_kv_heads, .head_dim = shape.head_dim};
  return static_cast<size_t>(shape.num_layers) * layout.token_bytes();
}

std::vector<OpTime> CausalLm::profile(const ForwardBatch& batch, const KvCacheView& cache,
                                      Matrix logits) {
  const auto start = std::chrono::steady_clock::now();
  forward(batch, cache, logits);
  const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - start;
  return {{.name = "forward", .start_us = 0, .duration_us = time.count()}};
}

void CausalLm::begin(const ForwardBatch&, const KvCacheView&) {
  HALLEY_CHECK(false, "a model in one stage");
}

void CausalLm::finish(Matrix) { HALLEY_CHECK(false, "a model in one stage"); }

std::optional<int64_t> CausalLm::prepare(const StepLimits&) { return std::nullopt; }

std::unique_ptr<KvMemory> CausalLm::make_kv_memory(size_t num_bytes) const {
  return std::make_unique<HostKvMemory>(num_bytes);
}

}  // namespace halley
