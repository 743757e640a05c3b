#include "halley/quant/all/builtin_quant_configs.h"

#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/file.h"
#include "halley/json/json.h"

namespace halley {
namespace {

TEST(BuiltinQuantConfigs, AreThoseOfTheBenchmarks) {
  const std::map<std::string, std::string> files = {
      {"fp8", "fp8_dynamic"}, {"nestedfp", "nestedfp"},        {"w4a16", "gptq_w4a16_g128"},
      {"w4a8", "qoq_w4a8"},   {"w4a8_group", "qoq_w4a8_g128"}, {"w4ax", "fmpq_w4ax"}};
  EXPECT_EQ(builtin_quant_config_names().size(), files.size());
  for (const std::string& name : builtin_quant_config_names()) {
    ASSERT_TRUE(files.contains(name)) << name;
    const std::string path = HALLEY_SOURCE_DIR "/bench/configs/" + files.at(name) + ".json";
    EXPECT_EQ(parse_json(builtin_quant_config(name), name),
              parse_json(read_text_file(path, 1 << 20), path));
  }
}

TEST(BuiltinQuantConfigs, HasNothingForOtherNames) {
  for (const char* name : {"", "f16", "FP8", "{}"}) {
    EXPECT_EQ(builtin_quant_config(name), nullptr) << name;
  }
}

}  // namespace
}  // namespace halley
