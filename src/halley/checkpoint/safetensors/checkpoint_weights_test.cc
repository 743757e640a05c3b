#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/checkpoint/safetensors/safetensors.h"
#include "halley/checkpoint/safetensors/weight_index.h"
#include "halley/core/float16.h"

namespace halley {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

// A directory of the test's own, removed behind it.
class OpenWeights : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    dir_ = fs::temp_directory_path() / str("halley_weights_", info->name(), "_", ::getpid());
    fs::remove_all(dir_);
    fs::create_directories(dir_);
  }
  void TearDown() override { fs::remove_all(dir_); }

  void write(const std::string& name, const std::string& text) const {
    std::ofstream(dir_ / name, std::ios::binary) << text;
  }

  void write_index(const std::string& weight_map) const {
    write("model.safetensors.index.json",
          str(R"({"metadata": {"total_size": 8}, "weight_map": )", weight_map, "}"));
  }

  // The error of open_checkpoint_weights for the directory, which must be of type E.
  template <typename E>
  std::string error() const {
    try {
      open_checkpoint_weights(dir_);
    } catch (const E& caught) {
      return caught.what();
    }
    ADD_FAILURE() << "no error";
    return "";
  }

  fs::path dir_;
};

// A file of u8 tensors of four bytes each, whose bytes are `fill`.
std::string make_file(const std::vector<std::string>& names, char fill) {
  std::string header = "{";
  size_t offset = 0;
  for (const std::string& name : names) {
    header += str(offset == 0 ? "" : ",", '"', name, R"(":{"dtype":"U8","shape":[2,2],)",
                  R"("data_offsets":[)", offset, ",", offset + 4, "]}");
    offset += 4;
  }
  header += "}";
  std::string length(8, '\0');
  const uint64_t size = header.size();
  std::memcpy(length.data(), &size, 8);
  return length + header + std::string(offset, fill);
}

TEST_F(OpenWeights, ReadsASingleFile) {
  write("model.safetensors", make_file({"b", "a"}, 'x'));
  const auto weights = open_checkpoint_weights(dir_);
  ASSERT_EQ(weights->tensors().size(), 2u);
  EXPECT_EQ(weights->tensors()[0].name, "a");
  EXPECT_EQ(weights->find("c"), nullptr);
  const TensorInfo* info = weights->find("b");
  ASSERT_NE(info, nullptr);
  EXPECT_EQ(info->num_bytes, 4u);
  const TensorView view = weights->view(*info);
  EXPECT_EQ(view.shape, (Shape{2, 2}));
  EXPECT_EQ(view.dtype, DType::kU8);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(view.data), 4), "xxxx");
  EXPECT_EQ(weights->description(), dir_.string());
}

TEST_F(OpenWeights, ReadsShardsByTheirIndex) {
  write_index(R"({"a": "model-00001-of-00002.safetensors", "c": "model-00001-of-00002.safetensors",
                  "b": "model-00002-of-00002.safetensors"})");
  write("model-00001-of-00002.safetensors", make_file({"a", "c"}, '1'));
  write("model-00002-of-00002.safetensors", make_file({"b"}, '2'));
  const auto weights = open_checkpoint_weights(dir_);
  ASSERT_EQ(weights->tensors().size(), 3u);
  std::string first_bytes;
  for (const TensorInfo& info : weights->tensors()) {
    first_bytes += info.name + static_cast<char>(*weights->view(info).data);
  }
  EXPECT_EQ(first_bytes, "a1b2c1");
}

TEST_F(OpenWeights, FollowsLinksOutOfTheDirectory) {
  fs::create_directories(dir_ / "blobs");
  fs::create_directories(dir_ / "snapshot");
  write("blobs/0123", make_file({"a"}, 'x'));
  fs::create_symlink("../blobs/0123", dir_ / "snapshot" / "model.safetensors");
  EXPECT_EQ(open_checkpoint_weights(dir_ / "snapshot")->tensors().size(), 1u);
}

