// The routes that load and unload LoRA adapters, as vLLM has them.
#pragma once

#include <string_view>

#include "halley/json/json.h"
#include "halley/server/app/adapter_table.h"
#include "halley/server/openai/api_error.h"

namespace halley {

/// 403: the operator did not open the table to clients.
ApiError no_changes();

/// POST /v1/load_lora_adapter: {"lora_name": "sql", "lora_path": "sql-v2", "load_inplace": false}.
/// Reads files: not for the thread of connections. Throws ApiError as AdapterTable::load(), and 400
/// where the body is not that; InputError where it is not JSON.
OrderedJson load_adapter_by(AdapterTable& adapters, std::string_view body);

/// POST /v1/unload_lora_adapter: {"lora_name": "sql"}. Throws ApiError, 404 or 400, and InputError
/// as above.
OrderedJson unload_adapter_by(AdapterTable& adapters, std::string_view body);

}  // namespace halley
