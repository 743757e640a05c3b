#include "halley/checkpoint/safetensors/weight_index.h"

#include <algorithm>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/json/json.h"

namespace halley {
namespace {

constexpr size_t kFileNameBytesMax = 255;  // what file systems allow

Json parse_index(std::string_view text, const std::string& where) {
  try {
    return parse_json(text, where);
  } catch (const InputError& error) {  // here it is the checkpoint that is wrong
    throw CheckpointError(error.what());
  }
}

bool is_plain_shard_name(std::string_view name) {
  const auto leads_elsewhere = [](char c) {
    return c == '/' || c == '\\' || static_cast<unsigned char>(c) < 0x20;
  };
  return name.size() <= kFileNameBytesMax && !name.starts_with('.') &&
         name.ends_with(".safetensors") && std::none_of(name.begin(), name.end(), leads_elsewhere);
}

}  // namespace

std::map<std::string, std::string> parse_weight_index(std::string_view text,
                                                      const std::string& where) {
  const Json json = parse_index(text, where);
  const auto weight_map = json.is_object() ? json.find("weight_map") : json.end();
  if (weight_map == json.end() || !weight_map->is_object() || weight_map->empty()) {
    throw CheckpointError(
        str(where, ": field 'weight_map': expected an object that is not empty, got ",
            weight_map == json.end() ? "nothing" : type_name_of(*weight_map), "."));
  }
  std::map<std::string, std::string> shards;
  for (const auto& [tensor, shard] : weight_map->items()) {
    if (!shard.is_string() || !is_plain_shard_name(shard.get_ref<const std::string&>())) {
      throw CheckpointError(
          str(where, ": field 'weight_map': tensor ", halley::quote(tensor),
              ": expected the name of a .safetensors file in the same directory, got ",
              shard.is_string() ? halley::quote(shard.get_ref<const std::string&>())
                                : std::string(type_name_of(shard)),
              "."));
    }
    shards.emplace(tensor, shard.get<std::string>());
  }
  return shards;
}

}  // namespace halley
