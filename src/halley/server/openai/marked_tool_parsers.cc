// Dialects in which a marker begins each call, with content around them: Hermes and Mistral.
#include <algorithm>
#include <string>
#include <utility>

#include "halley/server/openai/json_extent.h"
#include "halley/server/openai/tool_call_text.h"

namespace halley {
namespace {

constexpr std::string_view kMistralArguments = "[ARGS]";
constexpr std::string_view kMistralCallId = "[CALL_ID]";
constexpr size_t kMistralHeadBytesMax = 256;  // a name, an id and marks

// Bytes at the end of `text` with which `marker` may begin.
size_t num_bytes_of_marker(std::string_view text, std::string_view marker) {
  for (size_t n = std::min(text.size(), marker.size() - 1); n > 0; --n) {
    if (text.ends_with(marker.substr(0, n))) return n;
  }
  return 0;
}

// White space between content and a call is dropped.
class MarkedParser : public ToolCallParser {
 public:
  MarkedParser(std::string_view marker, std::span<const ApiTool> tools)
      : tools_(tools), marker_(marker) {}

  void push(std::string_view text, ToolOutput& output) override {
    pending_ += text;
    while (is_in_call_ ? read_call(/*is_last=*/false, output) : read_content(output)) {
    }
  }

  void finish(ToolOutput& output) override {
    while (is_in_call_ ? read_call(/*is_last=*/true, output) : read_content(output)) {
    }
    // Of white space behind a call nothing is left.
    const bool is_blank = num_leading_spaces(pending_) == pending_.size();
    if (!is_blank || !has_call_) output.content += pending_;
    pending_.clear();
  }

 protected:
  struct Body {
    enum class Kind : uint8_t { kIncomplete, kCalls, kContent };
    Kind kind = Kind::kIncomplete;
    std::vector<ToolCall> calls = {};
    size_t num_bytes = 0;  // that the calls took
  };
  /// Says what stands behind a marker. `is_last`: no more text will come.
  virtual Body read_body(std::string_view body, bool is_last) = 0;

  /// Of the JSON behind the current marker; `json` must begin at the same place at each call.
  std::optional<size_t> find_json_end(std::string_view json) { return extent_.find_end(json); }

  const std::span<const ApiTool> tools_;

 private:
  // Gives out what is certainly content. True where a marker follows.
  bool read_content(ToolOutput& output) {
    const size_t start = pending_.find(marker_);
    const bool has_marker = start != std::string::npos;
    const size_t end =
        has_marker ? start : pending_.size() - num_bytes_of_marker(pending_, marker_);
    const size_t num_text =
        std::string_view(pending_).substr(0, end).find_last_not_of(" \t\r\n") + 1;
    output.content += pending_.substr(0, num_text);
    if (has_marker) before_call_ = pending_.substr(num_text, start - num_text);
    pending_.erase(0, has_marker ? start + marker_.size() : num_text);
    is_in_call_ = has_marker;
    extent_.restart();
    return has_marker;
  }

  // False: more text is needed.
  bool read_call(bool is_last, ToolOutput& output) {
    Body body = read_body(pending_, is_last);
    if (body.kind == Body::Kind::kIncomplete && !is_last) return false;
    is_in_call_ = false;
    if (body.kind == Body::Kind::kCalls) {
      for (ToolCall& call : body.calls) output.calls.push_back(std::move(call));
      pending_.erase(0, body.num_bytes);
      has_call_ = true;
    } else {
      output.content += before_call_ + marker_;
    }
    return true;
  }

  const std::string marker_;
  std::string pending_;      // not given out yet
  std::string before_call_;  // white space that is content where no call follows
  bool is_in_call_ = false;
  bool has_call_ = false;
  JsonExtent extent_;
};

class HermesParser : public MarkedParser {
 public:
  explicit HermesParser(std::span<const ApiTool> tools) : MarkedParser(kHermesOpen, tools) {}

 private:
  Body read_body(std::string_view body, bool is_last) override {
    const size_t start = num_leading_spaces(body);
    if (start == body.size()) return {};
    if (body[start] != '{') return {.kind = Body::Kind::kContent};
    const auto num_json = find_json_end(body.substr(start));
    if (!num_json) return {};
    const size_t json_end = start + *num_json;
    const size_t close_start = json_end + num_leading_spaces(body.substr(json_end));
    const std::string_view close = body.substr(close_start);
    const bool is_closed = close.starts_with(kHermesClose);
    const bool is_cut_off = kHermesClose.starts_with(close);
    if (!is_closed && is_cut_off && !is_last) return {};
    // The end of the text counts as the closing mark: some models stop there.
    if (!is_closed && !is_cut_off) return {.kind = Body::Kind::kContent};
    auto call = parse_tool_call(body.substr(start, *num_json), tools_);
    if (!call) return {.kind = Body::Kind::kContent};
    return {.kind = Body::Kind::kCalls,
            .calls = {std::move(*call)},
            .num_bytes = is_closed ? close_start + kHermesClose.size() : body.size()};
  }
};

class MistralParser : public MarkedParser {
 public:
  explicit MistralParser(std::span<const ApiTool> tools) : MarkedParser(kMistralOpen, tools) {}

 private:
  Body read_body(std::string_view body, bool /*is_last*/) override {
    const size_t start = num_leading_spaces(body);
    if (start == body.size()) return {};
    if (body[start] == '[' && !body.substr(start).starts_with(kMistralArguments)) {
      return read_list(body, start);
    }
    return read_named(body, start);
  }

  // [{"name": ..., "arguments": {...}}, ...]
  Body read_list(std::string_view body, size_t start) {
    const auto num_json = find_json_end(body.substr(start));
    if (!num_json) return {};
    Body out{.kind = Body::Kind::kCalls, .num_bytes = start + *num_json};
    if (add_tool_calls(body.substr(start, *num_json), tools_, out.calls)) return out;
    return {.kind = Body::Kind::kContent};
  }

  // name{...}, name[ARGS]{...}, name[CALL_ID]id[ARGS]{...}
  Body read_named(std::string_view body, size_t start) {
    const size_t brace = body.find('{', start);
    if (brace == std::string_view::npos) {
      const bool is_too_long = body.size() - start > kMistralHeadBytesMax;
      return {.kind = is_too_long ? Body::Kind::kContent : Body::Kind::kIncomplete};
    }
    std::string_view name = body.substr(start, brace - start);
    for (const std::string_view mark : {kMistralArguments, kMistralCallId}) {
      name = name.substr(0, name.find(mark));
    }
    while (!name.empty() && num_leading_spaces(name.substr(name.size() - 1)) == 1) {
      name.remove_suffix(1);
    }
    if (!has_tool(tools_, name)) return {.kind = Body::Kind::kContent};
    const auto num_json = find_json_end(body.substr(brace));
    if (!num_json) return {};
    const OrderedJson arguments = parse_json_or_null(body.substr(brace, *num_json));
    if (!arguments.is_object()) return {.kind = Body::Kind::kContent};
    return {.kind = Body::Kind::kCalls,
            .calls = {{.name = std::string(name), .arguments = arguments.dump()}},
            .num_bytes = brace + *num_json};
  }
};

}  // namespace

std::unique_ptr<ToolCallParser> make_hermes_parser(std::span<const ApiTool> tools) {
  return std::make_unique<HermesParser>(tools);
}

std::unique_ptr<ToolCallParser> make_mistral_parser(std::span<const ApiTool> tools) {
  return std::make_unique<MistralParser>(tools);
}

}  // namespace halley
