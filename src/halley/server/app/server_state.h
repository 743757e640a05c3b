// The server's settings and load, for programs that watch it, by the names of llama.cpp's server
// and vLLM.
#pragma once

#include "halley/json/json.h"
#include "halley/server/app/app_context.h"

namespace halley {

/// GET /props of llama.cpp: defaults of requests, context, slots and the chat template.
OrderedJson props_of(const AppContext& context);
/// GET /slots of llama.cpp: one entry for each sequence that can run; those that do come first.
OrderedJson slots_of(const AppContext& context);
/// GET /load of vLLM: the sequences that run, wait or are being prepared.
OrderedJson load_of(const AppContext& context);
/// GET /server_info: the settings that hold, with the defaults filled in.
OrderedJson server_info_of(const AppContext& context);

}  // namespace halley
