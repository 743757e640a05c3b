// The table of the objects inside fields: which members are read, which change nothing, and what
// becomes of all others.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "halley/json/json.h"
#include "halley/server/openai/field_table.h"

namespace halley {

enum class ObjectKind : uint8_t {
  kMessage,
  kPart,
  kCall,
  kCallFunction,
  kTool,
  kToolFunction,
  kToolChoice,
  kToolChoiceFunction,
  kResponseFormat,
  kJsonSchema,
  kStructuredOutputs,
  kStreamOptions,
  kSlo,
  kElsewhere,  // a row of another API's table
};

/// A member that would change the output and is not supported: it is rejected with `advice`, unless
/// it is null, false or empty.
struct RejectedMember {
  const char* name = nullptr;
  const char* advice = nullptr;
};

struct ObjectMembers {
  ObjectKind kind = ObjectKind::kElsewhere;
  const char* path;  // "messages[].content[]", for IgnoredMembers
  /// Members that no row knows: true: ignored, since clients add their own; false: rejected, since
  /// these objects say what the output must be.
  bool is_open;
  std::array<const char*, 8> read;          // null where there are fewer
  std::array<const char*, 4> neutral = {};  // accepted without a word: copies of what is read
  std::array<RejectedMember, 4> rejected = {};
};

/// One row for each kind but kElsewhere, in the order of the kinds.
std::span<const ObjectMembers> object_members();

/// Checks the members of the object at `path` ("messages[2]") and puts those that are ignored into
/// value.ignored. Throws ApiError if it is no object, or has a rejected member.
void check_members(const OrderedJson& object, const std::string& path, ObjectKind kind,
                   const FieldValue& value);
/// The same for a row of another API's table.
void check_members(const OrderedJson& object, const std::string& path, const ObjectMembers& row,
                   const FieldValue& value);

/// The object without the members that check_members() ignores.
OrderedJson read_members(const OrderedJson& object, ObjectKind kind);

}  // namespace halley
