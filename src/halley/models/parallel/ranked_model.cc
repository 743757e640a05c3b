#include "halley/models/parallel/ranked_model.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include "halley/base/check.h"
#include "halley/base/error.h"

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
      model_.links_.tell(RankCall::kFreeMemory, message_of(memory));
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
      links_(group_->links()),
      shape_(own_->shape()) {
  HALLEY_CHECK(links_.world().rank() == 0, links_.world().rank());
  shape_.num_caches = links_.world().num_ranks();
}

RankedModel::~RankedModel() {
  try {
    links_.tell(RankCall::kEnd);
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
                      .num_pages = layer.num_pages});
  }
  return layers;
}

std::vector<RankLayer> RankedModel::new_layers(const KvCacheView& cache) {
  std::vector<RankLayer> layers = layers_of(cache);
  if (layers == sent_layers_) return {};
  sent_layers_ = layers;
  return layers;
}

Precision RankedModel::precision_of(const ForwardBatch& batch) const {
  return batch.precision.value_or(context_.precision);
}

void RankedModel::tell_step(const ForwardBatch& batch, const KvCacheView& cache) {
  links_.tell_step(write_step(batch, precision_of(batch), new_layers(cache)),
                   [this] { receive_logits_ahead(); });
}

void RankedModel::forward(const ForwardBatch& batch, const KvCacheView& cache, Matrix logits) {
  if (num_stages() > 1) {
    begin(batch, cache);
    return finish(logits);
  }
  tell_step(batch, cache);
  links_.run_own([&] { own_->forward(batch, cache, logits); });
}

void RankedModel::begin(const ForwardBatch& batch, const KvCacheView& cache) {
  HALLEY_CHECK(static_cast<int>(flights_.size()) < num_stages(), flights_.size());
  tell_step(batch, cache);
  const auto num_rows = static_cast<int64_t>(batch.logit_rows.size());
  try {
    own_->forward(batch, cache,
                  f32_matrix(static_cast<float*>(nullptr), num_rows, shape_.vocab_size));
  } catch (const InputError&) {
    sent_layers_.clear();  // the other stages have not heard of the step
    throw;
  }
  flights_.emplace_back().logits.resize(static_cast<size_t>(num_rows * shape_.vocab_size));
}

// The next stage takes a step when it has passed on the one before it, and so on to the last one,
// which waits until its logits are taken.
void RankedModel::receive_logits_ahead() {
  const auto oldest = std::find_if(flights_.begin(), flights_.end(),
                                   [](const Flight& flight) { return !flight.has_logits; });
  if (flights_.end() - oldest < num_stages() - 1) return;
  links_.receive_logits(oldest->logits);
  oldest->has_logits = true;
}

void RankedModel::finish(Matrix logits) {
  HALLEY_CHECK(!flights_.empty());
  Flight flight = std::move(flights_.front());
  flights_.pop_front();
  if (!flight.has_logits) links_.receive_logits(flight.logits);
  HALLEY_CHECK(logits.row_stride == logits.num_cols &&
                   logits.num_rows * logits.num_cols == static_cast<int64_t>(flight.logits.size()),
               logits.num_rows, flight.logits.size());
  std::memcpy(logits.data, flight.logits.data(), flight.logits.size() * sizeof(float));
}

std::vector<OpTime> RankedModel::profile(const ForwardBatch& batch, const KvCacheView& cache,
                                         Matrix logits) {
  if (num_stages() == 1) {
    links_.tell(RankCall::kProfile, write_step(batch, precision_of(batch), new_layers(cache)));
    return links_.run_own([&] { return own_->profile(batch, cache, logits); });
  }
  tell_step(batch, cache);
  std::vector<OpTime> times = own_->profile(batch, cache, logits);
  flights_.emplace_back().logits.resize(static_cast<size_t>(logits.num_rows * logits.num_cols));
  finish(logits);
  return times;
}

std::optional<int64_t> RankedModel::prepare(const StepLimits& limits) {
  runner_.reset();
  links_.tell(RankCall::kPrepare, message_of(limits));
  return links_.least_free_bytes(links_.run_own([&] { return own_->prepare(limits); }));
}

StepRunner* RankedModel::step_runner() {
  StepRunner* own = own_->step_runner();
  if (own == nullptr) return nullptr;
  if (runner_ == nullptr || !runner_->is_around(*own)) {
    const auto write = [this](uint64_t num_waits, const RunnerStep& step,
                              const KvCacheView& cache) {
      return write_launch(num_waits, step, precision_of(step.batch), new_layers(cache));
    };
    runner_ = std::make_unique<RankedRunner>(*own, links_, write);
  }
  return runner_.get();
}

std::unique_ptr<KvMemory> RankedModel::make_kv_memory(size_t num_bytes) const {
  const MemoryRequest request = {.memory = num_memories_++, .num_bytes = num_bytes};
  links_.tell(RankCall::kMakeMemory, message_of(request));
  std::unique_ptr<KvMemory> own = own_->make_kv_memory(num_bytes);
  const bool is_new = memories_.emplace(own->data(), request).second;
  HALLEY_CHECK(is_new, num_bytes);
  return std::make_unique<Memory>(*this, std::move(own));
}

}  // namespace halley
