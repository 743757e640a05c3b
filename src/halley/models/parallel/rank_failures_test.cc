// Ranks that fail, at load and in steps, and what every rank has of the caller's memory.
#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/checkpoint/safetensors/safetensors.h"
#include "halley/core/thread_pool.h"
#include "halley/models/all/testing/golden_model.h"
#include "halley/models/parallel/follow_rank.h"
#include "halley/models/parallel/load_ranked_model.h"
#include "halley/models/parallel/rank_links.h"
#include "halley/models/parallel/ranked_model.h"
#include "halley/parallel/base/thread_communicator.h"

namespace halley {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;

constexpr std::chrono::milliseconds kLongTimeout = 20s;  // nothing waits for it
constexpr int kNumRanks = 2;

/// One rank as the test decides and sees it.
struct Script {
  std::function<void()> on_step = [] {};
  std::optional<int64_t> free_bytes = {};
  std::vector<int64_t> page_offsets = {};  // of the last step's layers, in this rank's memory
  std::atomic<int> num_memories = 0;
};

class ScriptedMemory final : public KvMemory {
 public:
  ScriptedMemory(size_t num_bytes, Script& script) : bytes_(num_bytes), script_(script) {
    ++script_.num_memories;
  }
  ~ScriptedMemory() override { --script_.num_memories; }
  std::byte* data() override { return bytes_.data(); }

 private:
  std::vector<std::byte> bytes_;
  Script& script_;
};

/// Meets the other rank in every step, as a decoder does, and does nothing else.
class ScriptedModel final : public CausalLm {
 public:
  ScriptedModel(Communicator& ranks, Script& script) : ranks_(ranks), script_(script) {}

  const ModelShape& shape() const override { return shape_; }
  void forward(const ForwardBatch&, const KvCacheView& cache, Matrix) override {
    script_.on_step();
    script_.page_offsets.clear();
    for (const KvLayerView& layer : cache.layers) {
      script_.page_offsets.push_back(layer.pages - memory_);
    }
    float sum = 0;
    ranks_.all_reduce_sum({&sum, 1, DType::kF32});
  }
  std::optional<int64_t> prepare(const StepLimits&) override { return script_.free_bytes; }
  std::unique_ptr<KvMemory> make_kv_memory(size_t num_bytes) const override {
    auto memory = std::make_unique<ScriptedMemory>(num_bytes, script_);
    memory_ = memory->data();
    return memory;
  }

 private:
  Communicator& ranks_;
  Script& script_;
  const ModelShape shape_ = {
      .num_layers = 3, .num_kv_heads = 1, .head_dim = 8, .vocab_size = 4, .max_positions = 64};
  mutable std::byte* memory_ = nullptr;
};

/// Two ranks by their scripts; the second one is a thread.
class ScriptedRanks final : public RankGroup {
 public:
  ScriptedRanks(Script& follower, std::chrono::milliseconds timeout)
      : ends_(make_thread_communicators(kNumRanks, timeout)),
        thread_([this, &follower] { follow(follower); }),
        links_(*ends_[0], 1) {}
  ~ScriptedRanks() override { thread_.join(); }
  RankLinks& links() override { return links_; }

 private:
  void follow(Script& script) {
    RankLinks links(*ends_[1], 1);
    ScriptedModel model(*links.ranks(), script);
    try {
      follow_rank_zero(model, links);
    } catch (const std::exception& error) {
      ends_[1]->abort_all(error.what());
    }
  }

  std::vector<std::unique_ptr<Communicator>> ends_;
  std::thread thread_;
  RankLinks links_;  // both ranks make theirs at the same time
};

class RankFailures : public testing::Test {
 protected:
  void start(std::chrono::milliseconds timeout = kLongTimeout) {
    auto group = std::make_unique<ScriptedRanks>(scripts_[1], timeout);
    auto own = std::make_unique<ScriptedModel>(*group->links().ranks(), scripts_[0]);
    model_ = std::make_unique<RankedModel>(std::move(own), context_, std::move(group));
    memory_ = model_->make_kv_memory(static_cast<size_t>(3 * page_bytes()));
  }

  /// Runs a step on layers that begin at these pages of the memory.
  void step(const std::vector<int64_t>& page_offsets = {0, 1, 2}) {
    std::vector<KvLayerView> layers;
    for (const int64_t page : page_offsets) {
      layers.push_back(
          {.layout = layout_, .pages = memory_->data() + page * page_bytes(), .num_pages = 1});
    }
    model_->forward({}, {layers}, f32_matrix(static_cast<float*>(nullptr), 0, 4));
  }

