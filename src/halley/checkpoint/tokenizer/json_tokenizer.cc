#include "halley/checkpoint/tokenizer/json_tokenizer.h"

#include <algorithm>
#include <utility>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/checkpoint/tokenizer/component.h"
#include "halley/checkpoint/tokenizer/stop_check.h"
#include "halley/checkpoint/tokenizer/utf8.h"

namespace halley {
namespace {

void check_version(const Component& file) {
  if (file.find("version") == nullptr) return;
  const std::string version = file.text("version");
  if (version != "1.0") {
    throw UnsupportedError(
        str(file.where("version"), ": expected \"1.0\", got ", quote(version), "."));
  }
}

AddedToken parse_added_token(const Component& config) {
  AddedToken token;
  token.id = static_cast<int32_t>(config.integer("id", kNumIdsMax - 1));
  token.content = config.text("content");
  token.single_word = config.boolean_or("single_word", false);
  token.lstrip = config.boolean_or("lstrip", false);
  token.rstrip = config.boolean_or("rstrip", false);
  token.special = config.boolean_or("special", false);
  token.normalized = config.boolean_or("normalized", !token.special);
  return token;
}

class TextSink : public TokenSink {
 public:
  void text(std::string_view text) override { text_ += text; }
  void end_token() override {}
  void finish() override {}
  void move_to(std::string& text) {
    text += text_;
    text_.clear();
  }

 private:
  std::string text_;
};

}  // namespace

class JsonTokenizer::Stream : public DecodeStream {
 public:
  Stream(const JsonTokenizer& tokenizer, bool skip_special_tokens)
      : tokenizer_(tokenizer),
        skip_special_tokens_(skip_special_tokens),
        first_(tokenizer.decoder_->start(last_)) {}

  void push(int32_t id, std::string& text) override {
    if (id < 0) throw InputError(str("tokenizer: expected an id of at least 0, got ", id, "."));
    if (id >= tokenizer_.num_ids_) return;
    if (skip_special_tokens_ && tokenizer_.is_special(id)) return;
    if (!tokenizer_.bpe_.tokens().has(id) && !tokenizer_.added_by_id_.contains(id)) return;
    first_->text(tokenizer_.decoded_token(id));
    first_->end_token();
    last_.move_to(text);
  }

  void finish(std::string& text) override {
    first_->finish();
    last_.move_to(text);
  }

