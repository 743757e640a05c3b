// Files that are part of the program.
#pragma once

#include <string_view>

namespace halley::cuda {

/// tuned_h200.json of this folder: the layers of Llama-3 8B and 70B.
std::string_view tuned_plans_h200();
/// tuned_h100_ranks.json: the parts of these layers that 2 and 4 ranks have.
std::string_view tuned_plans_h100_ranks();

}  // namespace halley::cuda
