#include "halley/quant/all/formats.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/checkpoint/safetensors/safetensors.h"

namespace halley {
namespace {

std::unique_ptr<QuantScheme> detect(const std::string& config) {
  const auto source = make_dummy_weights({});
  return detect_quant_scheme(HfConfig::parse(config, "config.json"), *source);
}

TEST(QuantFormats, PlainCheckpointIsOfFormatNone) {
  EXPECT_STREQ(detect("{}")->format_name(), "none");
  EXPECT_STREQ(detect(R"({"quantization_config": null})")->format_name(), "none");
}

TEST(QuantFormats, UnknownQuantizationIsRefusedByName) {
  EXPECT_THAT([] { detect(R"({"quantization_config": {"quant_method": "hq\nq"}})"); },
              testing::ThrowsMessage<UnsupportedError>(
                  "config.json: field 'quantization_config': expected one of the supported formats "
                  "(none), got \"hq\\nq\". Use the unquantized checkpoint of this model."));
  EXPECT_THAT(
      [] { detect(R"({"quantization_config": {"bits": 4}})"); },
      testing::ThrowsMessage<UnsupportedError>(testing::HasSubstr("got \"(no quant_method)\"")));
}

}  // namespace
}  // namespace halley
