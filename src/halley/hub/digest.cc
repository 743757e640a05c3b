#include "halley/hub/digest.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "halley/base/check.h"
#include "halley/base/str.h"

namespace halley::hub {
namespace {

constexpr std::array<uint32_t, 8> kSha1Start = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476,
                                                0xc3d2e1f0};
constexpr std::array<uint32_t, 8> kSha256Start = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                                  0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
constexpr std::array<uint32_t, 64> kSha256Rounds = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

constexpr size_t kSha1Digits = 40, kSha256Digits = 64;

}  // namespace

Digest::Digest(DigestKind kind)
    : kind_(kind), state_(kind == DigestKind::kSha1 ? kSha1Start : kSha256Start) {}

void Digest::add_block_sha1(const std::array<uint32_t, 16>& words) {
  std::array<uint32_t, 80> w = {};
  std::copy(words.begin(), words.end(), w.begin());
  for (size_t i = 16; i < w.size(); ++i) {
    w[i] = std::rotl(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
  }
  auto [a, b, c, d, e, unused0, unused1, unused2] = state_;
  for (size_t i = 0; i < w.size(); ++i) {
    uint32_t f = 0, k = 0;
    if (i < 20) {
      f = (b & c) | (~b & d);
      k = 0x5a827999;
    } else if (i < 40) {
      f = b ^ c ^ d;
      k = 0x6ed9eba1;
    } else if (i < 60) {
      f = (b & c) | (b & d) | (c & d);
      k = 0x8f1bbcdc;
    } else {
      f = b ^ c ^ d;
      k = 0xca62c1d6;
    }
    const uint32_t next = std::rotl(a, 5) + f + e + k + w[i];
    e = d;
    d = c;
    c = std::rotl(b, 30);
    b = a;
    a = next;
  }
  const std::array<uint32_t, 5> added = {a, b, c, d, e};
  for (size_t i = 0; i < added.size(); ++i) state_[i] += added[i];
}

void Digest::add_block_sha256(const std::array<uint32_t, 16>& words) {
  std::array<uint32_t, 64> w = {};
  std::copy(words.begin(), words.end(), w.begin());
  for (size_t i = 16; i < w.size(); ++i) {
    const uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ (w[i - 15] >> 3);
    const uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ (w[i - 2] >> 10);
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state_;
  for (size_t i = 0; i < w.size(); ++i) {
    const uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    const uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + kSha256Rounds[i] + w[i];
    const uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    const uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g;
    g = f;
    f = e;
    e = d + t1;
    d = c;
    c = b;
    b = a;
    a = t1 + t2;
  }
  const std::array<uint32_t, 8> added = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < added.size(); ++i) state_[i] += added[i];
}

void Digest::add_block(const unsigned char* block) {
  std::array<uint32_t, 16> words = {};
  for (size_t i = 0; i < words.size(); ++i) {
    words[i] = uint32_t{block[4 * i]} << 24 | uint32_t{block[4 * i + 1]} << 16 |
               uint32_t{block[4 * i + 2]} << 8 | uint32_t{block[4 * i + 3]};
  }
  kind_ == DigestKind::kSha1 ? add_block_sha1(words) : add_block_sha256(words);
}

void Digest::update(std::string_view bytes) {
  num_bytes_ += bytes.size();
  while (!bytes.empty()) {
    if (num_buffered_ == 0 && bytes.size() >= buffer_.size()) {
      add_block(reinterpret_cast<const unsigned char*>(bytes.data()));
      bytes.remove_prefix(buffer_.size());
      continue;
    }
    const size_t count = std::min(bytes.size(), buffer_.size() - num_buffered_);
    std::memcpy(buffer_.data() + num_buffered_, bytes.data(), count);
    bytes.remove_prefix(count);
    num_buffered_ += count;
    if (num_buffered_ < buffer_.size()) return;
    add_block(buffer_.data());
    num_buffered_ = 0;
  }
}

std::string Digest::finish() {
  const uint64_t num_bits = num_bytes_ * 8;
  std::string padding(1, '\x80');
  padding.resize(1 + (119 - num_bytes_ % 64) % 64, '\0');
  for (int shift = 56; shift >= 0; shift -= 8) {
    padding.push_back(static_cast<char>(num_bits >> shift));
  }
  update(padding);
  HALLEY_CHECK(num_buffered_ == 0, num_buffered_);
  const size_t num_words = kind_ == DigestKind::kSha1 ? 5 : 8;
  std::string hex;
  for (size_t i = 0; i < num_words; ++i) {
    for (int shift = 28; shift >= 0; shift -= 4) {
      hex.push_back("0123456789abcdef"[state_[i] >> shift & 15]);
    }
  }
  return hex;
}

Digest digest_for(std::string_view checksum, uint64_t num_bytes) {
  if (checksum.size() == kSha256Digits) return Digest(DigestKind::kSha256);
  Digest digest(DigestKind::kSha1);
  digest.update(str("blob ", num_bytes, std::string_view("\0", 1)));
  return digest;
}

bool is_checksum(std::string_view text) {
  return (text.size() == kSha1Digits || text.size() == kSha256Digits) &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

}  // namespace halley::hub
