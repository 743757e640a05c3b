#include "halley/models/parallel/ranked_model.h"

#include <exception>
#include <utility>

#include "halley/base/check.h"

namespace halley {
namespace {

template <typename T>
std::vector<std::byte> message_of(const T& value) {
  MessageWriter writer;
  writer.put(value);
  return writer.bytes();
}

}  // namespace

class RankedModel::Memory final : public KvMemory {
 public:
  Memory(const RankedModel& model, std::unique_ptr<KvMemory> own)
      : model_(model), own_(std::move(own)) {}
  ~Memory() override {
    const auto it = model_.memories_.find(own_->data());
    const uint64_t memory = it->second.memory;
    model_.memories_.erase(it);
    try {
      send_call(model_.ranks_, RankCall::kFreeMemory, message_of(memory));
    } catch (const std::exception&) {  // the other ranks have ended, and their memory with them
    }
  }
  std::byte* data() override { return own_->data(); }

 private:
  const RankedModel& model_;
  const std::unique_ptr<KvMemory> own_;
};

RankedModel::RankedModel(std::unique_ptr<CausalLm> own, const ExecContext& context,
                         std::unique_ptr<RankGroup> group)
    : group_(std::move(group)),
      own_(std::move(own)),
      context_(context),
      ranks_(group_->ranks()),
      shape_(own_->shape()) {
  HALLEY_CHECK(ranks_.rank() == 0, ranks_.rank());
  shape_.num_caches = ranks_.num_ranks();
}

RankedModel::~RankedModel() {
  try {
    send_call(ranks_, RankCall::kEnd, {});
  } catch (const std::exception&) {  // they have ended already
  }
}

std::vector<RankLayer> RankedModel::layers_of(const KvCacheView& cache) const {
  std::vector<RankLayer> layers;
  for (const KvLayerView& layer : cache.layers) {
    auto it = memories_.upper_bound(layer.pages);
    HALLEY_CHECK(it != memories_.begin());
    --it;
    const auto offset = static_cast<uint64_t>(layer.pages - it->first);
    HALLEY_CHECK(offset <= it->second.num_bytes, offset, it->second.num_bytes);
    layers.push_back({.layout = layer.layout,
                      .memory = it->second.memory,
                      .offset = offset,
                      .num_pages = layer.num_pages,
                      .scales = layer.scales});
  }
  return layers;
}

void RankedModel::send_step(const ForwardBatch& batch, const KvCacheView& cache) {
  std::vector<RankLayer> layers = layers_of(cache);
  if (layers == sent_layers_) {
    layers.clear();
  } else {
    sent_layers_ = layers;
  }
  const Precision precision = batch.precision.value_or(context_.precision);
  send_call(ranks_, RankCall::kForward, write_step(batch, precision, layers));
}

void RankedModel::forward(const ForwardBatch& batch, const KvCacheView& cache, Matrix logits) {
  send_step(batch, cache);
  own_->forward(batch, cache, logits);
}

std::vector<OpTime> RankedModel::profile(const ForwardBatch& batch, const KvCacheView& cache,
                                         Matrix logits) {
  send_step(batch, cache);
  return own_->profile(batch, cache, logits);
}

std::optional<int64_t> RankedModel::prepare(const StepLimits& limits) {
  send_call(ranks_, RankCall::kPrepare, message_of(limits));
  return least_free_bytes(ranks_, own_->prepare(limits));
}

std::unique_ptr<KvMemory> RankedModel::make_kv_memory(size_t num_bytes) const {
  const MemoryRequest request = {.memory = num_memories_++, .num_bytes = num_bytes};
  send_call(ranks_, RankCall::kMakeMemory, message_of(request));
  std::unique_ptr<KvMemory> own = own_->make_kv_memory(num_bytes);
  const bool is_new = memories_.emplace(own->data(), request).second;
  HALLEY_CHECK(is_new, num_bytes);
  return std::make_unique<Memory>(*this, std::move(own));
}

}  // namespace halley
