#include "halley/models/parallel/follow_rank.h"

#include <cstddef>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "halley/base/check.h"
#include "halley/base/error.h"
#include "halley/models/parallel/rank_messages.h"

namespace halley {
namespace {

class Follower {
 public:
  Follower(CausalLm& model, RankLinks& links) : model_(model), links_(links) {}

  void run() {
    std::vector<std::byte> message;
    for (;;) {
      switch (links_.hear(message)) {
        case RankCall::kPrepare:
          prepare(MessageReader(message).take<StepLimits>());
          break;
        case RankCall::kMakeMemory: {
          const auto request = MessageReader(message).take<MemoryRequest>();
          memories_[request.memory] = model_.make_kv_memory(request.num_bytes);
          break;
        }
        case RankCall::kFreeMemory:
          memories_.erase(MessageReader(message).take<uint64_t>());
          break;
        case RankCall::kForward:
          forward(read_step(message));
          break;
        case RankCall::kEnd:
          return;
      }
    }
  }

 private:
  void prepare(const StepLimits& limits) {
    static_cast<void>(links_.least_free_bytes(model_.prepare(limits)));
  }

  void forward(const RankStep& step) {
    if (!step.layers.empty()) set_layers(step.layers);
    const auto vocab_size = static_cast<size_t>(model_.shape().vocab_size);
    logits_.resize(step.logit_rows.size() * vocab_size);
    try {
      model_.forward(step.batch(), {layers_},
                     f32_matrix(logits_.data(), static_cast<int64_t>(step.logit_rows.size()),
                                model_.shape().vocab_size));
    } catch (const InputError&) {  // rank 0 throws it too, and no other stage has heard of the step
      return;
    }
    if (links_.is_head() && links_.share().is_last()) links_.send_logits(logits_);
  }

  void set_layers(const std::vector<RankLayer>& layers) {
    layers_.clear();
    // The first stage has the most layers. Scales are those of this rank's.
    const ModelShape& shape = model_.shape();
    for (size_t i = 0; i < static_cast<size_t>(shape.num_layers); ++i) {
      const RankLayer& layer = layers.at(i);
      layers_.push_back({.layout = layer.layout,
                         .pages = memories_.at(layer.memory)->data() + layer.offset,
                         .num_pages = layer.num_pages,
                         .scales = shape.kv_scales.empty() ? KvScales{} : shape.kv_scales.at(i)});
    }
  }

  CausalLm& model_;
  RankLinks& links_;
  std::map<uint64_t, std::unique_ptr<KvMemory>> memories_;
  std::vector<KvLayerView> layers_;
  std::vector<float> logits_;
};

}  // namespace

void follow_rank_zero(CausalLm& model, RankLinks& links) { Follower(model, links).run(); }

}  // namespace halley
