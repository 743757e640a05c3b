// Advice for flags of other servers that people paste behind `halley serve`, and for misspelt ones.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include <CLI/CLI.hpp>

namespace halley::cli {

struct FlagHint {
  std::string_view flags;  // "-c,--ctx-size": its names
  std::string_view program;
  std::string_view ours = {};  // the option of `halley serve` for the same thing; empty: none
  std::string_view advice = {};
};

std::span<const FlagHint> flag_hints();

/// The hint for this argument ("--ctx-size=4096"); null: none.
const FlagHint* find_flag_hint(std::string_view argument);

/// A sentence about the first argument that `command` does not know and something can be said
/// about: what to use instead of another server's flag (for `serve` alone), or which option was
/// probably meant. Empty: nothing helps.
std::string advice_for_flags(const CLI::App& command, std::span<const std::string> arguments);

}  // namespace halley::cli
