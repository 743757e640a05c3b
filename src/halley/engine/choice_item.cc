#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include <utf8proc.h>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/engine/multiple_choice.h"

namespace halley {
namespace {

constexpr size_t kChoicesMax = 64;

// Python's str.isspace() for one character.
bool is_space(utf8proc_int32_t code) {
  if ((code >= 0x09 && code <= 0x0D) || (code >= 0x1C && code <= 0x20) || code == 0x85) return true;
  const utf8proc_category_t category = utf8proc_category(code);
  return category == UTF8PROC_CATEGORY_ZS || category == UTF8PROC_CATEGORY_ZL ||
         category == UTF8PROC_CATEGORY_ZP;
}

// The characters of `text`, which is valid UTF-8 as all JSON text, with their bytes.
std::vector<std::pair<utf8proc_int32_t, std::string_view>> characters(std::string_view text) {
  std::vector<std::pair<utf8proc_int32_t, std::string_view>> result;
  while (!text.empty()) {
    utf8proc_int32_t code = 0;
    const auto length = std::max<utf8proc_ssize_t>(
        1, utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                            static_cast<utf8proc_ssize_t>(text.size()), &code));
    result.emplace_back(code, text.substr(0, static_cast<size_t>(length)));
    text.remove_prefix(static_cast<size_t>(length));
  }
  return result;
}

std::string strip(std::string_view text) {
  const auto all = characters(text);
  size_t begin = 0, end = all.size();
  while (begin < end && is_space(all[begin].first)) ++begin;
  while (end > begin && is_space(all[end - 1].first)) --end;
  std::string result;
  for (size_t i = begin; i < end; ++i) result += all[i].second;
  return result;
}

// Python's str.capitalize(), by simple case mappings: the first character in title case, all
// others in lower case.
std::string capitalize(std::string_view text) {
  std::string result;
  for (const auto& [code, bytes] : characters(text)) {
    const auto mapped = result.empty() ? utf8proc_totitle(code) : utf8proc_tolower(code);
    std::array<utf8proc_uint8_t, 4> encoded{};
    const auto length = utf8proc_encode_char(mapped, encoded.data());
    result.append(reinterpret_cast<const char*>(encoded.data()), static_cast<size_t>(length));
  }
  return result;
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
}

// Cleans up WikiHow texts as lm-eval does: titles become sentences, other marks in brackets vanish.
std::string clean(std::string_view dirty) {
  std::string text = strip(dirty);
  replace_all(text, " [title]", ". ");
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '[') {
      const size_t end = text.find_first_of("]\n", i);
      if (end != std::string::npos && text[end] == ']') {
        i = end;
        continue;
      }
    }
    result += text[i];
  }
  replace_all(result, "  ", " ");
  return result;
}

// Reads the fields of one line; errors name line and field.
class ItemReader {
 public:
  ItemReader(const Json& json, const std::string& where) : json_(json), where_(where) {}

  ChoiceItem read() const {
    if (!json_.is_object()) fail(str("expected a JSON object, got ", type_name_of(json_), "."));
    if (json_.contains("goal")) return read_goal();
    if (json_.contains("sentence")) return read_sentence();
    if (json_.contains("endings")) return read_endings();
    if (json_.contains("question")) return read_question();
    fail(
        "expected the fields of PIQA (goal), ARC (question), HellaSwag (endings) or WinoGrande "
        "(sentence), got none of them.");
  }

 private:
  [[noreturn]] void fail(const std::string& problem) const {
    throw InputError(str(where_, ": ", problem));
  }

  const Json& field(const Json& object, const char* name) const {
    const auto it = object.find(name);
    if (it == object.end()) fail(str("field '", name, "': expected a value, got nothing."));
    return *it;
  }

  std::string text(const Json& object, const char* name) const {
    const Json& value = field(object, name);
    if (!value.is_string() || value.get_ref<const std::string&>().empty()) {
      fail(str("field '", name, "': expected text, got ",
               value.is_string() ? "none" : type_name_of(value), "."));
    }
    return value.get<std::string>();
  }

  // Reads an integer from `first` to `last`, given as a number or as text.
  size_t index(const char* name, int64_t first, int64_t last) const {
    const Json& value = field(json_, name);
    int64_t number = first - 1;
    if (value.is_number_integer()) number = value.get<int64_t>();
    if (value.is_string()) {
      const auto& digits = value.get_ref<const std::string&>();
      const char* end = digits.data() + digits.size();
      const auto [rest, error] = std::from_chars(digits.data(), end, number);
      if (error != std::errc() || rest != end) number = first - 1;
    }
    if (number < first || number > last) {
      fail(str("field '", name, "': expected ", first, " to ", last, ", got ",
               quote(value.dump(-1, ' ', false, Json::error_handler_t::replace)), "."));
    }
    return static_cast<size_t>(number - first);
  }

