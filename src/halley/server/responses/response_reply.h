// The response of the Responses API: its object, and the events of its stream.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "halley/json/json.h"
#include "halley/server/openai/block_reply.h"

namespace halley {

struct ResponseHead {
  std::string id;  // "resp_..."
  std::string model;
  int64_t created_s = 0;
  bool is_stored = false;
  OrderedJson echo = OrderedJson::object();  // ResponseRequest::echo
};

/// Each block is an item of the output.
class ResponseReply : public BlockReply {
 public:
  /// `on_complete`, if given, gets the finished response and the message that it is in a
  /// conversation.
  using OnComplete = std::function<void(const OrderedJson& response, OrderedJson message)>;
  ResponseReply(ResponseHead head, OnComplete on_complete)
      : BlockReply(/*keeps_texts=*/true),
        head_(std::move(head)),
        on_complete_(std::move(on_complete)) {}

  /// Its stream ends with a text in four events, besides the text that was kept, the JSON of an
  /// event and what is stored.
  int64_t num_text_copies() const override { return 8; }

 protected:
  std::string make_id(ReplyBlock::Kind kind) const override;
  void on_begin(const ApiUsage& usage, std::string& events) override;
  void on_open(const ReplyBlock& block, std::string& events) override;
  void on_text(const ReplyBlock& block, const std::string& piece, std::string& events) override;
  void on_close(const ReplyBlock& block, std::string& events) override;
  void on_end(const ApiUsage& usage, std::string& events) override;
  void on_fail(const ApiError& error, std::string& events) override;
  std::string make_whole(const ApiUsage& usage) override;

 private:
  void add_event(std::string_view type, OrderedJson members, std::string& events);
  OrderedJson response_json(const char* status) const;
  OrderedJson finished_json(const ApiUsage& usage);
  OrderedJson message() const;

  const ResponseHead head_;
  const OnComplete on_complete_;
  int64_t num_events_ = 0;
};

}  // namespace halley
