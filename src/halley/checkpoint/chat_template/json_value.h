// JSON documents as template values.
#pragma once

#include "halley/checkpoint/chat_template/runtime.h"
#include "halley/json/json.h"

namespace halley::jinja {

/// Throws TemplateFailure for integers beyond 64 bits with sign, invalid UTF-8, and documents
/// nested deeper than kValueDepthMax.
Value from_json(Runtime& runtime, const OrderedJson& json);

}  // namespace halley::jinja
