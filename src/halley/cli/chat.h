// `halley chat`.
#pragma once

#include "halley/cli/command.h"

namespace halley::cli {

Run add_chat(CLI::App& parent);

}  // namespace halley::cli
