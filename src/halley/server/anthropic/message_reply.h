// The message of the Messages API, and the events of its stream.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "halley/json/json.h"
#include "halley/server/openai/api_error.h"
#include "halley/server/openai/block_reply.h"

namespace halley {

struct MessageHead {
  std::string id;  // "msg_..."
  std::string model;
  std::vector<std::string> stop_sequences = {};  // of the request
  bool is_stream = false;
};

/// Each block is a content block.
class MessageReply : public BlockReply {
 public:
  explicit MessageReply(MessageHead head)
      : BlockReply(/*keeps_texts=*/false), head_(std::move(head)) {}

  /// A whole message has its text in the blocks, in the JSON of calls and in its own.
  int64_t num_text_copies() const override { return head_.is_stream ? 0 : 4; }

 protected:
  void on_begin(const ApiUsage& usage, std::string& events) override;
  void on_open(const ReplyBlock& block, std::string& events) override;
  void on_text(const ReplyBlock& block, const std::string& piece, std::string& events) override;
  void on_close(const ReplyBlock& block, std::string& events) override;
  void on_end(const ApiUsage& usage, std::string& events) override;
  void on_fail(const ApiError& error, std::string& events) override;
  std::string make_whole(const ApiUsage& usage) override;

 private:
  OrderedJson message_json(const ApiUsage& usage) const;
  /// stop_reason and stop_sequence.
  OrderedJson stop_json() const;

  const MessageHead head_;
};

/// {"type": "error", "error": {"type", "message"}}, with the type by the status.
OrderedJson message_error(int status, const std::string& message);

}  // namespace halley
