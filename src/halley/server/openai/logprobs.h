// Log probabilities in the two formats of the API, for several tokens and for one.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "halley/json/json.h"
#include "halley/server/openai/logprob_list.h"
#include "halley/server/openai/token_texts.h"

namespace halley {

/// Log probabilities of /v1/completions; `text_offset` of the first token moves after the last.
OrderedJson completion_logprobs(std::span<const TokenDetail> details, const TokenTexts& texts,
                                int64_t& text_offset);
/// Log probabilities of /v1/chat/completions.
OrderedJson chat_logprobs(std::span<const TokenDetail> details, const TokenTexts& texts);

/// One token in the list "content" of chats.
OrderedJson chat_logprob(const TokenDetail& detail, const TokenTexts& texts);
/// One token in vLLM's list "prompt_logprobs": by id its log probability, its rank where it is one
/// of the most likely ones, and its text. Null for a prompt's first token.
OrderedJson prompt_logprob(const TokenDetail& detail, const TokenTexts& texts);
/// One token in the lists "token_logprobs" and "top_logprobs" of completions.
OrderedJson token_logprob(const TokenDetail& detail);
OrderedJson top_logprobs_by_text(const TokenDetail& detail, const TokenTexts& texts);
/// How far a token with this text moves "text_offset".
int64_t num_characters(const std::string& text);

}  // namespace halley
