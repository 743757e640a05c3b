// The rejection of every method that is known and unsupported.
#include "halley/quant/unsupported/unsupported.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/quant/stored/testing/memory_tensors.h"

namespace halley {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;
using testing::ThrowsMessage;

std::unique_ptr<QuantScheme> detect(const std::string& method) {
  const HfConfig config = HfConfig::parse(
      str(R"({"quantization_config": {"quant_method": ")", method, "\"}}"), "dir/config.json");
  const MemoryTensors tensors;
  return kQuantUnsupported.detect(read_quant_config(config, {}), tensors);
}

TEST(UnsupportedMethods, NamesFileFieldMethodAndWhatToDo) {
  EXPECT_THAT(
      [] { detect("SqueezeLLM"); },
      ThrowsMessage<UnsupportedError>(
          "dir/config.json: field 'quantization_config.quant_method': expected fp8, "
          "compressed-tensors, gptq, awq, qoq or ModelOpt's FP8, got \"squeezellm\", look-up "
          "tables for each output with sparse outliers. Use a checkpoint of this model in GPTQ, "
          "AWQ or compressed-tensors (pack-quantized), or quantize the original with GPTQModel or "
          "llm-compressor."));
}

TEST(UnsupportedMethods, RejectsEachByItsName) {
  for (const UnsupportedMethod& method : unsupported_methods()) {
    const std::string name(method.name);
    EXPECT_THAT([&] { detect(name); },
                ThrowsMessage<UnsupportedError>(
                    AllOf(StartsWith("dir/config.json: field 'quantization_config.quant_method': "),
                          HasSubstr("got \"" + name + "\", "), HasSubstr(method.advice))));
    EXPECT_TRUE(std::string_view(method.advice).ends_with('.')) << name;
  }
  EXPECT_GE(unsupported_methods().size(), 30u);
}

TEST(UnsupportedMethods, LeavesOthersAlone) {
  for (const char* method :
       {"fp8", "gptq", "awq", "qoq", "compressed-tensors", "modelopt", "own"}) {
    EXPECT_EQ(detect(method), nullptr) << method;
  }
  const MemoryTensors tensors;
  EXPECT_EQ(kQuantUnsupported.detect({}, tensors), nullptr);
}

}  // namespace
}  // namespace halley
