// The markers of OpenAI's harmony format, and its parser of reasoning.
#pragma once

#include <memory>
#include <string_view>

#include "halley/server/openai/reasoning.h"

namespace halley {

inline constexpr std::string_view kHarmonyStart = "<|start|>";
inline constexpr std::string_view kHarmonyChannel = "<|channel|>";
inline constexpr std::string_view kHarmonyMessage = "<|message|>";
inline constexpr std::string_view kHarmonyEnd = "<|end|>";
inline constexpr std::string_view kHarmonyReturn = "<|return|>";
inline constexpr std::string_view kHarmonyCall = "<|call|>";
/// A call's message in the content begins with it.
inline constexpr std::string_view kHarmonyCallOpen = "<|channel|>commentary to=functions.";

std::unique_ptr<ReasoningParser> make_harmony_parser(const ReasoningStart& start);

}  // namespace halley
