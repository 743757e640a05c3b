#include "halley/checkpoint/tokenizer/model_tables.h"

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/checkpoint/tokenizer/token_table.h"
#include "halley/checkpoint/tokenizer/utf8.h"

namespace halley {
namespace {

// The first line of a merges.txt, which some converters carry over.
constexpr std::string_view kVersionLine = "#version";

ModelTables::Span add_text(std::string_view text, ModelTables& tables) {
  const ModelTables::Span span{tables.texts.size(), text.size()};
  tables.texts += text;
  return span;
}

// "a b": false where there is not exactly one space.
bool split_merge(const ModelTables& tables, const ModelTables::Span& both,
                 ModelTables::MergePair& pair) {
  const std::string_view text = tables.text_of(both);
  const size_t space = text.find(' ');
  if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos) {
    return false;
  }
  pair.left = {both.begin, space};
  pair.right = {both.begin + space + 1, both.num_bytes - space - 1};
  return true;
}

bool parse_merge(const Json& value, ModelTables& tables, ModelTables::MergePair& pair) {
  if (value.is_string()) {
    const auto both = add_text(value.get_ref<const std::string&>(), tables);
    return split_merge(tables, both, pair);
  }
  if (!value.is_array() || value.size() != 2 || !value[0].is_string() || !value[1].is_string()) {
    return false;
  }
  pair.left = add_text(value[0].get_ref<const std::string&>(), tables);
  pair.right = add_text(value[1].get_ref<const std::string&>(), tables);
  return true;
}

bool is_version_line(const Json& value) {
  return value.is_string() && value.get_ref<const std::string&>().starts_with(kVersionLine);
}

// Walks the text of a JSON object. Every function returns false, or npos, where the text is not
// what it expects.
class Extractor {
 public:
  explicit Extractor(std::string_view text) : text_(text) {}

  bool run(ExtractedTables& result) {
    const auto read_model = [&](std::string_view key) {
      if (key != "model") return skip_value();
      return object([&](std::string_view member) {
        if (member == "vocab") return cut_out(result, [&] { return vocab(result.tables); });
        if (member == "merges") return cut_out(result, [&] { return merges(result.tables); });
        return skip_value();
      });
    };
    if (!object(read_model)) return false;
    skip_space();
    result.rest += text_.substr(copied_);
    return pos_ == text_.size();
  }

 private:
  char peek() const { return pos_ < text_.size() ? text_[pos_] : '\0'; }

  void skip_space() {
    while (peek() == ' ' || peek() == '\n' || peek() == '\t' || peek() == '\r') ++pos_;
  }

  bool consume(char c) {
    skip_space();
    if (peek() != c) return false;
    ++pos_;
    return true;
  }

  // Calls element() for each, which reads it.
  template <typename Element>
  bool list(char open, char close, Element element) {
    if (!consume(open)) return false;
    if (consume(close)) return true;
    do {
      skip_space();
      if (!element()) return false;
    } while (consume(','));
    return consume(close);
  }

  // Calls member(key) for each, which reads the value.
  template <typename Member>
  bool object(Member member) {
    std::string key;
    return list('{', '}', [&] {
      key.clear();
      return string(key) && consume(':') && member(key);
    });
  }

  template <typename Read>
  bool cut_out(ExtractedTables& result, Read read) {
    skip_space();
    result.rest += text_.substr(copied_, pos_ - copied_);
    result.rest += "null";
    const bool is_read = read();
    copied_ = pos_;
    return is_read;
  }

  // A value whose end is all that counts: the rest is parsed again. Strings and brackets only.
  bool skip_value() {
    skip_space();
    size_t depth = 0;
    std::string unused;
    while (pos_ < text_.size()) {
      const char c = peek();
      const bool is_close = c == '}' || c == ']';
      if (depth == 0 && (is_close || c == ',')) return true;
      if (c == '"') {
        unused.clear();
        if (!string(unused)) return false;
        continue;
      }
      if (c == '{' || c == '[') ++depth;
      if (is_close) --depth;
      ++pos_;
    }
    return false;
  }

  // Appends the string's characters.
  bool string(std::string& out) {
    if (!consume('"')) return false;
    while (true) {
      const size_t begin = pos_;
      while (pos_ < text_.size() && text_[pos_] != '"' && text_[pos_] != '\\' &&
             static_cast<uint8_t>(text_[pos_]) >= 0x20) {
        ++pos_;
      }
      out += text_.substr(begin, pos_ - begin);
      if (peek() == '"') {
        ++pos_;
        return true;
      }
      if (peek() != '\\' || !escape(out)) return false;
    }
  }

