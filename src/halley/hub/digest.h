// SHA-256, and the SHA-1 by which git names a file: checksums of what a hub sends.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace halley::hub {

enum class DigestKind { kSha1, kSha256 };

/// The digest of bytes that come in pieces (FIPS 180-4).
class Digest {
 public:
  explicit Digest(DigestKind kind);

  void update(std::string_view bytes);
  /// Lower-case hexadecimal. Call it once, last.
  std::string finish();

 private:
  void add_block(const unsigned char* block);
  void add_block_sha1(const std::array<uint32_t, 16>& words);
  void add_block_sha256(const std::array<uint32_t, 16>& words);

  DigestKind kind_;
  std::array<uint32_t, 8> state_ = {};  // SHA-1 has the first five
  std::array<unsigned char, 64> buffer_ = {};
  size_t num_buffered_ = 0;
  uint64_t num_bytes_ = 0;
};

/// The digest that `checksum` is of, for a file of `num_bytes` bytes: 64 digits are its SHA-256, 40
/// the SHA-1 of git's blob, which begins with a line about its size.
Digest digest_for(std::string_view checksum, uint64_t num_bytes);

/// 40 or 64 lower-case hexadecimal digits.
bool is_checksum(std::string_view text);

}  // namespace halley::hub
