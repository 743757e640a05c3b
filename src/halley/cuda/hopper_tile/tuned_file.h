// Files that are part of the program.
#pragma once

#include <string_view>

namespace halley::cuda {

/// tuned_h200.json of this folder.
std::string_view tuned_tiles_h200();

}  // namespace halley::cuda
