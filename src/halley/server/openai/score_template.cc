#include "halley/server/openai/score_template.h"

#include <array>
#include <utility>

#include "halley/base/error.h"
#include "halley/base/str.h"

namespace halley {
namespace {

// The words that the models were trained with.
constexpr std::string_view kQwen3Reranker =
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and "
    "the Instruct provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n"
    "<|im_start|>user\n<Instruct>: {instruction}\n<Query>: {query}\n<Document>: {document}"
    "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";
constexpr std::string_view kInstruction =
    "Given a web search query, retrieve relevant passages that answer the query";

}  // namespace

std::vector<ScoreTemplate::Part> ScoreTemplate::parts_of(std::string_view text) {
  constexpr auto kMarks =
      std::to_array<std::pair<std::string_view, Slot>>({{"{instruction}", Slot::kInstruction},
                                                        {"{query}", Slot::kQuery},
                                                        {"{document}", Slot::kDocument}});
  std::vector<Part> parts(1);
  while (!text.empty()) {
    size_t length = 1;
    Slot slot = Slot::kNone;
    for (const auto& [mark, its_slot] : kMarks) {
      if (!text.starts_with(mark)) continue;
      length = mark.size();
      slot = its_slot;
    }
    if (slot == Slot::kNone) {
      parts.back().text += text.front();
    } else {
      parts.back().slot = slot;
      parts.emplace_back();
    }
    text.remove_prefix(length);
  }
  return parts;
}

ScoreTemplate::ScoreTemplate() : parts_(parts_of(kQwen3Reranker)) {}

ScoreTemplate ScoreTemplate::parse(std::string_view text, const std::string& where) {
  std::vector<Part> parts = parts_of(text);
  const auto check_count = [&](Slot slot, const char* mark, size_t min) {
    size_t count = 0;
    for (const Part& part : parts) count += part.slot == slot ? 1 : 0;
    if (count >= min && count <= 1) return;
    throw InputError(str(where, ": expected ", mark, min == 1 ? " once" : " at most once",
                         ", got it ", count, " times."));
  };
  check_count(Slot::kQuery, "{query}", 1);
  check_count(Slot::kDocument, "{document}", 1);
  check_count(Slot::kInstruction, "{instruction}", 0);
  return ScoreTemplate(std::move(parts));
}

std::string ScoreTemplate::render(std::string_view instruction, std::string_view query,
                                  std::string_view document) const {
  std::string text;
  for (const Part& part : parts_) {
    text += part.text;
    switch (part.slot) {
      case Slot::kInstruction:
        text += instruction.empty() ? kInstruction : instruction;
        break;
      case Slot::kQuery:
        text += query;
        break;
      case Slot::kDocument:
        text += document;
        break;
      case Slot::kNone:
        break;
    }
  }
  return text;
}

}  // namespace halley
