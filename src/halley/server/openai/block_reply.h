// A reply that is a list of blocks, each of one kind: reasoning, text, or a tool call.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "halley/server/openai/reply.h"

namespace halley {

struct ReplyBlock {
  enum class Kind : uint8_t { kReasoning, kText, kCall };
  Kind kind = Kind::kText;
  std::string id = {};  // from make_id()
  ToolCall call = {};   // for kCall: id and name
  std::string text;     // for kCall: the arguments
};

/// Cuts deltas into blocks, which open and close one after the other. White space that no other
/// text follows, as models write it between calls, makes no block.
class BlockReply : public Reply {
 public:
  std::string begin(const ApiUsage& usage) final;
  std::string add(const ChoiceDelta& delta) final;
  std::string end(const ApiUsage& usage) final;
  std::string fail(const ApiError& error) final;
  std::string whole(const ChoiceDelta& delta, const ApiUsage& usage) final;

 protected:
  /// `keeps_texts`: blocks of a stream keep their texts until its end.
  explicit BlockReply(bool keeps_texts) : keeps_texts_(keeps_texts) {}

  virtual std::string make_id(ReplyBlock::Kind /*kind*/) const { return {}; }

  // The events of a stream. The block is the last one.
  virtual void on_begin(const ApiUsage& usage, std::string& events) = 0;
  virtual void on_open(const ReplyBlock& block, std::string& events) = 0;
  virtual void on_text(const ReplyBlock& block, const std::string& piece, std::string& events) = 0;
  virtual void on_close(const ReplyBlock& block, std::string& events) = 0;
  virtual void on_end(const ApiUsage& usage, std::string& events) = 0;
  virtual void on_fail(const ApiError& error, std::string& events) = 0;
  /// All blocks are there.
  virtual std::string make_whole(const ApiUsage& usage) = 0;

  const std::vector<ReplyBlock>& blocks() const { return blocks_; }
  size_t block_index() const { return blocks_.size() - 1; }
  bool is_cut_off() const { return finish_reason_ == "length"; }
  const std::string& finish_reason() const { return finish_reason_; }  // as ChoiceDelta
  const std::string& stop_reason() const { return stop_reason_; }

 private:
  void append(ReplyBlock::Kind kind, const std::string& piece, std::string& events);
  void append_text(const std::string& piece, std::string& events);
  void append_call(const IndexedToolCall& call, std::string& events);
  void open(ReplyBlock block, std::string& events);
  void extend(const std::string& piece, std::string& events);
  void close(std::string& events);

  const bool keeps_texts_;
  std::vector<ReplyBlock> blocks_;
  bool is_stream_ = false;
  bool is_open_ = false;     // the last block
  std::string white_space_;  // of a text that has not begun
  std::string finish_reason_, stop_reason_;
};

/// The arguments of a call as an object. Those that are none, as the model may write or
/// `max_tokens` may cut them off, are {"arguments": text}.
OrderedJson arguments_object(const std::string& arguments);

}  // namespace halley
