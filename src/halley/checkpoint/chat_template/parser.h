// Parses a template's source into its syntax tree.
#pragma once

#include <string_view>

#include "halley/checkpoint/chat_template/ast.h"

namespace halley::jinja {

/// Throws SyntaxFailure for what is not Jinja, and for Jinja that is not supported (extends,
/// include, import, recursive loops, unknown filters and tests, ...), by its name. Blocks and
/// expressions may be nested `depth_max` deep.
Body parse_template(std::string_view source, int depth_max);

}  // namespace halley::jinja
