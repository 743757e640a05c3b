#include "halley/quant/base/quant_config.h"

#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"

namespace halley {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

HfConfig parse(const std::string& text) { return HfConfig::parse(text, "config.json"); }

std::string method_of(const std::string& declaration) {
  return read_quant_config(parse(R"({"quantization_config": )" + declaration + "}"), {}).method;
}

TEST(QuantConfig, NoDeclarationMeansFullPrecision) {
  EXPECT_FALSE(read_quant_config(parse("{}"), {}).fields);
  EXPECT_FALSE(read_quant_config(parse(R"({"quantization_config": null})"), {}).fields);
}

TEST(QuantConfig, NamesTheMethodInLowerCase) {
  EXPECT_EQ(method_of(R"({"quant_method": "GPTQ"})"), "gptq");
  EXPECT_EQ(method_of(R"({"method": "awq"})"), "awq");
}

TEST(QuantConfig, TellsTheMethodByItsFieldsWhereItIsMissing) {
  EXPECT_EQ(method_of(R"({"bits": 4, "group_size": 128})"), "gptq");
  EXPECT_EQ(method_of(R"({"w_bit": 4, "q_group_size": 128, "zero_point": true})"), "awq");
  EXPECT_EQ(method_of(R"({"bits": 4, "version": "gemm"})"), "awq");
  EXPECT_EQ(method_of(R"({"wbits": 4, "group_size": -1})"), "qoq");
  EXPECT_EQ(method_of(R"({"config_groups": {}})"), "compressed-tensors");
  EXPECT_EQ(method_of(R"({"producer": {"name": "modelopt"}, "quantization": {}})"), "modelopt");
}

TEST(QuantConfig, LooksIntoTextConfig) {
  const QuantConfig quant = read_quant_config(
      parse(R"({"text_config": {"quantization_config": {"quant_method": "fp8"}}})"), {});
  EXPECT_EQ(quant.method, "fp8");
  EXPECT_EQ(quant.where(), "config.json: field 'text_config.quantization_config.quant_method'");
}

class QuantConfigFiles : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = std::filesystem::path(testing::TempDir()) /
           testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::create_directories(dir_);
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(dir_ / name) << text;
  }

  std::filesystem::path dir_;
};

TEST_F(QuantConfigFiles, ReadsTheFilesOfToolsInOrder) {
  write("hf_quant_config.json", R"({"producer": {}, "quantization": {"quant_algo": "FP8"}})");
  EXPECT_EQ(read_quant_config(parse("{}"), dir_).method, "modelopt");
  write("quant_config.json", R"({"wbits": 4})");
  EXPECT_EQ(read_quant_config(parse("{}"), dir_).method, "qoq");
  write("quantize_config.json", R"({"bits": 4})");
  EXPECT_EQ(read_quant_config(parse("{}"), dir_).method, "gptq");
  const HfConfig declared = parse(R"({"quantization_config": {"quant_method": "fp8"}})");
  EXPECT_EQ(read_quant_config(declared, dir_).method, "fp8");
}

TEST_F(QuantConfigFiles, RejectsFilesThatAreNotJson) {
  write("quantize_config.json", "{");
  EXPECT_THAT([&] { read_quant_config(parse("{}"), dir_); },
              ThrowsMessage<InputError>(HasSubstr("quantize_config.json: not valid JSON")));
}

TEST(QuantConfig, RejectsDeclarationsOfAnotherShape) {
  EXPECT_THAT([] { method_of("[]"); },
              ThrowsMessage<InputError>(HasSubstr(
                  "config.json: field 'quantization_config': expected an object, got an array")));
  EXPECT_THAT([] { method_of(R"({"quant_method": 4})"); },
              ThrowsMessage<InputError>(
                  HasSubstr("field 'quantization_config.quant_method': expected a string, got 4")));
}

}  // namespace
}  // namespace halley
