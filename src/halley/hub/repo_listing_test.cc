#include "halley/hub/repo_listing.h"

#include <string>

#include <gmock/gmock.h>

#include "halley/base/error.h"
#include "halley/base/str.h"

namespace halley::hub {
namespace {

using testing::HasSubstr;

const std::string kCommit(40, 'a');
const std::string kSha1(40, 'b');
const std::string kSha256(64, 'c');

RepoListing parse(const std::string& files) {
  return parse_repo_listing(str(R"({"sha": ")", kCommit, R"(", "siblings": [)", files, "]}"),
                            "hub");
}

std::string error_of(const std::string& text) {
  try {
    parse_repo_listing(text, "hub");
  } catch (const CheckpointError& error) {
    return error.what();
  }
  return {};
}

std::string error_of_file(const std::string& file) {
  return error_of(str(R"({"sha": ")", kCommit, R"(", "siblings": [)", file, "]}"));
}

TEST(RepoListing, HasTheCommitAndTheFilesByPath) {
  const RepoListing listing =
      parse(str(R"({"rfilename": "model.safetensors", "size": 3, "blobId": ")", kSha1,
                R"(", "lfs": {"sha256": ")", kSha256, R"(", "size": 7, "pointerSize": 3}},)",
                R"({"rfilename": "config.json", "size": 5, "blobId": ")", kSha1,
                R"(", "lfs": null},)", R"({"rfilename": "a/b.json"})"));
  EXPECT_EQ(listing.commit, kCommit);
  ASSERT_EQ(listing.files.size(), 3u);
  EXPECT_EQ(listing.files[0].path, "a/b.json");
  EXPECT_EQ(listing.files[0].checksum, "");
  EXPECT_EQ(listing.files[0].num_bytes, std::nullopt);
  EXPECT_EQ(listing.files[1].path, "config.json");
  EXPECT_EQ(listing.files[1].checksum, kSha1);
  EXPECT_EQ(listing.files[1].num_bytes, 5u);
  EXPECT_EQ(listing.files[2].checksum, kSha256);
  EXPECT_EQ(listing.files[2].num_bytes, 7u);
}

TEST(RepoListing, RejectsPathsOutsideOfTheModel) {
  for (const char* path :
       {"../x", "/etc/passwd", "a/../../x", "", ".", "a//b", "a\\\\b", "a\\u0000b", "a\\nb"}) {
    EXPECT_THAT(error_of_file(str(R"({"rfilename": ")", path, R"("})")),
                HasSubstr("hub: expected the path of a file in the model's folder, got "))
        << path;
  }
  EXPECT_THAT(error_of_file(R"({"rfilename": 1})"), HasSubstr("got number"));
  EXPECT_THAT(error_of_file("[]"), HasSubstr("got nothing"));
}

TEST(RepoListing, RejectsWrongChecksumsAndSizes) {
  const std::string file = R"({"rfilename": "a.json", )";
  EXPECT_THAT(error_of_file(file + R"("blobId": "../../x"})"),
              HasSubstr(R"(expected a checksum of 40 digits for "a.json", got "../../x")"));
  EXPECT_THAT(error_of_file(str(file, R"("blobId": ")", kSha256, "\"}")), HasSubstr("40 digits"));
  EXPECT_THAT(error_of_file(str(file, R"("lfs": {"sha256": ")", kSha1, "\"}}")),
              HasSubstr("64 digits"));
  EXPECT_THAT(error_of_file(file + R"("lfs": 1})"), HasSubstr("an object in 'lfs'"));
  for (const char* size : {"-1", "1.5", "1e300", "\"1\"", "1125899906842625"}) {
    EXPECT_THAT(error_of_file(str(file, R"("size": )", size, "}")),
                HasSubstr(R"(expected the size of "a.json")"))
        << size;
  }
}

TEST(RepoListing, RejectsOtherTexts) {
  EXPECT_THAT(error_of(""), HasSubstr("hub: not valid JSON"));
  EXPECT_THAT(error_of("[]"), HasSubstr("hub: expected a JSON object, got array"));
  EXPECT_THAT(error_of(R"({"siblings": []})"), HasSubstr("a commit of 40 digits in 'sha'"));
  EXPECT_THAT(error_of(R"({"sha": "main", "siblings": []})"), HasSubstr(R"(got "main")"));
  EXPECT_THAT(error_of(str(R"({"sha": ")", kCommit, "\"}")), HasSubstr("files in 'siblings'"));
  EXPECT_THAT(error_of_file(R"({"rfilename": "a"}, {"rfilename": "a"})"),
              HasSubstr(R"(expected each file once, got "a" twice)"));
}

}  // namespace
}  // namespace halley::hub
