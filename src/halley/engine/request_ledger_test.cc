#include "halley/engine/request_ledger.h"

#include <gtest/gtest.h>

namespace halley {
namespace {

EngineConfig small_config() {
  EngineConfig config;
  config.max_model_len = 100;
  config.max_num_queued = 3;
  config.max_num_queued_tokens = 50;
  return config;
}

TEST(RequestLedger, BoundsTheRequestsThatWaitAndNeverRan) {
  RequestLedger ledger(small_config());
  for (RequestId id = 0; id < 3; ++id) {
    EXPECT_EQ(ledger.why_rejected(5).status, Submit::kQueued);
    ledger.add(id, 5);
  }
  const SubmitResult rejection = ledger.why_rejected(5);
  EXPECT_EQ(rejection.status, Submit::kQueueFull);
  EXPECT_EQ(
      rejection.message,
      "queue: expected fewer than max_num_queued=3 waiting requests, got 3. Try again later.");
  ledger.start(1);
  EXPECT_EQ(ledger.why_rejected(5).status, Submit::kQueued);
  EXPECT_EQ(ledger.num_live(), 3);
  EXPECT_EQ(ledger.num_queued_tokens(), 10);
}

TEST(RequestLedger, BoundsTheirPromptTokens) {
  RequestLedger ledger(small_config());
  ledger.add(1, 30);
  EXPECT_EQ(ledger.why_rejected(20).status, Submit::kQueued);
  const SubmitResult rejection = ledger.why_rejected(21);
  EXPECT_EQ(rejection.status, Submit::kQueueFull);
  EXPECT_EQ(rejection.message,
            "queue: expected at most max_num_queued_tokens=50 waiting prompt tokens, got 30 and 21 "
            "more. Try again later.");
  ledger.end(1);
  EXPECT_EQ(ledger.num_queued_tokens(), 0);
  EXPECT_EQ(ledger.why_rejected(99).status, Submit::kQueued);  // an empty queue takes any
}

TEST(RequestLedger, CountsARequestOnceWhetherItRanOrNot) {
  RequestLedger ledger(small_config());
  ledger.add(1, 10);
  ledger.add(2, 20);
  ledger.start(1);
  ledger.end(1);
  EXPECT_EQ(ledger.num_queued(), 1);
  EXPECT_EQ(ledger.num_queued_tokens(), 20);
  ledger.end(2);
  EXPECT_EQ(ledger.num_queued(), 0);
  EXPECT_EQ(ledger.num_live(), 0);
}

TEST(RequestLedger, RejectsEverythingOnceItIsStopped) {
  RequestLedger ledger(small_config());
  EXPECT_EQ(ledger.why_rejected(100).status, Submit::kTooLong);
  ledger.stop("for a reason");
  const SubmitResult rejection = ledger.why_rejected(100);
  EXPECT_EQ(rejection.status, Submit::kStopped);
  EXPECT_EQ(rejection.message, "for a reason");
}

}  // namespace
}  // namespace halley
