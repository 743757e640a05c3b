#include "halley/python/event_queue.h"

#include <exception>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>

#include "halley/base/error.h"

namespace halley::python {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using testing::ThrowsMessage;
using testing::UnorderedElementsAre;

TokenEvent token(int32_t id, const std::string& text) {
  TokenEvent event;
  event.token_id = id;
  event.text = text;
  return event;
}

TokenEvent end(FinishReason reason) {
  TokenEvent event;
  event.finish_reason = reason;
  return event;
}

bool is_readable(const EventQueue& queue) {
  pollfd file = {.fd = queue.file_descriptor(), .events = POLLIN, .revents = 0};
  return ::poll(&file, 1, 0) == 1;
}

TEST(EventQueue, JoinsWhatIsNewOfARequest) {
  EventQueue queue(false);
  queue.add({.id = 7}, token(1, "a"), "");
  queue.add({.id = 8}, token(9, "z"), "");
  queue.add({.id = 7}, token(2, "b"), "");
  const auto news = queue.take();
  ASSERT_THAT(news, SizeIs(2));
  EXPECT_EQ(news[0].sequence.id, 7U);
  EXPECT_THAT(news[0].token_ids, ElementsAre(1, 2));
  EXPECT_EQ(news[0].text, "ab");
  EXPECT_FALSE(news[0].finish_reason.has_value());
  EXPECT_EQ(news[1].sequence.id, 8U);
  EXPECT_THAT(queue.take(), IsEmpty());
}

TEST(EventQueue, KnowsWhichSequencesLive) {
  EventQueue queue(false);
  for (const RequestId id : {1, 2, 3, 4}) queue.open({.id = id, .request = id / 2});
  queue.add({.id = 1}, token(1, "a"), "");
  queue.add({.id = 2}, end(FinishReason::kStop), "");
  queue.close(4);
  EXPECT_THAT(queue.live_ids(std::nullopt), UnorderedElementsAre(1, 3));
  EXPECT_THAT(queue.live_ids(1), ElementsAre(3));
  EXPECT_THAT(queue.live_ids(7), IsEmpty());
}

TEST(EventQueue, TellsTheSequenceOfEachDelta) {
  EventQueue queue(false);
  queue.add({.id = 5, .request = 9, .index = 2}, token(1, "a"), "");
  const auto news = queue.take();
  ASSERT_THAT(news, SizeIs(1));
  EXPECT_EQ(news[0].sequence.request, 9U);
  EXPECT_EQ(news[0].sequence.index, 2);
}

TEST(EventQueue, ShowsWholeRequestsAtTheirEndAlone) {
  EventQueue queue(true);
  queue.add({.id = 1}, token(1, "a"), "");
  EXPECT_FALSE(is_readable(queue));
  EXPECT_THAT(queue.take(), IsEmpty());
  queue.add({.id = 1}, end(FinishReason::kLength), "");
  const auto news = queue.take();
  ASSERT_THAT(news, SizeIs(1));
  EXPECT_THAT(news[0].token_ids, ElementsAre(1));
  EXPECT_EQ(news[0].finish_reason, FinishReason::kLength);
}

TEST(EventQueue, IsReadableWhileThereIsNews) {
  EventQueue queue(false);
  queue.wait(0);
  EXPECT_FALSE(is_readable(queue));
  queue.add({.id = 1}, token(1, "a"), "");
  queue.add({.id = 1}, token(2, "b"), "");
  EXPECT_TRUE(is_readable(queue));
  queue.take();
  EXPECT_FALSE(is_readable(queue));
  queue.add({.id = 1}, end(FinishReason::kStop), "");
  EXPECT_TRUE(is_readable(queue));
}

TEST(EventQueue, NamesTheConstraintThatNeedsTooMuch) {
  EventQueue queue(true);
  TokenEvent event = end(FinishReason::kError);
  event.is_over_constraint_limits = true;
  queue.add({.id = 1}, event, "guided_json");
  const auto news = queue.take();
  ASSERT_THAT(news, SizeIs(1));
  EXPECT_TRUE(news[0].is_input_error);
  EXPECT_THAT(news[0].error, HasSubstr("guided_json"));
}

TEST(EventQueue, SaysThatNoFileDescriptorIsLeft) {
  rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none = {.rlim_cur = 0, .rlim_max = before.rlim_max};
  std::exception_ptr thrown;  // looked at later: sanitizers open files
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  try {
    EventQueue queue(true);
  } catch (...) {
    thrown = std::current_exception();
  }
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_NE(thrown, nullptr);
  EXPECT_THAT([&] { std::rethrow_exception(thrown); },
              ThrowsMessage<DeviceError>(HasSubstr("expected a free file descriptor")));
}

}  // namespace
}  // namespace halley::python
