// Files of this folder that are part of the program.
#pragma once

#include <string_view>

namespace halley::cuda {

std::string_view tuned_h200();
std::string_view tuned_h100_ranks();

}  // namespace halley::cuda