  bool escape(std::string& out) {
    constexpr std::string_view kNames = "\"\\/bfnrt";
    constexpr std::string_view kChars = "\"\\/\b\f\n\r\t";
    ++pos_;
    const char c = peek();
    ++pos_;
    if (c == 'u') return unicode_escape(out);
    const size_t index = c == '\0' ? std::string_view::npos : kNames.find(c);
    if (index == std::string_view::npos) return false;
    out.push_back(kChars[index]);
    return true;
  }

  bool unicode_escape(std::string& out) {
    uint32_t code = 0;
    if (!hex_digits(code)) return false;
    if (code >= 0xD800 && code < 0xDC00) {
      uint32_t low = 0;
      if (!text_.substr(pos_).starts_with("\\u")) return false;
      pos_ += 2;
      if (!hex_digits(low) || low < 0xDC00 || low >= 0xE000) return false;
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    } else if (code >= 0xDC00 && code < 0xE000) {
      return false;
    }
    append_utf8(out, code);
    return true;
  }

  bool hex_digits(uint32_t& code) {
    for (int i = 0; i < 4; ++i, ++pos_) {
      const char c = peek();
      uint32_t digit = 0;
      if (c >= '0' && c <= '9') {
        digit = static_cast<uint32_t>(c - '0');
      } else if ((c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F')) {
        digit = static_cast<uint32_t>((c | 0x20) - 'a') + 10;
      } else {
        return false;
      }
      code = code * 16 + digit;
    }
    return true;
  }

  bool vocab(ModelTables& tables) {
    return list('{', '}', [&] {
      ModelTables::Token token;
      return span(tables, token.text) && consume(':') && id(token.id) &&
             (tables.vocab.push_back(token), true);
    });
  }

  bool span(ModelTables& tables, ModelTables::Span& result) {
    result.begin = tables.texts.size();
    if (!string(tables.texts)) return false;
    result.num_bytes = tables.texts.size() - result.begin;
    return true;
  }

  bool id(uint64_t& value) {
    skip_space();
    const size_t begin = pos_;
    for (; peek() >= '0' && peek() <= '9'; ++pos_) {
      value = value * 10 + static_cast<uint64_t>(peek() - '0');
    }
    const size_t num_digits = pos_ - begin;
    if (num_digits == 0 || num_digits > 9) return false;
    return num_digits == 1 || text_[begin] != '0';
  }

  bool merges(ModelTables& tables) {
    return list('[', ']', [&] {
      ModelTables::MergePair pair;
      if (peek() == '"') {
        ModelTables::Span both;
        if (!span(tables, both)) return false;
        if (tables.text_of(both).starts_with(kVersionLine)) return true;
        if (!split_merge(tables, both, pair)) return false;
      } else {
        int num_parts = 0;
        const bool is_list = list('[', ']', [&] {
          return num_parts++ < 2 && span(tables, num_parts == 1 ? pair.left : pair.right);
        });
        if (!is_list || num_parts != 2) return false;
      }
      tables.merges.push_back(pair);
      return true;
    });
  }

  std::string_view text_;
  size_t pos_ = 0;
  size_t copied_ = 0;  // the rest of the text is copied up to here
};

}  // namespace

ModelTables model_tables_of(const Component& model) {
  ModelTables tables;
  const Json& vocab = model.member("vocab");
  if (!vocab.is_object()) model.fail("vocab", "an object");
  for (auto token = vocab.begin(); token != vocab.end(); ++token) {
    if (!token->is_number_unsigned()) {
      throw InputError(str(model.where("vocab"), ": expected an id from 0 to ", kNumIdsMax - 1,
                           " for token ", quote(token.key()), ", got ", quote(token->dump(), 40),
                           "."));
    }
    tables.vocab.push_back({add_text(token.key(), tables), token->get<uint64_t>()});
  }
  const Json& merges = model.array("merges");
  for (size_t i = 0; i < merges.size(); ++i) {
    if (is_version_line(merges[i])) continue;
    ModelTables::MergePair pair;
    if (!parse_merge(merges[i], tables, pair)) {
      throw InputError(str(model.where("merges"), "[", i,
                           "]: expected \"left right\" or [\"left\", \"right\"], got ",
                           quote(merges[i].dump(), 60), "."));
    }
    tables.merges.push_back(pair);
  }
  return tables;
}

std::optional<ExtractedTables> extract_model_tables(std::string_view text) {
  if (!is_valid_utf8(text)) return std::nullopt;
  ExtractedTables result;
  if (!Extractor(text).run(result)) return std::nullopt;
  return result;
}

}  // namespace halley
