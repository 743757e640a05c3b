#include "halley/cli/serve_watch.h"

#include <future>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "halley/json/json.h"

namespace halley::cli {
namespace {

constexpr PrecisionSwitch kSwitch = {.level = 1, .reason = PrecisionReason::kFirstToken};

TEST(ServeWatch, LogsASwitchOfThePrecisionWithItsReason) {
  std::promise<std::string> line;
  ServeWatch watch({.sink = [&](std::string_view text) { line.set_value(std::string(text)); }});
  EngineConfig config;
  watch.observe(config, {"f16", "e4m3"});
  config.on_precision_switch(kSwitch);
  OrderedJson event = OrderedJson::parse(line.get_future().get());
  event.erase("time");
  EXPECT_EQ(event, OrderedJson::parse(R"({"level": "info", "event": "precision_switch",
      "precision": "e4m3", "reason": "first_token"})"));
}

TEST(ServeWatch, DoesNotHoldTheEngineUpWhereNobodyReadsTheLog) {
  std::promise<void> may_read, is_stuck;
  int num_lines = 0;
  {
    ServeWatch watch({.sink = [&](std::string_view) {
      if (++num_lines > 1) return;
      is_stuck.set_value();
      may_read.get_future().wait();
    }});
    EngineConfig config;
    watch.observe(config, {"f16", "e4m3"});
    config.on_precision_switch(kSwitch);
    is_stuck.get_future().wait();
    for (int i = 0; i < 1000; ++i) config.on_precision_switch(kSwitch);
    may_read.set_value();
  }
  EXPECT_GE(num_lines, 1);
  EXPECT_LE(num_lines, 100) << "what waits is bounded";
}

}  // namespace
}  // namespace halley::cli
