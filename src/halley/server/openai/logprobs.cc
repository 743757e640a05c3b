#include "halley/server/openai/logprobs.h"

#include <algorithm>
#include <utility>

namespace halley {
namespace {

// JSON has no infinity; vLLM has the same value.
constexpr double kLogprobMin = -9999;

double finite_logprob(const TokenLogprob& entry) {
  return std::max(static_cast<double>(entry.logprob), kLogprobMin);
}

OrderedJson chat_entry(const TokenLogprob& entry, const TokenTexts& texts) {
  const std::string text = texts.text_of(entry.token_id);
  OrderedJson bytes = nullptr;
  if (!has_replacement(text)) {
    bytes = OrderedJson::array();
    for (const char c : text) bytes.push_back(static_cast<unsigned char>(c));
  }
  return {{"token", text}, {"logprob", finite_logprob(entry)}, {"bytes", std::move(bytes)}};
}

}  // namespace

int64_t num_characters(const std::string& text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

OrderedJson prompt_logprob(const TokenDetail& detail, const TokenTexts& texts) {
  if (!detail.logprob) return nullptr;
  OrderedJson json = OrderedJson::object();
  const auto add = [&](const TokenLogprob& entry, OrderedJson rank) {
    json[std::to_string(entry.token_id)] = {{"logprob", entry.logprob},
                                            {"rank", std::move(rank)},
                                            {"decoded_token", texts.text_of(entry.token_id)}};
  };
  add(*detail.logprob, nullptr);
  for (size_t i = 0; i < detail.top_logprobs.size(); ++i) add(detail.top_logprobs[i], i + 1);
  return json;
}

OrderedJson token_logprob(const TokenDetail& detail) {
  return detail.logprob ? OrderedJson(finite_logprob(*detail.logprob)) : OrderedJson();
}

OrderedJson top_logprobs_by_text(const TokenDetail& detail, const TokenTexts& texts) {
  if (!detail.logprob) return nullptr;
  OrderedJson top = OrderedJson::object();
  // Two tokens may have one text; the better one is kept.
  for (const TokenLogprob& entry : detail.top_logprobs) {
    top.emplace(texts.text_of(entry.token_id), finite_logprob(entry));
  }
  top.emplace(texts.text_of(detail.token_id), finite_logprob(*detail.logprob));
  return top;
}

OrderedJson chat_logprob(const TokenDetail& detail, const TokenTexts& texts) {
  OrderedJson json = chat_entry(detail.logprob.value_or(TokenLogprob{detail.token_id, 0}), texts);
  json["top_logprobs"] = OrderedJson::array();
  for (const TokenLogprob& top : detail.top_logprobs) {
    json["top_logprobs"].push_back(chat_entry(top, texts));
  }
  return json;
}

OrderedJson completion_logprobs(std::span<const TokenDetail> details, const TokenTexts& texts,
                                int64_t& text_offset) {
  OrderedJson json = {{"text_offset", OrderedJson::array()},
                      {"token_logprobs", OrderedJson::array()},
                      {"tokens", OrderedJson::array()},
                      {"top_logprobs", OrderedJson::array()}};
  for (const TokenDetail& detail : details) {
    const std::string text = texts.text_of(detail.token_id);
    json["text_offset"].push_back(text_offset);
    text_offset += num_characters(text);
    json["tokens"].push_back(text);
    json["token_logprobs"].push_back(token_logprob(detail));
    json["top_logprobs"].push_back(top_logprobs_by_text(detail, texts));
  }
  return json;
}

OrderedJson chat_logprobs(std::span<const TokenDetail> details, const TokenTexts& texts) {
  OrderedJson content = OrderedJson::array();
  for (const TokenDetail& detail : details) content.push_back(chat_logprob(detail, texts));
  return {{"content", std::move(content)}};
}

}  // namespace halley
