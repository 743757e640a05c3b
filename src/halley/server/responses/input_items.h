// The field input: a text, or items, as messages of a chat.
#pragma once

#include "halley/server/openai/field_table.h"

namespace halley {

/// A store function of the table. Items of types that are no text, call or reasoning are rejected
/// by name.
void store_input(const FieldValue& value, ApiRequest& request);

}  // namespace halley
