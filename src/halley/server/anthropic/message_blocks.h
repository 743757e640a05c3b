// The fields system and messages: texts and content blocks, as messages of a chat.
#pragma once

#include "halley/server/openai/field_table.h"

namespace halley {

// Store functions of the table. Blocks that are no text, call or thinking are rejected by name.

void store_system(const FieldValue& value, ApiRequest& request);
/// Behind store_system(). A last message of the assistant is one that the model goes on with.
void store_message_list(const FieldValue& value, ApiRequest& request);

}  // namespace halley
