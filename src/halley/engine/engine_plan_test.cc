#include "halley/engine/engine_plan.h"

#include <cmath>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/engine/available_memory.h"
#include "halley/engine/kv_cache.h"

namespace halley {
namespace {

using testing::HasSubstr;
using testing::StrEq;
using testing::ThrowsMessage;

constexpr int64_t kGigabyte = 1'000'000'000;

// 2 layers * 2 * 4 kv heads * 8 * 2 bytes: 256 bytes a token.
ModelShape small_shape() {
  return {.num_layers = 2,
          .num_kv_heads = 4,
          .head_dim = 8,
          .vocab_size = 100,
          .max_positions = 1000,
          .kv_dtype_default = KvDType::kBf16};
}

EnginePlan plan_on_host(const EngineConfig& config, const ModelShape& shape, int64_t memory) {
  return plan_engine(with_defaults(config, shape, true), shape, host_kv_room(memory));
}

EnginePlan plan_on_device(const EngineConfig& config, const ModelShape& shape, int64_t left) {
  return plan_engine(with_defaults(config, shape, false), shape, device_kv_room(left));
}

TEST(EnginePlan, FillsInTheDefaults) {
  const EnginePlan plan = plan_on_host({}, small_shape(), 100 * kGigabyte);
  EXPECT_EQ(plan.config.max_model_len, 1000);
  EXPECT_EQ(plan.config.kv_dtype, KvDType::kBf16);
  EXPECT_EQ(plan.config.max_num_queued_tokens, 1024 * 1000);
  EXPECT_EQ(plan.config.max_num_seqs, 64);
  EXPECT_EQ(plan.config.max_num_batched_tokens, 512);
  EXPECT_EQ(plan.num_pages, 64 * 63);
  EXPECT_EQ(plan.config.kv_bytes, 64 * 63 * 16 * 256);
  EXPECT_EQ(kv_page_bytes(small_shape(), plan.layout), 16 * 256);
}

TEST(EnginePlan, HasAFewThreadsForMasksUnlessToldOtherwise) {
  EngineConfig config;
  const EngineConfig full = with_defaults(config, small_shape(), true);
  EXPECT_GE(full.num_mask_threads, 1);
  EXPECT_LE(full.num_mask_threads, 8);
  config.num_mask_threads = 3;
  EXPECT_EQ(with_defaults(config, small_shape(), true).num_mask_threads, 3);
}

TEST(EnginePlan, CountsTheBytesOfEveryTypeOfTheCache) {
  // 2 layers * 2 * 4 kv heads * (8 elements and a scale)
  const std::pair<KvDType, int64_t> token_bytes[] = {
      {KvDType::kF32, 16 * 32},  {KvDType::kF16, 16 * 16},     {KvDType::kBf16, 16 * 16},
      {KvDType::kInt8, 16 * 12}, {KvDType::kFp8E4M3, 16 * 12}, {KvDType::kInt4, 16 * 8}};
  for (const auto& [dtype, num_bytes] : token_bytes) {
    EngineConfig config;
    config.kv_dtype = dtype;
    config.kv_bytes = 100 * 16 * num_bytes;
    const EnginePlan plan = plan_on_host(config, small_shape(), kGigabyte);
    EXPECT_EQ(plan.num_pages, 100) << dtype;
    EXPECT_EQ(kv_page_bytes(small_shape(), plan.layout), 16 * num_bytes) << dtype;
    EXPECT_EQ(kv_bytes_per_token(small_shape(), dtype), static_cast<size_t>(num_bytes)) << dtype;
  }
}

TEST(EnginePlan, TakesAQuarterOfTheMemoryAtMost) {
  const EnginePlan plan = plan_on_host({}, small_shape(), 4 * 16 * 256 * 100);
  EXPECT_EQ(plan.num_pages, 100);
}

TEST(EnginePlan, LimitsPrefillsOnTheHostWhereItIsLeftToTheEngine) {
  using Kind = ItlTarget::Kind;
  EXPECT_EQ(with_defaults({}, small_shape(), true).itl_target.kind, Kind::kOff);
  const std::pair<ItlTarget, ItlTarget> on_device[] = {
      {{.kind = Kind::kAutoOnHost}, {.kind = Kind::kOff}},
      {{.kind = Kind::kAuto}, {.kind = Kind::kAuto}},
      {{.kind = Kind::kSeconds, .seconds = 1}, {.kind = Kind::kSeconds, .seconds = 1}}};
  for (const auto& [given, expected] : on_device) {
    EngineConfig config;
    config.itl_target = given;
    EXPECT_EQ(with_defaults(config, small_shape(), false).itl_target, expected);
  }
  EngineConfig config;
  config.itl_target = {.kind = Kind::kAutoOnHost};
  EXPECT_EQ(with_defaults(config, small_shape(), true).itl_target.kind, Kind::kAuto);
}

TEST(EnginePlan, RejectsItlTargetsOutOfRange) {
  for (const double seconds : {0.0, -1.0, 3601.0, std::nan("")}) {
    EngineConfig config;
    config.itl_target = {.kind = ItlTarget::Kind::kSeconds, .seconds = seconds};
    EXPECT_THAT([&] { with_defaults(config, small_shape(), true); },
                ThrowsMessage<InputError>(
                    HasSubstr("itl_target: expected more than 0 and at most 3600 seconds, got ")));
  }
}

TEST(EnginePlan, RunsMoreAtOnceOnADevice) {
  const EngineConfig config = with_defaults({}, small_shape(), false);
  EXPECT_EQ(config.max_num_seqs, 256);
  EXPECT_EQ(config.max_num_batched_tokens, 8192);
}

TEST(EnginePlan, FitsOneDefaultToTheOtherField) {
  EngineConfig config;
  config.max_num_batched_tokens = 5;
  EXPECT_EQ(with_defaults(config, small_shape(), true).max_num_seqs, 5);
  config.max_num_batched_tokens = 0;
  config.max_num_seqs = 10'000;
  EXPECT_EQ(with_defaults(config, small_shape(), true).max_num_batched_tokens, 10'000);
  EXPECT_EQ(with_defaults(config, small_shape(), false).max_num_batched_tokens, 10'000);
}

TEST(EnginePlan, TakesAllThatADeviceHasLeftAndIsOfUse) {
  EXPECT_EQ(plan_on_device({}, small_shape(), 16 * 256 * 100).num_pages, 100);
  EXPECT_EQ(plan_on_device({}, small_shape(), kGigabyte).num_pages, 256 * 63);
  EngineConfig config;
  config.kv_bytes = 16 * 256 * 80;
  EXPECT_EQ(plan_on_device(config, small_shape(), kGigabyte).num_pages, 80);
}

TEST(EnginePlan, RejectsMoreThanADeviceHasLeft) {
  EngineConfig config;
  config.kv_bytes = kGigabyte + 1;
  EXPECT_THAT([&] { plan_on_device(config, small_shape(), kGigabyte); },
              ThrowsMessage<InputError>(
                  StrEq("kv_bytes: expected at most 1000000000, which the device has left after "
                        "the weights and the memory of a step, got 1000000001. Lower it, or "
                        "max_num_batched_tokens.")));
  EXPECT_THAT([&] { plan_on_device({}, small_shape(), 16 * 256 * 62); },
              ThrowsMessage<InputError>(
                  StrEq("kv cache: expected room for at least one sequence of max_model_len=1000 "
                        "tokens, which needs 258048 bytes, got 253952 bytes that the device has "
                        "left. Set max_model_len to at most 992, or use a smaller kv_dtype.")));
  EXPECT_THAT([&] { plan_on_device({}, small_shape(), 100); },
              ThrowsMessage<InputError>(
                  HasSubstr("Set max_num_batched_tokens lower, or use a smaller kv_dtype.")));
}

TEST(EnginePlan, TellsTheModelItsLargestSteps) {
  ModelShape shape = small_shape();
  StepLimits limits = step_limits(with_defaults({}, shape, false), shape);
  EXPECT_EQ(limits.num_sequences, 256);
  EXPECT_EQ(limits.num_rows, 8192);
  EXPECT_EQ(limits.num_logit_rows, 8192);  // small ones: every row may score a prompt
  EXPECT_EQ(limits.max_length, 1000);
  EXPECT_EQ(limits.kv_dtype, KvDType::kBf16);
  EXPECT_EQ(limits.page_tokens, 16);
  shape.vocab_size = 150'000;
  limits = step_limits(with_defaults({}, shape, false), shape);
  EXPECT_EQ(limits.num_logit_rows, 256 + 111);
}

TEST(EnginePlan, MakesNoMorePagesThanCanBeUsed) {
  EngineConfig config;
  config.kv_bytes = 100 * kGigabyte;
  config.max_num_seqs = 2;
  EXPECT_EQ(plan_on_host(config, small_shape(), kGigabyte).num_pages, 2 * 63);
}

TEST(EnginePlan, SaysHowMuchOneSequenceNeeds) {
  EngineConfig config;
  config.kv_bytes = 16 * 256 * 62 + 5;
  EXPECT_THAT([&] { plan_on_host(config, small_shape(), kGigabyte); },
              ThrowsMessage<InputError>(
                  StrEq("kv cache: expected room for at least one sequence of max_model_len=1000 "
                        "tokens, which needs 258048 bytes, got kv_bytes=253957. Set kv_bytes to "
                        "at least 258048 or max_model_len to at most 992.")));
  config.max_model_len = 992;
  EXPECT_EQ(plan_on_host(config, small_shape(), kGigabyte).num_pages, 62);
  config.kv_bytes = 1;
  EXPECT_THAT([&] { plan_on_host(config, small_shape(), kGigabyte); },
              ThrowsMessage<InputError>(HasSubstr("Set kv_bytes to at least 253952.")));
}

TEST(EnginePlan, BoundsTheLogitsOfPromptsInAStep) {
  ModelShape shape = small_shape();
  EXPECT_EQ(plan_on_host({}, shape, kGigabyte).max_num_prompt_logits, 512);  // all of its rows
  shape.vocab_size = 150'000;
  EXPECT_EQ(plan_on_host({}, shape, kGigabyte).max_num_prompt_logits, 111);  // 64 MiB
  shape.vocab_size = 1'000'000'000;
  EXPECT_EQ(plan_on_host({}, shape, kGigabyte).max_num_prompt_logits, 1);
}

struct BadConfig {
  const char* message;
  void (*spoil)(EngineConfig&);
};

class PlanEngine : public testing::TestWithParam<BadConfig> {};

TEST_P(PlanEngine, NamesTheFieldTheRangeAndTheValue) {
  EngineConfig config;
  GetParam().spoil(config);
  EXPECT_THAT([&] { plan_on_host(config, small_shape(), kGigabyte); },
              ThrowsMessage<InputError>(StrEq(GetParam().message)));
}

const BadConfig kBadConfigs[] = {
    {"page_tokens: expected 1 to 4096, got 0", [](EngineConfig& c) { c.page_tokens = 0; }},
    {"max_num_seqs: expected 0 to 65536, got -1", [](EngineConfig& c) { c.max_num_seqs = -1; }},
    {"max_num_batched_tokens: expected 0 to 1048576, got -1",
     [](EngineConfig& c) { c.max_num_batched_tokens = -1; }},
    {"max_num_batched_tokens: expected at least max_num_seqs (64), since each running sequence "
     "needs one row, got 63. Raise it or lower max_num_seqs.",
     [](EngineConfig& c) {
       c.max_num_seqs = 64;
       c.max_num_batched_tokens = 63;
     }},
    {"num_mask_threads: expected 0 to 256, got 257",
     [](EngineConfig& c) { c.num_mask_threads = 257; }},
    {"max_num_queued: expected 1 to 16777216, got 0",
     [](EngineConfig& c) { c.max_num_queued = 0; }},
    {"max_num_queued_tokens: expected 0 to 1125899906842624, got -1",
     [](EngineConfig& c) { c.max_num_queued_tokens = -1; }},
    {"kv_bytes: expected 0 to 9223372036854775807, got -1",
     [](EngineConfig& c) { c.kv_bytes = -1; }},
    {"max_model_len: expected 2 to the model's maximum of 1000, got 1001",
     [](EngineConfig& c) { c.max_model_len = 1001; }},
    {"max_model_len: expected 2 to the model's maximum of 1000, got 1",
     [](EngineConfig& c) { c.max_model_len = 1; }},
};
INSTANTIATE_TEST_SUITE_P(Cases, PlanEngine, testing::ValuesIn(kBadConfigs));

// A cache asks its model for the shape and for memory.
class ShapedLm final : public CausalLm {
 public:
  explicit ShapedLm(ModelShape shape) : shape_(std::move(shape)) {}
  const ModelShape& shape() const override { return shape_; }
  void forward(const ForwardBatch&, const KvCacheView&, Matrix) override {}

 private:
  ModelShape shape_;
};

TEST(KvCache, HasOneBufferALayer) {
  const KvPageLayout layout = kv_page_layout(small_shape(), KvDType::kF32, 4);
  const KvCache cache(layout, ShapedLm(small_shape()), 5);
  const KvCacheView view = cache.view();
  ASSERT_EQ(view.layers.size(), 2u);
  EXPECT_EQ(view.layers[1].num_pages, 5);
  EXPECT_EQ(view.layers[1].layout.page_bytes(), size_t{2 * 4 * 4 * 8 * 4});
  EXPECT_NE(view.layers[0].pages, view.layers[1].pages);
  view.layers[1].pages[5 * layout.page_bytes() - 1] = std::byte{1};  // the last byte is there
}

TEST(KvCache, HandsEachLayerItsScales) {
  ModelShape shape = small_shape();
  const KvPageLayout layout = kv_page_layout(shape, KvDType::kFp8E4M3, 4);
  const KvCache without(layout, ShapedLm(shape), 1);
  EXPECT_EQ(without.view().layers[1].scales.k, 0);
  shape.kv_scales = {{0.5f, 0.25f}, {2.0f, 3.0f}};
  const KvCache cache(layout, ShapedLm(shape), 1);
  EXPECT_EQ(cache.view().layers[0].scales.v, 0.25f);
  EXPECT_EQ(cache.view().layers[1].scales.k, 2.0f);
  EXPECT_EQ(cache.view().layers[1].scales.v, 3.0f);
}

TEST(KvCacheDeathTest, RejectsScalesForOtherLayersThanTheModels) {
  ModelShape shape = small_shape();
  shape.kv_scales = {{0.5f, 0.25f}};
  EXPECT_DEATH(KvCache(kv_page_layout(shape, KvDType::kFp8E4M3, 4), ShapedLm(shape), 1),
               "num_layers");
}

TEST(KvCache, SaysThatTheMemoryCannotBeHad) {
  const KvPageLayout layout = kv_page_layout(small_shape(), KvDType::kF32, 4);
  EXPECT_THAT([&] { KvCache(layout, ShapedLm(small_shape()), INT64_MAX / 2); },
              ThrowsMessage<DeviceError>(HasSubstr("do not fit the address space")));
}

// A model on a device with its own memory.
class DeviceLm final : public CausalLm {
 public:
  explicit DeviceLm(int64_t kv_bytes_left) : shape_(small_shape()), kv_bytes_left_(kv_bytes_left) {}
  const ModelShape& shape() const override { return shape_; }
  void forward(const ForwardBatch&, const KvCacheView&, Matrix) override {}
  std::optional<int64_t> prepare(const StepLimits& limits) override {
    num_rows = limits.num_rows;
    return kv_bytes_left_;
  }
  std::string device_name() const override { return "Abacus 3"; }

  int64_t num_rows = 0;

 private:
  ModelShape shape_;
  int64_t kv_bytes_left_;
};

TEST(KvCache, IsMadeOnceTheModelIsPrepared) {
  DeviceLm model(3 * 4 * 512);
  const StepLimits limits = {.num_rows = 7, .kv_dtype = KvDType::kF32, .page_tokens = 4};
  EXPECT_EQ(prepare_cache(model, limits, 3).view().layers[1].num_pages, 3);
  EXPECT_EQ(model.num_rows, 7);
  EXPECT_THAT([&] { prepare_cache(model, limits, 4); },
              ThrowsMessage<DeviceError>(
                  StrEq("kv cache: expected room for 4 pages of 2048 bytes on Abacus 3, got 6144 "
                        "bytes. Use a smaller kv_dtype, a shorter window or fewer rows a step.")));
}

TEST(AvailableMemory, ReadsMeminfo) {
  EXPECT_EQ(parse_mem_available("MemTotal:  16 kB\nMemAvailable:   12345 kB\n"), 12345 * 1024);
  EXPECT_EQ(parse_mem_available("MemTotal:  16 kB\n"), std::nullopt);
  EXPECT_EQ(parse_mem_available("MemAvailable: x kB\n"), std::nullopt);
}

TEST(AvailableMemory, ReadsTheControlGroupsLimit) {
  EXPECT_EQ(parse_cgroup_room("1000\n", "400\n"), 600);
  EXPECT_EQ(parse_cgroup_room("1000\n", "4000\n"), 0);
  EXPECT_EQ(parse_cgroup_room("max\n", "400\n"), std::nullopt);
  EXPECT_EQ(parse_cgroup_room("", ""), std::nullopt);
}

TEST(AvailableMemory, IsPositiveHere) { EXPECT_GT(available_memory_bytes(), 1'000'000); }

}  // namespace
}  // namespace halley
