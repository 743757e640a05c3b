// Requests with LoRA adapters, on the fake model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/engine/testing/engine_fixture.h"
#include "halley/models/base/low_rank.h"

namespace halley {
namespace {

using testing::HasSubstr;

std::shared_ptr<const Adapter> make_adapter(uint64_t id) {
  auto adapter = std::make_shared<Adapter>();
  adapter->name = "adapter";
  adapter->id = id;
  return adapter;
}

GenerateRequest request_with(const std::shared_ptr<const Adapter>& adapter) {
  GenerateRequest request = greedy_request({1, 2, 3, 4, 5, 6, 7, 8, 9}, 12);
  request.sampling.ignore_eos = true;
  request.adapter = adapter;
  return request;
}

EngineConfig small_pages() {
  EngineConfig config;
  config.page_tokens = 4;
  config.max_num_batched_tokens = 7;  // prompts are cut
  return config;
}

class Adapters : public testing::TestWithParam<FakeDevice> {
 protected:
  std::unique_ptr<Engine> make_engine() const {
    return fake_engine(fake_model(hashed_logits, {.device = GetParam()}), small_pages());
  }
};

TEST_P(Adapters, EachRequestOfABatchHasItsOwn) {
  const std::vector<std::shared_ptr<const Adapter>> adapters = {nullptr, make_adapter(1),
                                                                make_adapter(2)};
  std::vector<std::vector<int32_t>> alone;
  for (const auto& adapter : adapters) {
    const auto engine = make_engine();
    alone.push_back(generate_all(*engine, {request_with(adapter)}).front().token_ids);
  }
  EXPECT_NE(alone[0], alone[1]);
  EXPECT_NE(alone[1], alone[2]);
  const auto engine = make_engine();
  std::vector<GenerateRequest> requests;
  for (size_t i = 0; i < 9; ++i) requests.push_back(request_with(adapters[i % 3]));

  const auto results = generate_all(*engine, std::move(requests));

  for (size_t i = 0; i < results.size(); ++i) EXPECT_EQ(results[i].token_ids, alone[i % 3]) << i;
}

TEST_P(Adapters, PrefixesAreSharedWithinAnAdapterAlone) {
  const auto engine = make_engine();
  const auto first = make_adapter(1), second = make_adapter(2);
  const auto hits_of = [&](const std::shared_ptr<const Adapter>& adapter) {
    const int64_t before = engine->stats().num_prefix_hits;
    generate_all(*engine, {request_with(adapter)});
    return engine->stats().num_prefix_hits - before;
  };
  EXPECT_EQ(hits_of(nullptr), 0);
  EXPECT_EQ(hits_of(first), 0);
  EXPECT_EQ(hits_of(second), 0);
  EXPECT_EQ(hits_of(nullptr), 8);
  EXPECT_EQ(hits_of(first), 8);
  EXPECT_EQ(hits_of(make_adapter(3)), 0);  // another of the same name
}

INSTANTIATE_TEST_SUITE_P(Devices, Adapters,
                         testing::Values(FakeDevice::kHost, FakeDevice::kDeviceAtWait,
                                         FakeDevice::kDeviceAtLaunch));

TEST(AdaptersWithout, ModelThatTakesNoneRejectsTheRequest) {
  auto model = fake_model();
  model->has_adapters = false;
  const auto engine = fake_engine(std::move(model));
  const auto results =
      generate_all(*engine, {request_with(make_adapter(1)), request_with(nullptr)});
  EXPECT_EQ(results[0].submit.status, Submit::kInvalid);
  EXPECT_THAT(results[0].submit.message, HasSubstr("adapter: expected none"));
  EXPECT_EQ(results[1].submit.status, Submit::kQueued);
}

}  // namespace
}  // namespace halley
