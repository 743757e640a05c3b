// The exception types of the project: the world is wrong (a bad file, a bad option, a device that
// fails). Our own bugs are HALLEY_CHECK (check.h); ordinary answers are return values.
//
// A message reads: "where: expected X, got Y. What to do." It names the file and the field, with
// numbers.
#pragma once

#include <stdexcept>
#include <string>

namespace halley {

class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message) : std::runtime_error(message) {}
};

/// The user's input is wrong: an option, a request, a text, a configuration file's value.
class InputError : public Error {
 public:
  using Error::Error;
};

/// A checkpoint's files contradict themselves, each other or their format.
class CheckpointError : public Error {
 public:
  using Error::Error;
};

/// Well-formed, but something that this program does not do. Says what to do instead.
class UnsupportedError : public Error {
 public:
  using Error::Error;
};

/// The machine failed: out of memory, an accelerator's error, a file that cannot be read.
class DeviceError : public Error {
 public:
  using Error::Error;
};

}  // namespace halley
