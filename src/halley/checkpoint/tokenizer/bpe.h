// Byte-pair encoding of one word, as the "model" of tokenizer.json defines it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "halley/checkpoint/tokenizer/merge_table.h"
#include "halley/checkpoint/tokenizer/model_tables.h"
#include "halley/checkpoint/tokenizer/stop_check.h"
#include "halley/checkpoint/tokenizer/token_table.h"
#include "halley/json/json.h"

namespace halley {

struct BpeOptions {
  std::optional<std::string> unk_token;
  std::string continuing_subword_prefix;
  std::string end_of_word_suffix;
  bool fuse_unk = false;       // a run of unknown characters gives one unk_token
  bool byte_fallback = false;  // unknown characters become <0xNN> tokens
  bool ignore_merges = false;  // a word that is a token needs no merges
};

/// Immutable; any thread.
class Bpe {
 public:
  /// From the value of "model"; its vocab and merges are those of `tables`, unless that is null.
  /// Throws InputError, or UnsupportedError for another model type and for dropout, by name.
  static Bpe parse(const Json& value, const ModelTables* tables, const std::string& where);

  /// Appends the ids of `word`, which is valid UTF-8. Takes O(n log n) for a word of n characters,
  /// O(n) where its length alone shows that `ids` would pass `num_ids_max`. Returns false in that
  /// case, and where `check` told it to stop; then `ids` is of no use. Throws InputError where the
  /// unknown token is needed and not in the vocabulary.
  [[nodiscard]] bool encode(std::string_view word, std::vector<int32_t>& ids, StopCheck& check,
                            size_t num_ids_max) const;

  const TokenTable& tokens() const { return tokens_; }

 private:
  void split_to_chars(std::string_view word, std::vector<int32_t>& ids) const;
  int32_t id_of_char(std::string_view character, bool is_first, bool is_last) const;
  bool add_byte_tokens(std::string_view character, std::vector<int32_t>& ids) const;
  int32_t unk_id() const;
  void index_chars();
  void index_shares();
  size_t num_merged_min(std::span<const int32_t> ids) const;

  std::string where_;
  TokenTable tokens_;
  MergeTable merges_;
  BpeOptions options_;
  std::array<int32_t, 256> byte_ids_{};   // of <0xNN>; -1 where there is none
  std::array<int32_t, 1024> char_ids_{};  // of the characters below U+0400
  // By byte: 2^32 / length of the longest token with that byte, rounded down.
  std::array<uint64_t, 256> byte_shares_{};
  bool has_affixes_ = false;  // a prefix or suffix: char_ids_ does not apply
};

}  // namespace halley
