#include "halley/server/openai/block_reply.h"

#include <utility>

#include "halley/base/error.h"
#include "halley/base/str.h"

namespace halley {
namespace {

constexpr int kArgumentsDepthMax = 32;  // as of the calls in requests

bool is_white_space(const std::string& text) {
  return text.find_first_not_of(" \t\r\n") == std::string::npos;
}

}  // namespace

std::string named_event(std::string_view name, const OrderedJson& json) {
  return str("event: ", name, "\n", sse_event(json));
}

OrderedJson arguments_object(const std::string& arguments) {
  try {
    OrderedJson json =
        parse_ordered_json(arguments, "arguments", {.depth_max = kArgumentsDepthMax});
    if (json.is_object()) return json;
  } catch (const InputError&) {
    // The text says what the model wrote.
  }
  return {{"arguments", arguments}};
}

std::string BlockReply::begin(const ApiUsage& usage) {
  is_stream_ = true;
  std::string events;
  on_begin(usage, events);
  return events;
}

std::string BlockReply::add(const ChoiceDelta& delta) {
  std::string events;
  append(ReplyBlock::Kind::kReasoning, delta.reasoning, events);
  append_text(delta.text, events);
  for (const IndexedToolCall& call : delta.calls) append_call(call, events);
  if (!delta.finish_reason.empty()) {
    finish_reason_ = delta.finish_reason;
    stop_reason_ = delta.stop_reason;
    close(events);
  }
  return events;
}

std::string BlockReply::end(const ApiUsage& usage) {
  std::string events;
  on_end(usage, events);
  return events;
}

std::string BlockReply::fail(const ApiError& error) {
  std::string events;
  if (!is_stream_) events = begin({});
  on_fail(error, events);
  return events;
}

std::string BlockReply::whole(const ChoiceDelta& delta, const ApiUsage& usage) {
  add(delta);
  return make_whole(usage);
}

void BlockReply::append(ReplyBlock::Kind kind, const std::string& piece, std::string& events) {
  if (piece.empty()) return;
  if (!is_open_ || blocks_.back().kind != kind) open({.kind = kind, .text = {}}, events);
  extend(piece, events);
}

void BlockReply::append_text(const std::string& piece, std::string& events) {
  const bool has_begun = is_open_ && blocks_.back().kind == ReplyBlock::Kind::kText;
  if (has_begun) return append(ReplyBlock::Kind::kText, piece, events);
  white_space_ += piece;
  if (is_white_space(white_space_)) return;
  append(ReplyBlock::Kind::kText, std::exchange(white_space_, {}), events);
}

void BlockReply::append_call(const IndexedToolCall& indexed, std::string& events) {
  const ToolCall& call = indexed.call;
  if (!call.name.empty()) {
    open({.kind = ReplyBlock::Kind::kCall, .call = {call.id, call.name, {}}, .text = {}}, events);
  }
  extend(call.arguments, events);
}

void BlockReply::open(ReplyBlock block, std::string& events) {
  close(events);
  white_space_.clear();
  block.id = make_id(block.kind);
  blocks_.push_back(std::move(block));
  is_open_ = true;
  if (is_stream_) on_open(blocks_.back(), events);
}

void BlockReply::extend(const std::string& piece, std::string& events) {
  if (piece.empty()) return;
  if (keeps_texts_ || !is_stream_) blocks_.back().text += piece;
  if (is_stream_) on_text(blocks_.back(), piece, events);
}

void BlockReply::close(std::string& events) {
  if (!is_open_) return;
  is_open_ = false;
  if (is_stream_) on_close(blocks_.back(), events);
}

}  // namespace halley
