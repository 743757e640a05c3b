// Formats an answer: status line, headers, chunks (RFC 9112).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "halley/server/http/http_exchange.h"

namespace halley {

/// The properties of a request that shape its answer.
struct AnswerContext {
  bool is_http_1_0 = false;
  bool is_head = false;     // the answer to HEAD has no body
  bool keep_alive = false;  // else the answer says that the connection will be closed
  std::string request_id;
  HttpHeaders headers = {};  // for every answer to it
};

enum class BodyFraming { kLength, kChunked, kUntilClose };

/// Whether the status is 200 to 599, header names are tokens and values have no control characters,
/// which could end a header and begin another.
bool is_well_formed(const HttpResponse& response);

/// Status line and headers with the empty line after them. `response` must be well-formed. With
/// kLength the length is that of `response.body`, which is not appended.
std::string format_head(const HttpResponse& response, const AnswerContext& context,
                        BodyFraming framing);

/// Whether an answer of this status can have a body.
bool has_body(int status);

/// Appends one chunk; `piece` must not be empty, since that would be the end.
void append_chunk(std::string& out, std::string_view piece);
inline constexpr std::string_view kLastChunk = "0\r\n\r\n";

}  // namespace halley
