#include "halley/hub/file_choice.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "halley/base/error.h"

namespace halley::hub {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;
using testing::UnorderedElementsAre;

RepoListing listing_of(const std::vector<std::string>& paths) {
  RepoListing listing;
  for (const std::string& path : paths) {
    listing.files.push_back({.path = path, .checksum = {}, .num_bytes = 10});
  }
  return listing;
}

std::vector<std::string> chosen(const std::vector<std::string>& paths, const std::string& gguf = {},
                                const std::vector<std::string>& patterns = {},
                                const ChoiceLimits& limits = {}) {
  std::vector<std::string> names;
  for (const RepoFile& file : choose_files(listing_of(paths), "org/name", gguf, patterns, limits)) {
    names.push_back(file.path);
  }
  return names;
}

TEST(FileChoice, TakesSafetensorsAndSmallFilesOfTheTopFolder) {
  EXPECT_THAT(
      chosen({".gitattributes", "README.md", "config.json", "consolidated.safetensors",
              "merges.txt", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
              "model.safetensors.index.json", "modeling_x.py", "name.gguf", "onnx/config.json",
              "original/consolidated.00.pth", "pytorch_model.bin", "pytorch_model.bin.index.json",
              "tokenizer.json", "tokenizer.model", "chat_template.jinja"}),
      UnorderedElementsAre("config.json", "merges.txt", "model-00001-of-00002.safetensors",
                           "model-00002-of-00002.safetensors", "model.safetensors.index.json",
                           "tokenizer.json", "tokenizer.model", "chat_template.jinja"));
}

TEST(FileChoice, PlacesWhatNamesOthersLast) {
  EXPECT_THAT(chosen({"a.json", "config.json", "model-00001-of-00001.safetensors",
                      "model.safetensors.index.json", "tokenizer.json"}),
              ElementsAre("model-00001-of-00001.safetensors", "a.json", "tokenizer.json",
                          "model.safetensors.index.json", "config.json"));
  EXPECT_THAT(chosen({"m-00001-of-00002.gguf", "m-00002-of-00002.gguf"}),
              ElementsAre("m-00002-of-00002.gguf", "m-00001-of-00002.gguf"));
}

TEST(FileChoice, TakesTheOnlyGgufFileWithItsParts) {
  EXPECT_THAT(chosen({"README.md", "config.json", "mmproj-f16.gguf", "q/m.gguf"}),
              ElementsAre("q/m.gguf"));
  EXPECT_THAT(
      [] {
        chosen({"a.gguf", "b-00001-of-00002.gguf", "b-00002-of-00002.gguf"});
      },
      ThrowsMessage<InputError>(
          AllOf(HasSubstr(R"(org/name: expected one GGUF file, got 2: "a.gguf", "b-00001)"),
                HasSubstr("Name one: org/name/a.gguf."))));
}

TEST(FileChoice, TakesANamedGgufFileWithItsParts) {
  const std::vector<std::string> paths = {"a.gguf", "b-00001-of-00002.gguf",
                                          "b-00002-of-00002.gguf", "c-00001-of-00002.gguf"};
  EXPECT_THAT(chosen(paths, "a.gguf"), ElementsAre("a.gguf"));
  EXPECT_THAT(chosen(paths, "b-00001-of-00002.gguf"),
              UnorderedElementsAre("b-00001-of-00002.gguf", "b-00002-of-00002.gguf"));
  EXPECT_THAT([&] { chosen(paths, "d.gguf"); },
              ThrowsMessage<InputError>(HasSubstr(R"(with the file "d.gguf", got none)")));
}

TEST(FileChoice, PatternsChooseInsteadButNeverPicklesOrCode) {
  const std::vector<std::string> paths = {"a/model.safetensors", "config.json", "model.bin",
                                          "model.py", "model.safetensors"};
  EXPECT_THAT(chosen(paths, {}, {"*model*"}),
              UnorderedElementsAre("a/model.safetensors", "model.safetensors"));
  EXPECT_THAT(chosen(paths, {}, {"config.*", "a/*"}),
              UnorderedElementsAre("a/model.safetensors", "config.json"));
  EXPECT_THAT(
      [&] {
        chosen(paths, {}, {"*.bin", "*.py"});
      },
      ThrowsMessage<InputError>(
          AllOf(HasSubstr("never pickles or code"), HasSubstr(R"(got "*.bin", "*.py")"))));
}

TEST(FileChoice, RejectsModelsOfPickles) {
  EXPECT_THAT(
      [] {
        chosen({"config.json", "pytorch_model.bin"});
      },
      ThrowsMessage<InputError>(HasSubstr("expected a model with safetensors or GGUF")));
}

TEST(FileChoice, HasLimits) {
  const std::vector<std::string> paths = {"config.json", "model.safetensors"};
  EXPECT_THAT(chosen(paths, {}, {}, {.num_files_max = 2, .num_bytes_max = 20}), testing::SizeIs(2));
  EXPECT_THAT([&] { chosen(paths, {}, {}, {.num_files_max = 1}); },
              ThrowsMessage<InputError>(HasSubstr("expected at most 1 files, got 2")));
  EXPECT_THAT([&] { chosen(paths, {}, {}, {.num_bytes_max = 19}); },
              ThrowsMessage<InputError>(HasSubstr("expected at most 19 B, got 20 B")));
}

}  // namespace
}  // namespace halley::hub