  ChoiceItem read_goal() const {
    const std::string context = str("Question: ", text(json_, "goal"), "\nAnswer:");
    return {"PIQA",
            {{context, " " + text(json_, "sol1")}, {context, " " + text(json_, "sol2")}},
            index("label", 0, 1)};
  }

  ChoiceItem read_sentence() const {
    const std::string sentence = text(json_, "sentence");
    const size_t blank = sentence.find('_');
    const std::string rest =
        strip(std::string_view(sentence).substr(std::min(blank, sentence.size() - 1) + 1));
    if (blank == std::string::npos || rest.empty()) {
      fail(str("field 'sentence': expected a '_' with text after it, got ", quote(sentence), "."));
    }
    const std::string begin = sentence.substr(0, blank);
    return {"WinoGrande",
            {{begin + text(json_, "option1"), " " + rest},
             {begin + text(json_, "option2"), " " + rest}},
            index("answer", 1, 2)};
  }

  ChoiceItem read_endings() const {
    std::string context = json_.contains("ctx_a")
                              ? str(text(json_, "ctx_a"), " ", capitalize(optional_text("ctx_b")))
                              : text(json_, "ctx");
    if (json_.contains("activity_label"))
      context = str(text(json_, "activity_label"), ": ", context);
    context = clean(context);
    const Json& endings = field(json_, "endings");
    check_list("endings", endings);
    ChoiceItem item{"HellaSwag", {}, index("label", 0, static_cast<int64_t>(endings.size()) - 1)};
    for (const Json& ending : endings) {
      if (!ending.is_string()) {
        fail(str("field 'endings': expected texts, got ", type_name_of(ending), "."));
      }
      item.choices.push_back({context, " " + clean(ending.get_ref<const std::string&>())});
    }
    return item;
  }

  // ctx_b is empty in items that continue at the start of a sentence.
  std::string optional_text(const char* name) const {
    const auto it = json_.find(name);
    return it != json_.end() && it->is_string() ? it->get<std::string>() : std::string();
  }

  void check_list(const char* name, const Json& list) const {
    if (list.is_array() && list.size() >= 2 && list.size() <= kChoicesMax) return;
    fail(str("field '", name, "': expected a list of 2 to ", kChoicesMax, " choices, got ",
             list.is_array() ? str("one of ", list.size()) : type_name_of(list), "."));
  }

  ChoiceItem read_question() const {
    const Json& question = field(json_, "question");
    const bool has_stem = question.is_object();
    const std::string stem = has_stem ? text(question, "stem") : text(json_, "question");
    const Json& choices =
        field(has_stem && question.contains("choices") ? question : json_, "choices");
    ChoiceItem item{"ARC", {}, 0};
    std::vector<std::string> labels;
    const auto add = [&](const Json& choice) {
      item.choices.push_back({str("Question: ", stem, "\nAnswer:"), " " + text(choice, "text")});
      labels.push_back(text(choice, "label"));
    };
    if (choices.is_object()) {
      const Json &texts = field(choices, "text"), &names = field(choices, "label");
      check_list("choices.text", texts);
      check_list("choices.label", names);
      for (size_t i = 0; i < std::min(texts.size(), names.size()); ++i) {
        add({{"text", texts[i]}, {"label", names[i]}});
      }
    } else {
      check_list("choices", choices);
      for (const Json& choice : choices) {
        if (!choice.is_object()) {
          fail(str("field 'choices': expected objects, got ", type_name_of(choice), "."));
        }
        add(choice);
      }
    }
    const std::string key = text(json_, "answerKey");
    const auto answer = std::find(labels.begin(), labels.end(), key);
    if (answer == labels.end()) {
      fail(str("field 'answerKey': expected one of ", labels, ", got ", quote(key), "."));
    }
    item.answer = static_cast<size_t>(answer - labels.begin());
    return item;
  }

  const Json& json_;
  const std::string& where_;
};

}  // namespace

ChoiceItem parse_choice_item(const Json& json, const std::string& where) {
  return ItemReader(json, where).read();
}

EncodedChoice encode_choice(const Tokenizer& tokenizer, const Choice& choice,
                            const std::string& where) {
  size_t end = 0, at = 0;  // end: of the context without trailing spaces
  for (const auto& [code, bytes] : characters(choice.context)) {
    at += bytes.size();
    if (!is_space(code)) end = at;
  }
  const auto context = tokenizer.encode(std::string_view(choice.context).substr(0, end), false);
  EncodedChoice encoded{tokenizer.encode(choice.context + choice.continuation, false), 0};
  encoded.num_continuation =
      static_cast<int64_t>(encoded.ids.size()) - static_cast<int64_t>(context.size());
  if (context.empty() || encoded.num_continuation < 1) {
    throw InputError(str(where,
                         ": expected a context and a continuation of at least one token, got ",
                         quote(choice.context), " and ", quote(choice.continuation), "."));
  }
  return encoded;
}

}  // namespace halley
