#include "halley/python/event_queue.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "halley/base/error.h"
#include "halley/base/str.h"

namespace halley::python {
namespace {

int open_event_file() {
  const int file = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (file >= 0) return file;
  throw DeviceError(str("expected a free file descriptor for the outputs, got \"",
                        std::strerror(errno), "\". Raise the limit (ulimit -n)."));
}

void append(const TokenEvent& event, const std::string& field, RequestDelta& delta) {
  if (event.token_id) delta.token_ids.push_back(*event.token_id);
  delta.text += event.text;
  if (event.logprob) {
    delta.logprobs.push_back(*event.logprob);
    delta.top_logprobs.push_back(event.top_logprobs);
  }
  if (!event.prompt_logprobs.empty()) delta.prompt_logprobs = event.prompt_logprobs;
  if (!event.finish_reason) return;
  delta.finish_reason = event.finish_reason;
  delta.stop_reason = event.stop_reason;
  delta.is_input_error = event.is_over_constraint_limits;
  delta.error = delta.is_input_error ? constraint_limit_error(field) : event.error;
  delta.times = event.times;
}

}  // namespace

EventQueue::EventQueue(bool is_whole) : is_whole_(is_whole), file_descriptor_(open_event_file()) {}

EventQueue::~EventQueue() { ::close(file_descriptor_); }

void EventQueue::open(const SequenceId& sequence) {
  const std::lock_guard lock(mutex_);
  live_.emplace(sequence.id, sequence.request);
}

void EventQueue::close(RequestId id) {
  const std::lock_guard lock(mutex_);
  live_.erase(id);
}

std::vector<RequestId> EventQueue::live_ids(std::optional<uint64_t> request) const {
  const std::lock_guard lock(mutex_);
  std::vector<RequestId> ids;
  for (const auto& [id, its_request] : live_) {
    if (!request || *request == its_request) ids.push_back(id);
  }
  return ids;
}

void EventQueue::add(const SequenceId& sequence, const TokenEvent& event,
                     const std::string& field) {
  const std::lock_guard lock(mutex_);
  const auto [entry, is_new] = deltas_.try_emplace(sequence.id);
  RequestDelta& delta = entry->second;
  delta.sequence = sequence;
  append(event, field, delta);
  if (event.finish_reason) live_.erase(sequence.id);
  const bool shows = is_whole_ ? event.finish_reason.has_value() : is_new;
  if (!shows) return;
  ready_.push_back(sequence.id);
  if (ready_.size() == 1) static_cast<void>(::eventfd_write(file_descriptor_, 1));
}

void EventQueue::wait(int milliseconds) const {
  pollfd file = {.fd = file_descriptor_, .events = POLLIN, .revents = 0};
  static_cast<void>(::poll(&file, 1, milliseconds));
}

std::vector<RequestDelta> EventQueue::take() {
  const std::lock_guard lock(mutex_);
  eventfd_t count = 0;
  static_cast<void>(::eventfd_read(file_descriptor_, &count));
  std::vector<RequestDelta> news;
  news.reserve(ready_.size());
  for (const RequestId id : ready_) {
    const auto entry = deltas_.find(id);
    news.push_back(std::move(entry->second));
    deltas_.erase(entry);
  }
  ready_.clear();
  return news;
}

}  // namespace halley::python
