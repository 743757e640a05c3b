#include "halley/checkpoint/tokenizer/sentencepiece_tokenizer.h"

#include <algorithm>
#include <exception>
#include <utility>

#include <sentencepiece_processor.h>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/checkpoint/tokenizer/token_table.h"
#include "halley/checkpoint/tokenizer/utf8.h"

namespace halley {
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581
// A ModelProto whose normalizer_spec.add_dummy_prefix is false. Behind another message it overrides
// that field: protobuf merges messages that follow each other.
constexpr std::string_view kWithoutPrefix{"\x1A\x02\x18\x00", 4};

std::unique_ptr<sentencepiece::SentencePieceProcessor> load_processor(std::string_view bytes,
                                                                      const std::string& where) {
  auto processor = std::make_unique<sentencepiece::SentencePieceProcessor>();
  std::string reason;
  try {
    const auto status = processor->LoadFromSerializedProto(bytes);
    if (status.ok()) return processor;
    reason = status.error_message();
  } catch (const std::exception& error) {
    reason = error.what();
  }
  throw InputError(str(where, ": expected a SentencePiece model, but the library rejects it: ",
                       quote(reason, 200), "."));
}

}  // namespace

// The rules of SentencePieceProcessor::Decode, id by id. Added and control tokens, which that
// leaves out, give their own text here unless special tokens are skipped.
class SentencePieceTokenizer::Stream : public DecodeStream {
 public:
  Stream(const SentencePieceTokenizer& tokenizer, bool skip_special_tokens)
      : tokenizer_(tokenizer), skip_special_tokens_(skip_special_tokens) {}

  void push(int32_t id, std::string& text) override {
    if (id < 0) throw InputError(str("tokenizer: expected an id of at least 0, got ", id, "."));
    if (id >= tokenizer_.num_ids_) return;
    if (skip_special_tokens_ && tokenizer_.is_special(id)) return;
    const auto added = tokenizer_.added_by_id_.find(id);
    if (added != tokenizer_.added_by_id_.end()) return push_text(added->second.content, text);
    const auto& pieces = tokenizer_.model_.pieces;
    if (static_cast<size_t>(id) >= pieces.size()) return;
    push_piece(pieces[static_cast<size_t>(id)], text);
  }

  void finish(std::string& text) override { end_bytes(text); }

 private:
  void push_piece(const SpmPiece& piece, std::string& text) {
    if (piece.type == SpmPieceType::kByte) {
      bytes_.push_back(static_cast<char>(byte_of_spm_piece(piece.text)));
      take_whole_chars(text);
      return;
    }
    end_bytes(text);
    if (piece.type == SpmPieceType::kControl) return push_text(piece.text, text);
    if (piece.type == SpmPieceType::kUnknown) {
      return push_text(tokenizer_.model_.unk_surface, text);
    }
    std::string_view rest = piece.text;
    const SpmModel& model = tokenizer_.model_;
    if (is_at_start_ && (model.add_dummy_prefix || model.remove_extra_whitespaces) &&
        rest.starts_with(kSpaceMark)) {
      rest.remove_prefix(kSpaceMark.size());
      // Without extra white space, more marks may follow that go too.
      if (!model.remove_extra_whitespaces) is_at_start_ = false;
    }
    std::string decoded;
    while (!rest.empty()) {
      const size_t mark = rest.find(kSpaceMark);
      decoded += rest.substr(0, mark);
      if (mark == std::string_view::npos) break;
      decoded.push_back(' ');
      rest.remove_prefix(mark + kSpaceMark.size());
    }
    push_text(decoded, text);
  }

  void push_text(std::string_view added, std::string& text) {
    end_bytes(text);
    text += added;
    if (!added.empty()) is_at_start_ = false;
  }

  // Hands on the characters that the bytes complete; each byte that cannot be in one is U+FFFD.
  void take_whole_chars(std::string& text) {
    while (!bytes_.empty()) {
      const Utf8State state = utf8_state(bytes_);
      if (state == Utf8State::kIncomplete) return;
      const size_t num_bytes = state == Utf8State::kComplete ? first_char(bytes_).num_bytes : 1;
      text += state == Utf8State::kComplete ? std::string_view(bytes_).substr(0, num_bytes)
                                            : kReplacementCharacter;
      bytes_.erase(0, num_bytes);
      is_at_start_ = false;
    }
  }

  void end_bytes(std::string& text) {
    for (size_t i = 0; i < bytes_.size(); ++i) text += kReplacementCharacter;
    if (!bytes_.empty()) is_at_start_ = false;
    bytes_.clear();
  }

  const SentencePieceTokenizer& tokenizer_;
  bool skip_special_tokens_;
  bool is_at_start_ = true;  // no text yet
  std::string bytes_;        // the start of a character
};

SentencePieceTokenizer::SentencePieceTokenizer(std::string_view bytes, const SpmSettings& settings,
                                               const std::string& where)
    : where_(where), model_(parse_spm_model(bytes, where)) {
  processor_ = load_processor(bytes, where);
  if (!settings.legacy) {
    processor_without_prefix_ = load_processor(str(bytes, kWithoutPrefix), where);
  }
  if (processor_->GetPieceSize() != static_cast<int>(model_.pieces.size())) {
    throw InputError(str(where, ": expected ", model_.pieces.size(), " pieces, the library has ",
                         processor_->GetPieceSize(), ". The file is damaged."));
  }
  for (size_t id = 0; id < model_.pieces.size(); ++id) {
    piece_ids_[model_.pieces[id].text] = static_cast<int32_t>(id);
  }
  num_ids_ = static_cast<int32_t>(model_.pieces.size());
  for (const AddedToken& token : settings.added_tokens) add_added_token(token);
  for (AddedToken token : settings.special_tokens) {
    const std::optional<int32_t> id = id_of(token.content);
    if (!id) continue;
    token.id = *id;
    if (!added_by_id_.contains(*id)) add_added_token(token);
    added_by_id_[*id].special = true;
  }
  for (const auto& [id, token] : added_by_id_) finder_.add(token.content, token);
  bos_ids_ = boundary_ids(settings.add_bos_token, settings.bos_token, processor_->bos_id());
  eos_ids_ = boundary_ids(settings.add_eos_token, settings.eos_token, processor_->eos_id());
}