TEST_F(OpenWeights, TakesTheOnlyFileOfAnotherName) {
  write("gptq_model-4bit-128g.safetensors", make_file({"a"}, 'x'));
  EXPECT_EQ(open_checkpoint_weights(dir_)->tensors().size(), 1u);
  write("other.safetensors", make_file({"a"}, 'x'));
  EXPECT_THAT(error<CheckpointError>(),
              HasSubstr("got 2 other .safetensors files (\"gptq_model-4bi"));
}

TEST_F(OpenWeights, RejectsOneShardWithoutItsIndex) {
  write("model-00001-of-00003.safetensors", make_file({"a"}, 'x'));
  EXPECT_THAT(error<CheckpointError>(), HasSubstr("Download model.safetensors.index.json"));
  fs::remove(dir_ / "model-00001-of-00003.safetensors");
  write("model-00001-of-00001.safetensors", make_file({"a"}, 'x'));
  EXPECT_EQ(open_checkpoint_weights(dir_)->tensors().size(), 1u);
}

TEST_F(OpenWeights, SaysWhatOtherWeightsToConvert) {
  write("pytorch_model.bin", "x");
  EXPECT_THAT(error<UnsupportedError>(), AllOf(HasSubstr("pytorch_model.bin"),
                                               HasSubstr("convert the checkpoint to safetensors")));
  fs::remove(dir_ / "pytorch_model.bin");
  write("model.Q4_K_M.gguf", "x");
  EXPECT_THAT(error<UnsupportedError>(), HasSubstr("model.Q4_K_M.gguf"));
  write("adapter_model.safetensors", make_file({"a"}, 'x'));
  EXPECT_THAT(error<UnsupportedError>(), HasSubstr("the adapter with --lora-modules"));
}

TEST_F(OpenWeights, RejectsADirectoryWithoutWeights) {
  EXPECT_THAT(error<CheckpointError>(), HasSubstr("got no weight file"));
  EXPECT_THAT([&] { open_checkpoint_weights(dir_ / "none"); },
              ThrowsMessage<CheckpointError>(HasSubstr("expected a model's directory")));
}

TEST_F(OpenWeights, RejectsAMissingShard) {
  write_index(R"({"a": "one.safetensors", "b": "two.safetensors"})");
  write("one.safetensors", make_file({"a"}, 'x'));
  EXPECT_THAT(error<CheckpointError>(),
              AllOf(HasSubstr("index.json: field 'weight_map'"), HasSubstr("\"two.safetensors\"")));
}

TEST_F(OpenWeights, RejectsShardsThatDisagreeWithTheIndex) {
  write_index(R"({"a": "one.safetensors", "b": "two.safetensors"})");
  write("one.safetensors", make_file({"a"}, 'x'));
  write("two.safetensors", make_file({"c"}, 'x'));
  EXPECT_THAT(error<CheckpointError>(), AllOf(HasSubstr("two.safetensors: tensor \"c\""),
                                              HasSubstr("got one that it does not name")));
  write("two.safetensors", make_file({"b", "a"}, 'x'));  // "a" stands in both
  EXPECT_THAT(error<CheckpointError>(), AllOf(HasSubstr("two.safetensors: tensor \"a\""),
                                              HasSubstr("names for \"one.safetensors\"")));
  write("two.safetensors", make_file({}, 'x'));
  EXPECT_THAT(error<CheckpointError>(), HasSubstr("two.safetensors: expected tensor \"b\""));
  write("two.safetensors", "");
  EXPECT_THAT(error<CheckpointError>(), HasSubstr("two.safetensors: expected at least 8 bytes"));
}

TEST_F(OpenWeights, ReadsEveryTestModel) {
  int num_models = 0;
  for (const auto& entry :
       fs::directory_iterator(fs::path(HALLEY_SOURCE_DIR) / "testdata/models")) {
    if (!fs::exists(entry.path() / "config.json")) continue;
    EXPECT_GT(open_checkpoint_weights(entry.path())->tensors().size(), 3u) << entry.path();
    ++num_models;
  }
  EXPECT_GE(num_models, 1);
}