  template <typename Error>
  std::string error_of_step() {
    try {
      step();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  int64_t page_bytes() const { return static_cast<int64_t>(layout_.page_bytes()); }

  const KvPageLayout layout_ = {.num_kv_heads = 1, .head_dim = 8};
  ThreadPool pool_{1};
  const ExecContext context_{.pool = pool_};
  Script scripts_[kNumRanks];
  std::unique_ptr<RankedModel> model_;
  std::unique_ptr<KvMemory> memory_;  // goes before the model
};

TEST_F(RankFailures, AnErrorOfAnotherRankEndsTheStepWithItsReason) {
  scripts_[1].on_step = [] { throw CheckpointError("rank 1: weights of layer 3 are gone"); };
  start();
  for (int i = 0; i < 2; ++i) {  // from then on every step
    EXPECT_EQ(error_of_step<DeviceError>(), "rank 1: weights of layer 3 are gone");
  }
}

/// The other rank waits for it in the middle of the step.
TEST_F(RankFailures, AnErrorOfRankZeroEndsTheOthers) {
  scripts_[0].on_step = [] { throw DeviceError("no memory left"); };
  start();
  EXPECT_EQ(error_of_step<DeviceError>(), "no memory left");
  EXPECT_THAT(error_of_step<DeviceError>(), testing::HasSubstr("rank 0: no memory left"));
  memory_.reset();
  model_.reset();  // returns: the other has ended
}

TEST_F(RankFailures, ARankThatHangsIsNamedAfterTheTimeout) {
  std::promise<void> end;
  scripts_[1].on_step = [ended = std::shared_future<void>(end.get_future())] { ended.wait(); };
  start(50ms);
  EXPECT_THAT(error_of_step<DeviceError>(),
              testing::HasSubstr("rank 1 did not take part within 0.05 s"));
  end.set_value();
}

TEST_F(RankFailures, AStepThatAllRanksRejectIsOneOfTheCaller) {
  for (Script& script : scripts_) {
    script.on_step = [num_steps = 0]() mutable {
      if (num_steps++ == 0) throw InputError("token 9: expected 0 to 3");
    };
  }
  start();
  EXPECT_EQ(error_of_step<InputError>(), "token 9: expected 0 to 3");
  step();
}

TEST_F(RankFailures, EveryRankHasPagesAtTheSameOffsetsOfItsOwnMemory) {
  start();
  for (const auto& pages : {std::vector<int64_t>{0, 1, 2}, {0, 1, 2}, {2, 0, 1}}) {
    step(pages);
    std::vector<int64_t> offsets;
    for (const int64_t page : pages) offsets.push_back(page * page_bytes());
    for (const Script& script : scripts_) EXPECT_EQ(script.page_offsets, offsets);
  }
}

TEST_F(RankFailures, MemoryIsMadeAndFreedOnAllRanks) {
  start();
  auto second = model_->make_kv_memory(64);
  step();
  for (const Script& script : scripts_) EXPECT_EQ(script.num_memories, 2);
  second.reset();
  step();
  for (const Script& script : scripts_) EXPECT_EQ(script.num_memories, 1);
  memory_.reset();
  model_.reset();
  for (const Script& script : scripts_) EXPECT_EQ(script.num_memories, 0);
}

TEST_F(RankFailures, TheLeastFreeMemoryOfAllRanksCounts) {
  start();
  scripts_[0].free_bytes = 5000;
  EXPECT_EQ(model_->prepare({}), std::nullopt);
  scripts_[1].free_bytes = 3000;
  EXPECT_EQ(model_->prepare({}), 3000);
  EXPECT_EQ(model_->shape().num_caches, kNumRanks);
}

/// Only the last rank reads the last row of q_proj.
TEST(RankedLoad, ThrowsTheErrorOfTheRankThatHasIt) {
  const std::filesystem::path dir = testdata("quantized/ct_int8_token");
  const HfConfig config = HfConfig::load(dir);
  const auto stored = open_checkpoint_weights(dir);
  const std::string name = "model.layers.0.self_attn.q_proj.weight_scale";
  const TensorInfo* info = stored->find(name);
  ASSERT_NE(info, nullptr);
  EditableSource source(*stored);
  std::vector<std::byte> bytes = source.data(name);
  constexpr std::byte kNan[] = {std::byte{0xFF}, std::byte{0x7F}};  // ends one of any type
  std::memcpy(bytes.data() + bytes.size() - sizeof(kNan), kNan, sizeof(kNan));
  source.set(*info, std::move(bytes));

  ThreadPool pool(1);
  ExecContext context{.pool = pool};
  LoadOptions options;
  options.quant = read_quant_config(config, dir);
  try {
    load_ranked_model(context, {.num_ranks = 4, .timeout = kLongTimeout}, config, source, {},
                      options);
    FAIL() << "expected an error";
  } catch (const CheckpointError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr(name));
  }
}

}  // namespace
}  // namespace halley