 private:
  const JsonTokenizer& tokenizer_;
  bool skip_special_tokens_;
  TextSink last_;
  std::unique_ptr<TokenSink> first_;
};

JsonTokenizer::JsonTokenizer(const Json& file, const ModelTables* tables,
                             const std::string& where) {
  const Component config(file, where);
  check_version(config);
  const auto place = [&](const char* member) { return str(where, ": ", member); };
  bpe_ = Bpe::parse(config.member("model"), tables, place("model"));
  if (const Json* value = config.find("normalizer")) {
    normalizer_ = parse_normalizer(*value, place("normalizer"));
  }
  if (const Json* value = config.find("pre_tokenizer")) {
    pre_tokenizer_ = parse_pre_tokenizer(*value, place("pre_tokenizer"));
  }
  const Json* decoder = config.find("decoder");
  decoder_ =
      decoder == nullptr ? make_joining_decoder() : parse_decoder(*decoder, place("decoder"));
  num_ids_ = bpe_.tokens().num_ids();
  if (config.find("added_tokens") != nullptr) {
    add_added_tokens(config.array("added_tokens"), place("added_tokens"));
  }
  index_added_tokens();
  if (const Json* value = config.find("post_processor")) {
    post_processor_ = PostProcessor::parse(*value, num_ids_, place("post_processor"));
  }
}

void JsonTokenizer::add_added_tokens(const Json& list, const std::string& where) {
  size_t index = 0;
  for (const Json& value : list) {
    const std::string place = str(where, "[", index++, "]");
    const AddedToken token = parse_added_token(Component(value, place));
    if (!token.content.empty()) add_added_token(token, place);
  }
}

void JsonTokenizer::add_added_token(const AddedToken& token, const std::string& where) {
  if (token.content.size() > kAddedTokenBytesMax) {
    throw InputError(str(where, ": expected a content of at most ", kAddedTokenBytesMax,
                         " bytes, got ", token.content.size(), "."));
  }
  const std::optional<int32_t> id = id_of(token.content);
  if (id && *id != token.id) {
    throw InputError(str(where, ": expected token ", quote(token.content), " to have one id, got ",
                         token.id, " here and ", *id, " elsewhere in the file."));
  }
  if (!id && (bpe_.tokens().has(token.id) || added_by_id_.contains(token.id))) {
    throw InputError(str(where, ": expected an id that no other token has, got ", token.id, " for ",
                         quote(token.content), ", which is that of ", quote(token_of(token.id)),
                         "."));
  }
  added_id_by_content_[token.content] = token.id;
  added_by_id_[token.id] = token;
  num_ids_ = std::max(num_ids_, token.id + 1);
}

void JsonTokenizer::index_added_tokens() {
  std::vector<int32_t> ids;
  for (const auto& [id, token] : added_by_id_) ids.push_back(id);
  std::sort(ids.begin(), ids.end());
  for (const int32_t id : ids) {
    const AddedToken& token = added_by_id_[id];
    if (!token.normalized) {
      raw_finder_.add(token.content, token);
      continue;
    }
    NormalText normal{token.content, 0};
    if (normalizer_ != nullptr) normalizer_->apply(normal);
    if (normal.text.size() > kAddedTokenBytesMax) {
      throw InputError(str("tokenizer: expected a normalized content of at most ",
                           kAddedTokenBytesMax, " bytes for the added token ", quote(token.content),
                           ", got ", normal.text.size(), "."));
    }
    normalized_finder_.add(normal.text, token);
    if (normal.text != token.content) normalized_content_[id] = normal.text;
  }
}

void JsonTokenizer::append_normalized(std::string_view text, bool is_at_start,
                                      SplitText& split) const {
  NormalText normal{std::string(text), is_at_start ? first_char(text).num_bytes : 0};
  if (normalizer_ != nullptr) normalizer_->apply(normal);
  const size_t base = split.text.size();
  split.text += normal.text;
  for (const AddedTokenPart& part : normalized_finder_.split(normal.text)) {
    if (part.id >= 0) {
      split.pieces.push_back({0, 0, part.id, 0});
    } else {
      const size_t num_start =
          normal.num_start_bytes > part.begin ? normal.num_start_bytes - part.begin : 0;
      split.pieces.push_back({base + part.begin, base + part.end, -1, num_start});
    }
  }
}

SplitText JsonTokenizer::split_added_tokens(std::string_view text) const {
  SplitText split;
  for (const AddedTokenPart& part : raw_finder_.split(text)) {
    if (part.id >= 0) {
      split.pieces.push_back({0, 0, part.id, 0});
    } else {
      append_normalized(text.substr(part.begin, part.end - part.begin), part.begin == 0, split);
    }
  }
  return split;
}

std::vector<int32_t> JsonTokenizer::encode(std::string_view text, bool add_special_tokens) const {
  return *encode_within(text, add_special_tokens, {});
}

std::optional<std::vector<int32_t>> JsonTokenizer::encode_within(std::string_view text,
                                                                 bool add_special_tokens,
                                                                 const EncodeLimits& limits) const {
  if (!is_valid_utf8(text)) {
    throw InputError(str("tokenizer: expected valid UTF-8, got ", quote(text), "."));
  }
  SplitText split = split_added_tokens(text);
  StopCheck check(limits.must_stop);
  if (check.asks()) return std::nullopt;
  if (pre_tokenizer_ != nullptr) pre_tokenizer_->apply(split);
  if (check.asks()) return std::nullopt;
  std::vector<int32_t> ids;
  for (const Piece& piece : split.pieces) {
    if (piece.added_id >= 0) {
      ids.push_back(piece.added_id);
    } else {
      const auto word = std::string_view(split.text).substr(piece.begin, piece.end - piece.begin);
      if (!bpe_.encode(word, ids, check, limits.num_ids_max)) return std::nullopt;
    }
    if (ids.size() > limits.num_ids_max) return std::nullopt;
  }
  ids = post_processor_.apply(ids, add_special_tokens);
  if (ids.size() > limits.num_ids_max) return std::nullopt;
  return ids;
}

std::string JsonTokenizer::decode(std::span<const int32_t> ids, bool skip_special_tokens) const {
  Stream stream(*this, skip_special_tokens);
  std::string text;
  for (const int32_t id : ids) stream.push(id, text);
  stream.finish(text);
  return text;
}

std::optional<int32_t> JsonTokenizer::id_of(std::string_view token) const {
  const auto added = added_id_by_content_.find(std::string(token));
  if (added != added_id_by_content_.end()) return added->second;
  const int32_t id = bpe_.tokens().find(token);
  return id < 0 ? std::nullopt : std::optional<int32_t>(id);
}

std::string JsonTokenizer::token_of(int32_t id) const {
  const auto added = added_by_id_.find(id);
  return added != added_by_id_.end() ? added->second.content
                                     : std::string(bpe_.tokens().text_of(id));
}

std::string_view JsonTokenizer::decoded_token(int32_t id) const {
  if (const auto found = normalized_content_.find(id); found != normalized_content_.end()) {
    return found->second;
  }
  const auto added = added_by_id_.find(id);
  return added != added_by_id_.end() ? added->second.content : bpe_.tokens().text_of(id);
}

bool JsonTokenizer::is_special(int32_t id) const {
  const auto added = added_by_id_.find(id);
  return added != added_by_id_.end() && added->second.special;
}

std::unique_ptr<DecodeStream> JsonTokenizer::start_decoding(bool skip_special_tokens) const {
  return std::make_unique<Stream>(*this, skip_special_tokens);
}

}  // namespace halley
