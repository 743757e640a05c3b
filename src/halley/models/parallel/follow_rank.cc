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
          forward(read_step(message), &CausalLm::forward);
          break;
        case RankCall::kProfile:
          forward(read_step(message), &CausalLm::profile);
          break;
        case RankCall::kStartSlot:
          start_slot(read_slot(message));
          break;
        case RankCall::kLaunch:
          launch(read_launch(message));
          break;
        case RankCall::kChoose:
          choose(read_choices(message));
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

  /// `call` is the model's, whose result is rank 0's business.
  template <typename Call>
  void forward(const RankStep& step, Call call) {
    if (!step.layers.empty()) set_layers(step.layers);
    const auto vocab_size = static_cast<size_t>(model_.shape().vocab_size);
    logits_.resize(step.logit_rows.size() * vocab_size);
    try {
      (model_.*call)(step.batch(), {layers_},
                     f32_matrix(logits_.data(), static_cast<int64_t>(step.logit_rows.size()),
                                model_.shape().vocab_size));
    } catch (const InputError&) {  // rank 0 throws it too, and no other stage has heard of the step
      return;
    }
    if (links_.is_head() && links_.share().is_last()) links_.send_logits(logits_);
  }

  StepRunner& runner() {
    StepRunner* runner = model_.step_runner();
    HALLEY_CHECK(runner != nullptr);
    return *runner;
  }

  /// Rank 0 has seen these results, and every rank has the same.
  void wait(uint64_t num_waits) {
    for (uint64_t i = 0; i < num_waits; ++i) runner().wait();
  }

  void start_slot(const RankSlot& slot) {
    runner().start_slot(slot.slot, slot.choice, slot.prompt_ids, slot.output_ids);
  }

  void launch(const RankLaunch& launch) {
    wait(launch.num_waits);
    if (!launch.step.layers.empty()) set_layers(launch.step.layers);
    try {
      runner().launch({.batch = launch.step.batch(), .choices = launch.choices}, {layers_});
    } catch (const InputError&) {  // rank 0 throws it too, and nothing is queued
    }
  }

  void choose(const RankChoices& choices) {
    wait(choices.num_waits);
    std::vector<MaskedChoice> masked;
    for (size_t i = 0; i < choices.slots.size(); ++i) {
      masked.push_back({.slot = choices.slots[i], .allowed = &choices.allowed[i]});
    }
    runner().choose(masked);
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
