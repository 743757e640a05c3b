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
  Follower(CausalLm& model, Communicator& ranks) : model_(model), ranks_(ranks) {}

  void run() {
    std::vector<std::byte> message;
    for (;;) {
      switch (receive_call(ranks_, message)) {
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
    static_cast<void>(least_free_bytes(ranks_, model_.prepare(limits)));
  }

  void forward(const RankStep& step) {
    if (!step.layers.empty()) set_layers(step.layers);
    const auto vocab_size = static_cast<size_t>(model_.shape().vocab_size);
    logits_.resize(step.logit_rows.size() * vocab_size);
    try {
      model_.forward(step.batch(), {layers_},
                     f32_matrix(logits_.data(), static_cast<int64_t>(step.logit_rows.size()),
                                model_.shape().vocab_size));
    } catch (const InputError&) {  // rank 0 throws it too
    }
  }

  void set_layers(const std::vector<RankLayer>& layers) {
    layers_.clear();
    for (const RankLayer& layer : layers) {
      layers_.push_back({.layout = layer.layout,
                         .pages = memories_.at(layer.memory)->data() + layer.offset,
                         .num_pages = layer.num_pages,
                         .scales = layer.scales});
    }
  }

  CausalLm& model_;
  Communicator& ranks_;
  std::map<uint64_t, std::unique_ptr<KvMemory>> memories_;
  std::vector<KvLayerView> layers_;
  std::vector<float> logits_;
};

}  // namespace

void follow_rank_zero(CausalLm& model, Communicator& ranks) { Follower(model, ranks).run(); }

}  // namespace halley
