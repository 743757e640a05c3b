// The variables of a block. A name is looked up here, then in the enclosing blocks.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "halley/checkpoint/chat_template/value.h"

namespace halley::jinja {

struct Scope {
  explicit Scope(std::shared_ptr<Scope> parent_scope = nullptr) : parent(std::move(parent_scope)) {}

  /// The value, or null. Adds the names it compared to `num_compared`.
  const Value* find(std::string_view name, size_t& num_compared) const;

  std::shared_ptr<Scope> parent;
  std::vector<std::pair<std::string, Value>> variables;
  bool is_kept = false;  // by the runtime, because a macro looks into it
};

}  // namespace halley::jinja
