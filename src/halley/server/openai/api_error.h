// Errors in the format of the OpenAI API.
#pragma once

#include <string>

#include "halley/base/error.h"

namespace halley {

/// An answer that is an error: `{"error": {"message", "type", "param", "code"}}` with an HTTP
/// status. Thrown while a request is processed, never on the engine's thread.
class ApiError : public Error {
 public:
  struct Details {
    int status = 400;
    std::string type = "invalid_request_error";
    std::string param = {};  // the field, as "messages[2].content"; empty: null
    std::string code = {};   // for programs, "model_not_found"; empty: null
    int retry_after_s = 0;   // for the header Retry-After; 0: none
  };
  ApiError(const std::string& message, Details details)
      : Error(message), details_(std::move(details)) {}

  const Details& details() const { return details_; }
  /// The error object's JSON.
  std::string body() const;

 private:
  Details details_;
};

/// 400 with `param`. The message must begin with the field and say what was expected.
ApiError invalid_field(const std::string& param, const std::string& message);
/// 503 with Retry-After: the queue is full, and no part of the request was done.
ApiError overloaded(const std::string& message, int retry_after_s);
/// 500 without internal details.
ApiError internal_error();

}  // namespace halley
