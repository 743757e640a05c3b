// Expected values: FIPS 180-4's examples, sha256sum and `git hash-object`.
#include "halley/hub/digest.h"

#include <string>

#include <gtest/gtest.h>

#include "halley/base/str.h"

namespace halley::hub {
namespace {

std::string digest_of(DigestKind kind, const std::string& text) {
  Digest digest(kind);
  digest.update(text);
  return digest.finish();
}

TEST(Digest, HasTheValuesOfTheStandard) {
  EXPECT_EQ(digest_of(DigestKind::kSha256, "abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(digest_of(DigestKind::kSha256, ""),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(digest_of(DigestKind::kSha256, std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  EXPECT_EQ(digest_of(DigestKind::kSha1, "abc"), "a9993e364706816aba3e25717850c26c9cd0d89d");
  EXPECT_EQ(digest_of(DigestKind::kSha1, std::string(1'000'000, 'a')),
            "34aa973cd4c4daa4f61eeb2bdbad27316534016f");
}

// Lengths about the end of a block, where the padding takes one block or two.
TEST(Digest, IsThatOfTheWholeHoweverItIsCut) {
  for (const DigestKind kind : {DigestKind::kSha1, DigestKind::kSha256}) {
    for (const size_t size : {1, 54, 55, 56, 57, 63, 64, 65, 119, 120, 127, 128, 129, 1000}) {
      std::string text(size, 'x');
      for (size_t i = 0; i < size; ++i) text[i] = static_cast<char>(i * 7);
      for (const size_t piece : {1, 3, 63, 64, 65}) {
        Digest digest(kind);
        for (size_t i = 0; i < size; i += piece) digest.update(text.substr(i, piece));
        EXPECT_EQ(digest.finish(), digest_of(kind, text)) << size << " in pieces of " << piece;
      }
    }
  }
}

TEST(Digest, OfAGitBlobBeginsWithItsSize) {
  const std::string checksum = "ce013625030ba8dba906f756967f9e9ca394464a";
  Digest digest = digest_for(checksum, 6);
  digest.update("hello\n");
  EXPECT_EQ(digest.finish(), checksum);
}

TEST(Digest, ChecksumsHave40Or64LowerCaseDigits) {
  EXPECT_TRUE(is_checksum(std::string(40, 'a')));
  EXPECT_TRUE(is_checksum(std::string(64, '0')));
  for (const std::string& text :
       {std::string(), std::string(39, 'a'), std::string(41, 'a'), std::string(40, 'A'),
        std::string(63, 'a'), str("../", std::string(37, 'a'))}) {
    EXPECT_FALSE(is_checksum(text)) << text;
  }
}

}  // namespace
}  // namespace halley::hub
