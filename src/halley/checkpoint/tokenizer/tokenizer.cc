#include "halley/checkpoint/tokenizer/tokenizer.h"

#include <algorithm>
#include <utility>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/checkpoint/gguf/model_files.h"
#include "halley/checkpoint/tokenizer/json_tokenizer.h"
#include "halley/checkpoint/tokenizer/sentencepiece_tokenizer.h"
#include "halley/checkpoint/tokenizer/spm_settings.h"
#include "halley/checkpoint/tokenizer/utf8.h"
#include "halley/json/json.h"

namespace halley {
namespace {

constexpr const char* kJsonName = "tokenizer.json";
constexpr const char* kModelName = "tokenizer.model";

constexpr size_t kFileBytesMax = 256u << 20;

// Decodes everything again for each id.
class RepeatingStream : public DecodeStream {
 public:
  RepeatingStream(const Tokenizer& tokenizer, bool skip_special_tokens)
      : tokenizer_(tokenizer), skip_special_tokens_(skip_special_tokens) {}

  void push(int32_t id, std::string& text) override {
    ids_.push_back(id);
    std::string all;
    try {
      all = tokenizer_.decode(ids_, skip_special_tokens_);
    } catch (const Error&) {
      ids_.pop_back();
      throw;
    }
    // U+FFFD at the end may be a character that the next id completes.
    size_t end = all.size();
    while (std::string_view(all).substr(0, end).ends_with(kReplacementCharacter)) {
      end -= kReplacementCharacter.size();
    }
    hand_out(all.substr(0, end), text);
  }

  void finish(std::string& text) override {
    hand_out(tokenizer_.decode(ids_, skip_special_tokens_), text);
  }

 private:
  void hand_out(const std::string& all, std::string& text) {
    if (all.size() <= num_bytes_out_) return;
    text.append(all, num_bytes_out_);
    num_bytes_out_ = all.size();
  }

  const Tokenizer& tokenizer_;
  bool skip_special_tokens_;
  std::vector<int32_t> ids_;
  size_t num_bytes_out_ = 0;
};

}  // namespace

std::optional<std::vector<int32_t>> Tokenizer::encode_within(std::string_view text,
                                                             bool add_special_tokens,
                                                             const EncodeLimits& limits) const {
  if (limits.must_stop && limits.must_stop()) return std::nullopt;
  std::vector<int32_t> ids = encode(text, add_special_tokens);
  if (ids.size() > limits.num_ids_max) return std::nullopt;
  return ids;
}

std::unique_ptr<DecodeStream> Tokenizer::start_decoding(bool skip_special_tokens) const {
  return std::make_unique<RepeatingStream>(*this, skip_special_tokens);
}

std::unique_ptr<Tokenizer> parse_tokenizer_json(std::string_view text, const std::string& where) {
  if (const auto extracted = extract_model_tables(text)) {
    std::optional<Json> rest;
    try {
      rest = parse_json(extracted->rest, where);
    } catch (const InputError&) {
      // The whole text gives the message with the right position.
    }
    if (rest) return std::make_unique<JsonTokenizer>(*rest, &extracted->tables, where);
  }
  return std::make_unique<JsonTokenizer>(parse_json(text, where), nullptr, where);
}

bool has_tokenizer_file(const std::filesystem::path& model_dir) {
  return has_model_file(model_dir, kJsonName) || has_model_file(model_dir, kModelName);
}

// Messages name the file alone, since requests get them too: a client must not learn where the
// model lies. Those of loading are for its operator, and get the folder.
template <typename Make>
std::unique_ptr<Tokenizer> with_folder_in_errors(const std::filesystem::path& model_dir,
                                                 const char* name, const Make& make) {
  const auto full = [&](const Error& error) {
    const std::string_view what = error.what();
    return what.starts_with(name) ? (model_dir / what).string() : std::string(what);
  };
  try {
    return make(read_model_file(model_dir, name, kFileBytesMax), name);
  } catch (const InputError& error) {
    throw InputError(full(error));
  } catch (const UnsupportedError& error) {
    throw UnsupportedError(full(error));
  }
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& model_dir) {
  if (has_model_file(model_dir, kJsonName)) {
    return with_folder_in_errors(model_dir, kJsonName,
                                 [](const std::string& text, const char* where) {
                                   return parse_tokenizer_json(text, where);
                                 });
  }
  if (has_model_file(model_dir, kModelName)) {
    return with_folder_in_errors(model_dir, kModelName, [&](std::string text, const char* where) {
      return std::make_unique<SentencePieceTokenizer>(std::move(text), read_spm_settings(model_dir),
                                                      std::string(where));
    });
  }
  throw InputError(str(model_dir.string(),
                       ": expected a tokenizer.json or a tokenizer.model, got "
                       "neither. Copy the tokenizer's files into the model's directory."));
}

IncrementalDetokenizer::IncrementalDetokenizer(const Tokenizer& tokenizer, bool skip_special_tokens)
    : stream_(tokenizer.start_decoding(skip_special_tokens)) {}

std::string IncrementalDetokenizer::push(int32_t id) {
  std::string text;
  stream_->push(id, text);
  return text;
}

std::string IncrementalDetokenizer::finish() {
  std::string text;
  stream_->finish(text);
  return text;
}

}  // namespace halley
