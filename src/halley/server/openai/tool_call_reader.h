// Reads one object of a model's text that may be a tool call: {"name": ..., "arguments": {...}}.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "halley/server/openai/json_extent.h"
#include "halley/server/openai/tool_calls.h"

namespace halley {

/// Emits a call's arguments while they arrive, as soon as the object is certainly a call: the name
/// is a tool's, and the arguments are an object. Arguments may have the key "arguments" or
/// "parameters". If they come before the name, are a string of JSON or are missing, the call is
/// emitted whole at its end. Not thread-safe.
class ToolCallReader {
 public:
  enum class State {
    kOpen,    // it may become a call; nothing was emitted
    kCall,    // it is an unfinished call
    kDone,    // a complete call
    kNoCall,  // it is no call
  };

  /// `tools` must outlive the reader.
  explicit ToolCallReader(std::span<const ApiTool> tools) : tools_(tools) {}

  /// Resets for the next object, whose first byte must be '{'.
  void restart();
  /// Takes bytes up to the end of the object and returns their number. Must not be called after
  /// kDone or kNoCall.
  size_t push(std::string_view text, ToolOutput& output);

  State state() const { return state_; }
  /// The bytes taken and not emitted; for kNoCall they are content.
  const std::string& held() const { return held_; }

 private:
  void read_head(ToolOutput& output);
  void finish_object(ToolOutput& output);
  void give_arguments(std::string_view text, ToolOutput& output);

  const std::span<const ApiTool> tools_;
  State state_ = State::kOpen;
  std::string held_;
  JsonExtent object_, arguments_;
  bool is_read_whole_ = false;  // only its end decides
  bool has_all_arguments_ = false;
};

/// Adds text to the arguments of the call that `output` or an earlier output began.
void add_arguments(std::string_view text, ToolOutput& output);

}  // namespace halley
