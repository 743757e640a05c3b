// The tokenizer that a tokenizer.model describes, with the settings of the files next to it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "halley/checkpoint/tokenizer/added_tokens.h"
#include "halley/checkpoint/tokenizer/sentencepiece_model.h"
#include "halley/checkpoint/tokenizer/tokenizer.h"

namespace sentencepiece {
class SentencePieceProcessor;
}

namespace halley {

/// Settings from tokenizer_config.json, special_tokens_map.json and added_tokens.json.
struct SpmSettings {
  bool add_bos_token = true;  // as for Llama where no file says otherwise
  bool add_eos_token = false;
  /// False: no space is put before a text that stands behind an added token.
  bool legacy = true;
  std::string bos_token;  // empty: as the model says
  std::string eos_token;
  /// Tokens with an id outside or inside the model.
  std::vector<AddedToken> added_tokens;
  /// Special tokens without an id: they have one where the model knows them.
  std::vector<AddedToken> special_tokens;
};

class SentencePieceTokenizer : public Tokenizer {
 public:
  /// `bytes` is the tokenizer.model. Throws InputError or UnsupportedError.
  SentencePieceTokenizer(std::string_view bytes, const SpmSettings& settings,
                         const std::string& where);
  ~SentencePieceTokenizer() override;

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
  using Processor = sentencepiece::SentencePieceProcessor;

  void add_added_token(AddedToken token);
  std::vector<int32_t> boundary_ids(bool is_wanted, const std::string& token,
                                    int32_t model_id) const;
  void encode_part(std::string_view text, bool is_first, std::vector<int32_t>& ids) const;

  std::string where_;
  SpmModel model_;
  std::unique_ptr<Processor> processor_;
  std::unique_ptr<Processor> processor_without_prefix_;      // null where `legacy`
  std::unordered_map<std::string_view, int32_t> piece_ids_;  // into model_
  std::unordered_map<int32_t, AddedToken> added_by_id_;
  std::unordered_map<std::string, int32_t> added_id_by_content_;
  AddedTokenFinder finder_;
  std::vector<int32_t> bos_ids_;  // empty or one
  std::vector<int32_t> eos_ids_;
  int32_t num_ids_ = 0;
};

}  // namespace halley
