#include "halley/server/openai/answer_writer.h"

#include <algorithm>
#include <utility>

#include "halley/base/str.h"
#include "halley/server/openai/logprobs.h"

namespace halley {
namespace {

// The end of a slice of at most `num_bytes` that does not end inside a character.
size_t slice_end(const std::string& text, size_t begin, size_t num_bytes) {
  if (text.size() - begin <= num_bytes) return text.size();
  constexpr size_t kCharacterBytesMax = 4;
  for (size_t end = begin + num_bytes; end > begin + num_bytes - kCharacterBytesMax; --end) {
    if ((static_cast<unsigned char>(text[end]) & 0xC0) != 0x80) return end;
  }
  return begin + num_bytes;
}

std::string text_or_null(const std::string& text) {
  return text.empty() ? "null" : json_text(text);
}

}  // namespace

AnswerWriter::AnswerWriter(Parts parts, const TokenTexts& texts)
    : parts_(std::move(parts)), texts_(texts) {}

bool AnswerWriter::write(size_t num_bytes, std::string& out) {
  while (out.size() < num_bytes) {
    if (steps_.empty()) {
      if (has_end_) return false;
      begin_next();
    }
    if (!steps_.front()(out)) steps_.pop_front();
  }
  return !has_end_ || !steps_.empty();
}

void AnswerWriter::begin_next() {
  if (!has_begun_) {
    has_begun_ = true;
    std::string head = json_text(answer_head(parts_.head, /*is_chunk=*/false));
    head.pop_back();
    add(head + R"(,"choices":[)");
  } else if (num_begun_ < parts_.num_choices) {
    choice_ = parts_.take_choice(num_begun_);
    add_choice();
    ++num_begun_;
  } else {
    has_end_ = true;
    add("]");
    add_ids("prompt_token_ids", std::move(prompt_token_ids_));
    add_scored_prompt(std::move(scored_prompt_));
    add(R"(,"usage":)" + json_text(usage_json(parts_.usage)) + "}");
  }
}

void AnswerWriter::add_choice() {
  ChoiceDelta& delta = choice_.delta;
  add(str(num_begun_ > 0 ? "," : "", R"({"index":)", num_begun_));
  if (parts_.head.is_chat) {
    add(R"(,"message":{"role":"assistant","content":)");
    // A message with tool calls or reasoning only has no content.
    if (delta.text.empty() && !(delta.calls.empty() && delta.reasoning.empty())) {
      add("null");
    } else {
      add_text(std::move(delta.text));
    }
    add(R"(,"refusal":null)");
    if (!delta.reasoning.empty()) add_reasoning();
    if (!delta.calls.empty()) add_calls();
    add("}");
  } else {
    add(R"(,"text":)");
    add_text(std::move(delta.text));
  }
  add(R"(,"logprobs":)");
  add_logprobs();
  add(str(R"(,"finish_reason":)", text_or_null(delta.finish_reason), R"(,"stop_reason":)",
          text_or_null(delta.stop_reason)));
  add_ids("token_ids", std::move(delta.token_ids));
  if (parts_.head.is_chat) {
    if (num_begun_ == 0) {
      prompt_token_ids_ = std::move(delta.prompt_token_ids);
      scored_prompt_ = std::move(choice_.scored_prompt);
    }
  } else {
    add_ids("prompt_token_ids", std::move(delta.prompt_token_ids));
    add_scored_prompt(std::move(choice_.scored_prompt));
  }
  add("}");
}

void AnswerWriter::add_ids(const char* name, std::vector<int32_t> ids) {
  if (ids.empty()) return;
  add(str(",\"", name, "\":"));
  const size_t size = ids.size();
  add_list(size,
           [ids = std::move(ids)](size_t i, std::string& out) { out += std::to_string(ids[i]); });
}

void AnswerWriter::add_scored_prompt(LogprobList prompt) {
  if (prompt.size() == 0) return;
  add(R"(,"prompt_logprobs":)");
  const size_t size = prompt.size();
  add_list(size, [this, prompt = std::make_shared<const LogprobList>(std::move(prompt))](
                     size_t i, std::string& out) {
    out += json_text(prompt_logprob(prompt->at(i), texts_));
  });
}

void AnswerWriter::add_reasoning() {
  const auto text = std::make_shared<const std::string>(std::move(choice_.delta.reasoning));
  for (const char* name : kReasoningMembers) {
    add(str(R"(,")", name, R"(":)"));
    add_text(text);
  }
}

void AnswerWriter::add_calls() {
  std::string before = R"(,"tool_calls":[)";
  for (IndexedToolCall& indexed : choice_.delta.calls) {
    ToolCall& call = indexed.call;
    add(str(before, R"({"id":)", json_text(call.id), R"(,"type":"function","function":{"name":)",
            json_text(call.name), R"(,"arguments":)"));
    add_text(std::move(call.arguments));
    before = "}},";
  }
  add("}}]");
}

void AnswerWriter::add_logprobs() {
  const size_t size = choice_.prompt_logprobs.size() + choice_.logprobs.size();
  if (size == 0) return add("null");
  if (parts_.head.is_chat) {
    add(R"({"content":)");
    add_list(size, [this](size_t i, std::string& out) {
      out += json_text(chat_logprob(detail(i), texts_));
    });
    return add("}");
  }
  text_offset_ = 0;
  add(R"({"text_offset":)");
  add_list(size, [this](size_t i, std::string& out) {
    out += std::to_string(text_offset_);
    text_offset_ += num_characters(texts_.text_of(detail(i).token_id));
  });
  add(R"(,"token_logprobs":)");
  add_list(size,
           [this](size_t i, std::string& out) { out += json_text(token_logprob(detail(i))); });
  add(R"(,"tokens":)");
  add_list(size, [this](size_t i, std::string& out) {
    out += json_text(texts_.text_of(detail(i).token_id));
  });
  add(R"(,"top_logprobs":)");
  add_list(size, [this](size_t i, std::string& out) {
    out += json_text(top_logprobs_by_text(detail(i), texts_));
  });
  add("}");
}

TokenDetail AnswerWriter::detail(size_t index) const {
  const size_t num_prompt = choice_.prompt_logprobs.size();
  return index < num_prompt ? choice_.prompt_logprobs.at(index)
                            : choice_.logprobs.at(index - num_prompt);
}

void AnswerWriter::add(std::string bytes) {
  steps_.emplace_back([bytes = std::move(bytes)](std::string& out) {
    out += bytes;
    return false;
  });
}

void AnswerWriter::add_text(std::shared_ptr<const std::string> text) {
  add("\"");
  steps_.emplace_back([text = std::move(text), begin = size_t{0}](std::string& out) mutable {
    const size_t end = slice_end(*text, begin, kSliceBytes);
    const std::string json = json_text(text->substr(begin, end - begin));
    out.append(json, 1, json.size() - 2);  // without the quotes
    begin = end;
    return begin < text->size();
  });
  add("\"");
}

void AnswerWriter::add_list(size_t size, std::function<void(size_t, std::string&)> write_element) {
  add("[");
  steps_.emplace_back(
      [size, write = std::move(write_element), i = size_t{0}](std::string& out) mutable {
        if (i > 0) out += ',';
        write(i, out);
        return ++i < size;
      });
  add("]");
}

}  // namespace halley