SentencePieceTokenizer::~SentencePieceTokenizer() = default;

void SentencePieceTokenizer::add_added_token(AddedToken token) {
  if (token.content.empty()) return;
  if (token.content.size() > kAddedTokenBytesMax) {
    throw InputError(str(where_, ": expected added tokens of at most ", kAddedTokenBytesMax,
                         " bytes, got ", token.content.size(), " for id ", token.id, "."));
  }
  const std::optional<int32_t> id = id_of(token.content);
  const std::string present = token_of(token.id);
  if ((id && *id != token.id) || (!present.empty() && present != token.content)) {
    throw InputError(str(where_, ": expected one id for each token, but id ", token.id,
                         " of the added token ", quote(token.content), " is that of ",
                         quote(present),
                         ", or the model has another id for it. Make "
                         "added_tokens.json and tokenizer_config.json agree with the model."));
  }
  num_ids_ = std::max(num_ids_, token.id + 1);
  added_id_by_content_[token.content] = token.id;
  added_by_id_[token.id] = std::move(token);
}

std::vector<int32_t> SentencePieceTokenizer::boundary_ids(bool is_wanted, const std::string& token,
                                                          int32_t model_id) const {
  if (!is_wanted) return {};
  if (token.empty()) return model_id < 0 ? std::vector<int32_t>{} : std::vector<int32_t>{model_id};
  const std::optional<int32_t> id = id_of(token);
  if (!id) {
    throw InputError(str(where_,
                         ": expected the bos_token and eos_token of tokenizer_config.json "
                         "in the vocabulary, got ",
                         quote(token), ", which is not there."));
  }
  return {*id};
}

void SentencePieceTokenizer::encode_part(std::string_view text, bool is_first,
                                         std::vector<int32_t>& ids) const {
  const bool has_prefix = is_first || processor_without_prefix_ == nullptr;
  const Processor& processor = has_prefix ? *processor_ : *processor_without_prefix_;
  std::vector<int> part;
  const auto status = processor.Encode(text, &part);
  if (!status.ok()) {
    throw InputError(str(where_, ": SentencePiece cannot encode a text of ", text.size(),
                         " bytes: ", quote(status.error_message(), 200), "."));
  }
  ids.insert(ids.end(), part.begin(), part.end());
}

std::vector<int32_t> SentencePieceTokenizer::encode(std::string_view text,
                                                    bool add_special_tokens) const {
  return *encode_within(text, add_special_tokens, {});
}

std::optional<std::vector<int32_t>> SentencePieceTokenizer::encode_within(
    std::string_view text, bool add_special_tokens, const EncodeLimits& limits) const {
  if (!is_valid_utf8(text)) {
    throw InputError(str("tokenizer: expected valid UTF-8, got ", quote(text), "."));
  }
  std::vector<int32_t> ids;
  if (add_special_tokens) ids = bos_ids_;
  for (const AddedTokenPart& part : finder_.split(text)) {
    // The library cannot be stopped inside of a part.
    if (ids.size() > limits.num_ids_max || (limits.must_stop && limits.must_stop())) {
      return std::nullopt;
    }
    if (part.id >= 0) {
      ids.push_back(part.id);
    } else {
      encode_part(text.substr(part.begin, part.end - part.begin), part.begin == 0, ids);
    }
  }
  if (add_special_tokens) ids.insert(ids.end(), eos_ids_.begin(), eos_ids_.end());
  if (ids.size() > limits.num_ids_max) return std::nullopt;
  return ids;
}

std::string SentencePieceTokenizer::decode(std::span<const int32_t> ids,
                                           bool skip_special_tokens) const {
  Stream stream(*this, skip_special_tokens);
  std::string text;
  for (const int32_t id : ids) stream.push(id, text);
  stream.finish(text);
  return text;
}

std::optional<int32_t> SentencePieceTokenizer::id_of(std::string_view token) const {
  if (const auto found = piece_ids_.find(token); found != piece_ids_.end()) return found->second;
  const auto added = added_id_by_content_.find(std::string(token));
  return added == added_id_by_content_.end() ? std::nullopt : std::optional<int32_t>(added->second);
}

std::string SentencePieceTokenizer::token_of(int32_t id) const {
  if (id >= 0 && static_cast<size_t>(id) < model_.pieces.size()) {
    return model_.pieces[static_cast<size_t>(id)].text;
  }
  const auto added = added_by_id_.find(id);
  return added == added_by_id_.end() ? std::string() : added->second.content;
}

bool SentencePieceTokenizer::is_special(int32_t id) const {
  const auto added = added_by_id_.find(id);
  if (added != added_by_id_.end()) return added->second.special;
  return id >= 0 && static_cast<size_t>(id) < model_.pieces.size() &&
         model_.pieces[static_cast<size_t>(id)].type == SpmPieceType::kControl;
}

std::unique_ptr<DecodeStream> SentencePieceTokenizer::start_decoding(
    bool skip_special_tokens) const {
  return std::make_unique<Stream>(*this, skip_special_tokens);
}

}  // namespace halley
