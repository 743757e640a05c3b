// Text to token ids and back, as the model's own tokenizer files say: `tokenizer.json` (BPE) or
// `tokenizer.model` (SentencePiece).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace halley {

/// One text on its way from ids to characters. Must not outlive its tokenizer.
class DecodeStream {
 public:
  virtual ~DecodeStream() = default;
  /// Appends to `text` what is certain once `id` is there. Throws InputError for a negative id;
  /// nothing has changed then.
  virtual void push(int32_t id, std::string& text) = 0;
  /// Appends what was held back. Call once, at the end.
  virtual void finish(std::string& text) = 0;
};

/// When encode_within() may give up.
struct EncodeLimits {
  size_t num_ids_max = std::numeric_limits<size_t>::max();
  /// Asked every few milliseconds where the tokenizer can stop in between; null: never stops.
  std::function<bool()> must_stop = {};
};

/// Immutable after loading; safe to use from any thread.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// Ids of `text`, which must be valid UTF-8 (throws InputError otherwise). With
  /// `add_special_tokens` what the post-processor adds (a BOS, mostly) is there too. Added tokens
  /// written out in the text ("<|eot_id|>") become their ids in both cases.
  virtual std::vector<int32_t> encode(std::string_view text, bool add_special_tokens) const = 0;

  /// The ids of encode(), or nothing: they are more than `limits.num_ids_max`, or must_stop() said
  /// so. It does not encode the rest of a text whose beginning has too many ids already. This one
  /// encodes the whole text; those that load_tokenizer gives stop early.
  virtual std::optional<std::vector<int32_t>> encode_within(std::string_view text,
                                                            bool add_special_tokens,
                                                            const EncodeLimits& limits) const;

  /// Text of `ids`; with `skip_special_tokens` special tokens are left out. Negative ids throw
  /// InputError. Holes in the vocabulary and ids behind it, which models with a padded vocabulary
  /// can choose, give no text, as in Hugging Face; bytes that are no valid UTF-8 become U+FFFD.
  virtual std::string decode(std::span<const int32_t> ids, bool skip_special_tokens) const = 0;

  /// One more than the largest id.
  virtual int32_t num_ids() const = 0;
  virtual std::optional<int32_t> id_of(std::string_view token) const = 0;
  /// The token as it stands in the vocabulary (not decoded). Empty for a hole.
  virtual std::string token_of(int32_t id) const = 0;
  virtual bool is_special(int32_t id) const = 0;

  /// A decode() that takes its ids one by one. This one decodes all ids again for each of them, for
  /// tokenizers without better; those that load_tokenizer gives take constant time an id.
  virtual std::unique_ptr<DecodeStream> start_decoding(bool skip_special_tokens) const;
};

/// Whether the directory, or GGUF file, has what load_tokenizer() reads.
bool has_tokenizer_file(const std::filesystem::path& model_dir);

/// Loads `tokenizer.json` from a model's directory, or `tokenizer.model` where there is no
/// tokenizer.json, or the vocabulary in a GGUF file. Throws InputError where neither exists or one
/// is malformed, UnsupportedError for a kind that we do not do (Unigram or WordPiece in
/// tokenizer.json), by name.
std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& model_dir);

/// From the text of a tokenizer.json.
std::unique_ptr<Tokenizer> parse_tokenizer_json(std::string_view text, const std::string& where);

/// Turns a sequence's ids into text piece by piece. The pieces joined equal decode() of all ids; no
/// piece ends inside a character: bytes of an unfinished one wait for the next id. The tokenizer
/// must outlive this.
class IncrementalDetokenizer {
 public:
  IncrementalDetokenizer(const Tokenizer& tokenizer, bool skip_special_tokens);

  /// Text that is final once `id` is added; may be empty. Amortised constant time an id.
  std::string push(int32_t id);
  /// The text still held back (an unfinished character gives U+FFFD). Call once, at the end.
  std::string finish();

 private:
  std::unique_ptr<DecodeStream> stream_;
};

}  // namespace halley
