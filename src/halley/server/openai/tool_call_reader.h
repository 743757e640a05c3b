// One object of a model's text that may be a call: {"name": ..., "arguments": {...}}.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "halley/server/openai/json_extent.h"
#include "halley/server/openai/tool_calls.h"

namespace halley {

/// Gives a call's arguments out while they arrive, as soon as it is certain that it is one: the
/// name is that of a tool, and the arguments are an object. Arguments may stand below "arguments"
/// or "parameters"; where they stand before the name, are a string of JSON or are missing, the call
/// comes whole at its end. Not thread-safe.
class ToolCallReader {
 public:
  enum class State {
    kOpen,    // it may become a call; nothing was given out
    kCall,    // it is one, and goes on
    kDone,    // a call that is over
    kNoCall,  // it is none
  };

  /// `tools` must outlive the reader.
  explicit ToolCallReader(std::span<const ApiTool> tools) : tools_(tools) {}

  /// For the next object, whose first byte must be '{'.
  void restart();
  /// Takes what follows, up to the end of the object. Returns the bytes taken. Not behind kDone or
  /// kNoCall.
  size_t push(std::string_view text, ToolOutput& output);

  State state() const { return state_; }
  /// What was taken and not given out; for kNoCall that is content.
  const std::string& held() const { return held_; }

 private:
  void read_head(ToolOutput& output);
  void finish_object(ToolOutput& output);
  void give_arguments(std::string_view text, ToolOutput& output);

  const std::span<const ApiTool> tools_;
  State state_ = State::kOpen;
  std::string held_;
  JsonExtent object_, arguments_;
  bool is_read_whole_ = false;  // only its end says what it is
  bool has_all_arguments_ = false;
};

/// Adds text to the arguments of the call that `output` or an earlier output began.
void add_arguments(std::string_view text, ToolOutput& output);

}  // namespace halley
