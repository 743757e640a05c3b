// For tests: a tokenizer whose tokens are the given byte strings.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <utf8proc.h>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/checkpoint/tokenizer/tokenizer.h"

namespace halley {

/// Token i stands for pieces[i]; those that start with "<|" are special. Text is encoded greedily
/// by the longest piece.
class FakeTokenizer : public Tokenizer {
 public:
  explicit FakeTokenizer(std::vector<std::string> pieces) : pieces_(std::move(pieces)) {}

  std::vector<int32_t> encode(std::string_view text, bool) const override {
    std::vector<int32_t> ids;
    while (!text.empty()) {
      int32_t best = -1;
      for (int32_t id = 0; id < num_ids(); ++id) {
        if (text.starts_with(piece(id)) && (best < 0 || piece(id).size() > piece(best).size())) {
          best = id;
        }
      }
      if (best < 0) throw InputError(str("fake tokenizer: no piece for ", quote(text)));
      ids.push_back(best);
      text.remove_prefix(piece(best).size());
    }
    return ids;
  }

  std::string decode(std::span<const int32_t> ids, bool skip_special_tokens) const override {
    std::string bytes;
    for (const int32_t id : ids) {
      if (id < 0 || id >= num_ids()) {
        throw InputError(str("token id: expected 0 to ", num_ids() - 1, ", got ", id));
      }
      if (!skip_special_tokens || !is_special(id)) bytes += piece(id);
    }
    return replace_invalid(bytes);
  }

  int32_t num_ids() const override { return static_cast<int32_t>(pieces_.size()); }
  std::optional<int32_t> id_of(std::string_view token) const override {
    for (int32_t id = 0; id < num_ids(); ++id) {
      if (piece(id) == token) return id;
    }
    return std::nullopt;
  }
  std::string token_of(int32_t id) const override { return piece(id); }
  bool is_special(int32_t id) const override { return piece(id).starts_with("<|"); }

 private:
  const std::string& piece(int32_t id) const { return pieces_[static_cast<size_t>(id)]; }

  // Writes one U+FFFD for each run of invalid bytes.
  static std::string replace_invalid(std::string_view bytes) {
    std::string text;
    bool is_in_run = false;
    while (!bytes.empty()) {
      utf8proc_int32_t code_point = 0;
      const auto length =
          utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(bytes.data()),
                           static_cast<utf8proc_ssize_t>(bytes.size()), &code_point);
      const size_t count = length > 0 ? static_cast<size_t>(length) : 1;
      if (length > 0) {
        text += bytes.substr(0, count);
      } else if (!is_in_run) {
        text += "\xEF\xBF\xBD";
      }
      is_in_run = length <= 0;
      bytes.remove_prefix(count);
    }
    return text;
  }

  std::vector<std::string> pieces_;
};

}  // namespace halley
