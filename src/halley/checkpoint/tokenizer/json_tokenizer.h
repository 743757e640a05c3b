// The tokenizer that a tokenizer.json describes.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "halley/checkpoint/tokenizer/added_tokens.h"
#include "halley/checkpoint/tokenizer/bpe.h"
#include "halley/checkpoint/tokenizer/decoder.h"
#include "halley/checkpoint/tokenizer/normalizer.h"
#include "halley/checkpoint/tokenizer/post_processor.h"
#include "halley/checkpoint/tokenizer/pre_tokenizer.h"
#include "halley/checkpoint/tokenizer/tokenizer.h"
#include "halley/json/json.h"

namespace halley {

/// Does what Hugging Face `tokenizers` 0.23 does with the file, except for "truncation" and
/// "padding", which are left out: they belong to a batch, not to a text.
class JsonTokenizer : public Tokenizer {
 public:
  /// From the parsed file, whose model's vocab and merges are those of `tables`, unless that is
  /// null. Throws InputError or UnsupportedError.
  JsonTokenizer(const Json& file, const ModelTables* tables, const std::string& where);

  std::vector<int32_t> encode(std::string_view text, bool add_special_tokens) const override;
  std::optional<std::vector<int32_t>> encode_within(std::string_view text, bool add_special_tokens,
                                                    const EncodeLimits& limits) const override;
  std::string decode(std::span<const int32_t> ids, bool skip_special_tokens) const override;
  int32_t num_ids() const override { return num_ids_; }
  std::optional<int32_t> id_of(std::string_view token) const override;
  std::string token_of(int32_t id) const override;
  bool is_special(int32_t id) const override;
  std::unique_ptr<DecodeStream> start_decoding(bool skip_special_tokens) const override;

 private:
  class Stream;

  void add_added_tokens(const Json& list, const std::string& where);
  void add_added_token(const AddedToken& token, const std::string& where);
  void index_added_tokens();
  SplitText split_added_tokens(std::string_view text) const;
  void append_normalized(std::string_view text, bool is_at_start, SplitText& split) const;
  std::string_view decoded_token(int32_t id) const;

  std::unique_ptr<Normalizer> normalizer_;       // may be null
  std::unique_ptr<PreTokenizer> pre_tokenizer_;  // may be null
  Bpe bpe_;
  PostProcessor post_processor_;
  std::unique_ptr<TokenDecoder> decoder_;
  int32_t num_ids_ = 0;
  std::unordered_map<int32_t, AddedToken> added_by_id_;
  std::unordered_map<std::string, int32_t> added_id_by_content_;
  // Tokens that are looked for in the normalized text are decoded from what they are there.
  std::unordered_map<int32_t, std::string> normalized_content_;
  AddedTokenFinder raw_finder_;
  AddedTokenFinder normalized_finder_;
};

}  // namespace halley