TEST(WeightIndex, RejectsNamesThatLeaveTheDirectory) {
  for (const char* name :
       {"../x.safetensors", "/etc/x.safetensors", "a/b.safetensors", "a\\\\b.safetensors", "..", "",
        ".safetensors", "x.bin", "x\\u0000.safetensors", "x.safetensors\\n"}) {
    EXPECT_THAT(
        [&] { parse_weight_index(str(R"({"weight_map": {"t": ")", name, "\"}}"), "index"); },
        ThrowsMessage<CheckpointError>(
            HasSubstr("index: field 'weight_map': tensor \"t\": expected the name of a "
                      ".safetensors file in the same directory, got \"")))
        << name;
  }
  const std::string long_name(250, 'x');
  EXPECT_THROW(
      parse_weight_index(str(R"({"weight_map": {"t": ")", long_name, ".safetensors\"}}"), "i"),
      CheckpointError);
}

TEST(WeightIndex, RejectsMalformedText) {
  for (const char* text : {"", "[]", "{}", R"({"weight_map": []})", R"({"weight_map": {}})",
                           R"({"weight_map": {"a": 1}})", R"({"weight_map": {"a": null}})",
                           R"({"weight_map": {"a": "x.safetensors", "a": "y.safetensors"}})"}) {
    EXPECT_THROW(parse_weight_index(text, "index"), CheckpointError) << text;
  }
}

std::vector<TensorInfo> infos_of_every_dtype() {
  std::vector<TensorInfo> infos;
  for (int i = 0; i <= static_cast<int>(DType::kU64); ++i) {
    const auto dtype = static_cast<DType>(i);
    infos.push_back({str("tensor.", name_of(dtype)), dtype, {3, 40}, 0});
  }
  return infos;
}

TEST(DummyWeights, AreValidForEveryDType) {
  const auto weights = make_dummy_weights(infos_of_every_dtype());
  const auto again = make_dummy_weights(infos_of_every_dtype());
  ASSERT_EQ(weights->tensors().size(), 22u);
  for (const TensorInfo& info : weights->tensors()) {
    EXPECT_EQ(info.num_bytes, static_cast<size_t>(120 * bits_of(info.dtype) / 8)) << info.name;
    const TensorView view = weights->view(info);
    EXPECT_EQ(view.num_bytes(), info.num_bytes);
    const TensorView other = again->view(*again->find(info.name));
    EXPECT_EQ(std::memcmp(view.data, other.data, info.num_bytes), 0) << info.name;
  }
}

TEST(DummyWeights, HaveSmallValues) {
  const auto weights = make_dummy_weights({{"a", DType::kF16, {1000, 1100}, 0},
                                           {"b", DType::kF16, {1000, 1100}, 0},
                                           {"c", DType::kF8E4M3Fnuz, {4096}, 0}});
  double sum = 0.0;
  double sum_squares = 0.0;
  const TensorView view = weights->view(*weights->find("a"));
  for (int64_t i = 0; i < view.num_elements(); ++i) {
    uint16_t bits = 0;
    std::memcpy(&bits, view.data + 2 * i, 2);
    const double value = f16_to_f32(bits);
    ASSERT_LT(std::fabs(value), 0.08);
    sum += value;
    sum_squares += value * value;
  }
  const auto count = static_cast<double>(view.num_elements());
  EXPECT_NEAR(sum / count, 0.0, 1e-4);
  EXPECT_NEAR(std::sqrt(sum_squares / count), 0.02, 2e-4);
  EXPECT_NE(std::memcmp(view.data, weights->view(*weights->find("b")).data, 256), 0);
  const TensorView fnuz = weights->view(*weights->find("c"));
  for (int i = 0; i < 4096; ++i) ASSERT_NE(fnuz.data[i], std::byte{0x80});
}

TEST(DummyWeights, RejectSizesThatDoNotFit) {
  EXPECT_THAT(
      [] {
        make_dummy_weights({{"w", DType::kF32, {1LL << 40, 1LL << 40}, 0}});
      },
      ThrowsMessage<InputError>(HasSubstr("dummy weights: tensor \"w\"")));
  EXPECT_THROW(make_dummy_weights({{"w", DType::kF32, {-1}, 0}}), InputError);
  EXPECT_THROW(make_dummy_weights({{"w", DType::kF4, {3}, 0}}), InputError);
}

}  // namespace
}  // namespace halley
