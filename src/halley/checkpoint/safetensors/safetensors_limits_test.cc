// Headers of a size at the limits: they must neither take long nor much memory.
#include <cstring>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/checkpoint/safetensors/safetensors.h"

namespace halley {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

std::string make_file(const std::string& header, size_t num_data_bytes) {
  std::string bytes(8, '\0');
  const uint64_t length = header.size();
  std::memcpy(bytes.data(), &length, 8);
  bytes.reserve(8 + header.size() + num_data_bytes);
  bytes += header;
  bytes.append(num_data_bytes, 'x');
  return bytes;
}

std::string make_tiny_tensors(size_t count) {
  std::string header = "{";
  for (size_t i = 0; i < count; ++i) {
    header += i == 0 ? "\"t" : ",\"t";
    header += std::to_string(i) + R"(":{"dtype":"U8","shape":[1],"data_offsets":[)";
    header += std::to_string(i) + "," + std::to_string(i + 1) + "]}";
  }
  header += "}";
  return make_file(header, count);
}

SafetensorsHeader parse(const std::string& bytes) {
  return parse_safetensors(std::as_bytes(std::span(bytes)), "x.safetensors");
}

TEST(SafetensorsLimits, Take200000Tensors) {
  const SafetensorsHeader header = parse(make_tiny_tensors(200'000));
  EXPECT_EQ(header.entries.size(), 200'000u);
}

TEST(SafetensorsLimits, RejectAMillionTensors) {
  const std::string bytes = make_tiny_tensors(1'000'000);
  EXPECT_THAT([&] { parse(bytes); },
              ThrowsMessage<CheckpointError>(HasSubstr(
                  "x.safetensors: header: expected at most 4000000 JSON values, got more")));
}

TEST(SafetensorsLimits, RejectAHeaderOfTinyValues) {
  std::string header = R"({"a":[)";
  for (int i = 0; i < 25'000'000; ++i) header += "[],";
  header += "1]}";
  EXPECT_THAT([&] { parse(make_file(header, 0)); },
              ThrowsMessage<CheckpointError>(HasSubstr("at most 4000000 JSON values")));
}

TEST(SafetensorsLimits, RejectADeepHeaderOfFullLength) {
  const std::string bytes = make_file(str("{\"a\":", std::string(99'000'000, '['), "}"), 0);
  EXPECT_THAT([&] { parse(bytes); },
              ThrowsMessage<CheckpointError>(HasSubstr("nested deeper than 128 levels")));
}

}  // namespace
}  // namespace halley
