#include "halley/server/openai/api_id.h"

#include <random>
#include <string_view>

namespace halley {

std::string random_id(const std::string& prefix, int num_chars) {
  constexpr std::string_view kChars =
      "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  thread_local std::mt19937_64 generator{std::random_device{}()};
  std::uniform_int_distribution<size_t> choose(0, kChars.size() - 1);
  std::string id = prefix;
  for (int i = 0; i < num_chars; ++i) id += kChars[choose(generator)];
  return id;
}

}  // namespace halley
