// Tests of streams, clients that disconnect, and the server's shutdown.
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/server/http/http_server.h"
#include "halley/server/http/testing/raw_client.h"
#include "halley/server/http/testing/test_routes.h"

namespace halley {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

constexpr const char* kKeep = "GET /keep HTTP/1.1\r\nHost: x\r\n\r\n";
constexpr const char* kHealth = "GET /health HTTP/1.1\r\nHost: x\r\n\r\n";

HttpResponse events(std::string first = {}) {
  HttpResponse response;
  response.content_type = "text/event-stream";
  response.body = std::move(first);
  return response;
}

TEST(HttpStream, SendsEachPieceAtOnce) {
  TestServer test;
  RawClient client(test.port());
  client.send(kKeep);
  const auto exchange = test.kept();
  exchange->start_stream(events("data: 0\n\n"));
  // Each is read before the next is written: none waits for another.
  EXPECT_THAT(client.receive_until("data: 0\n\n\r\n"), HasSubstr("transfer-encoding: chunked"));
  for (int i = 1; i < 50; ++i) {
    EXPECT_TRUE(exchange->write(str("data: ", i, "\n\n")));
    EXPECT_THAT(client.receive_until("\n\n\r\n"), HasSubstr(str("data: ", i, "\n\n")));
  }
  EXPECT_TRUE(exchange->write(""));  // would be the end of the stream if it was sent
  EXPECT_TRUE(exchange->write("last"));
  exchange->finish();
  EXPECT_EQ(client.receive_until("0\r\n\r\n"), "4\r\nlast\r\n0\r\n\r\n");
  client.send(kHealth);
  EXPECT_EQ(client.receive().body, "ok");
}

TEST(HttpStream, AnswersThatComeLaterFromAnotherThread) {
  TestServer test;
  RawClient client(test.port());
  client.send(kKeep);
  auto exchange = test.kept();
  std::thread([&] {
    HttpResponse response;
    response.body = std::string(3'000'000, 'y');
    exchange->respond(response);
    exchange.reset();
  }).join();
  const RawAnswer answer = client.receive();
  EXPECT_TRUE(answer.is_complete);
  EXPECT_EQ(answer.body, std::string(3'000'000, 'y'));
}

TEST(HttpStream, TellsWhenAllWasSent) {
  TestServer test;
  RawClient client(test.port());
  client.send(kKeep);
  const auto exchange = test.kept();
  exchange->start_stream(events("a"));
  for (int i = 0; i < 20; ++i) {
    Flag sent;
    exchange->when_sent([&] { sent.set(); });
    EXPECT_TRUE(sent.wait());
    EXPECT_TRUE(exchange->write(std::string(100'000, 'b')));
  }
  exchange->finish();
  EXPECT_EQ(client.receive().body, "a" + std::string(2'000'000, 'b'));
}

TEST(HttpStream, WaitsForAClientThatReadsLater) {
  TestServer test;
  RawClient client(test.port(), /*receive_buffer_bytes=*/4096);
  client.send(kKeep);
  const auto exchange = test.kept();
  exchange->start_stream(events(std::string(20'000'000, 'a')));  // more than the system's buffers
  Flag sent;
  exchange->when_sent([&] { sent.set(); });
  EXPECT_EQ(sent.count(), 0);
  std::thread reader([&] { EXPECT_EQ(client.receive().body.size(), 20'000'001u); });
  EXPECT_TRUE(sent.wait());
  EXPECT_TRUE(exchange->write("b"));
  exchange->finish();
  reader.join();
}

TEST(HttpStream, DropsWhatWaitsForAClientThatGoes) {
  TestServer test;
  RawClient client(test.port(), /*receive_buffer_bytes=*/4096);
  client.send(kKeep);
  auto exchange = test.kept();
  exchange->start_stream(events(std::string(20'000'000, 'a')));
  const auto token = std::make_shared<int>(1);
  Flag sent;
  // The callback owns the exchange, as that of a route does.
  exchange->when_sent([&sent, token, exchange] { sent.set(); });
  EXPECT_EQ(token.use_count(), 2);
  client.reset();
  EXPECT_FALSE(test.logged(1).at(0).is_complete);
  Flag gone;
  exchange->on_disconnect([&] { gone.set(); });
  EXPECT_TRUE(gone.wait());  // the connection is closed now, or was before
  exchange->when_sent([&] { sent.set(); });
  exchange.reset();
  test.server.reset();
  EXPECT_EQ(token.use_count(), 1);
  EXPECT_EQ(sent.count(), 0);
}

TEST(HttpStream, AnOldClientGetsBytesUntilTheEnd) {
  TestServer test;
  RawClient client(test.port());
  client.send("GET /keep HTTP/1.0\r\n\r\n");
  const auto exchange = test.kept();
  exchange->start_stream(events("a"));
  exchange->write("b");
  exchange->finish();
  const RawAnswer answer = client.receive();
  EXPECT_EQ(answer.headers.count("transfer-encoding"), 0u);
  EXPECT_EQ(answer.body, "ab");
}

TEST(HttpStream, HeadHasNoBody) {
  TestServer test;
  RawClient client(test.port());
  client.send("HEAD /keep HTTP/1.1\r\nHost: x\r\n\r\n");
  const auto exchange = test.kept();
  exchange->start_stream(events("a"));
  EXPECT_TRUE(exchange->write("b"));
  exchange->finish();
  EXPECT_EQ(client.receive(/*is_head=*/true).status, 200);
  client.send(kHealth);
  EXPECT_EQ(client.receive().body, "ok");
}

TEST(HttpStream, IsBrokenOffVisiblyWhereTheRouteDoesNotFinishIt) {
  TestServer test;
  RawClient client(test.port());
  client.send(kKeep);
  auto exchange = test.kept();
  exchange->start_stream(events("a"));
  client.receive_until("\r\n1\r\na\r\n");
  exchange.reset();
  EXPECT_TRUE(client.is_closed_by_server());
  EXPECT_FALSE(test.logged(1).at(0).is_complete);
}

TEST(HttpStream, HundredsAtATimeKeepApart) {
  constexpr int kNumStreams = 200;
  constexpr int kNumPieces = 20;
  TestServer test;
  std::vector<std::unique_ptr<RawClient>> clients;
  std::vector<std::shared_ptr<HttpExchange>> exchanges;
  for (int i = 0; i < kNumStreams; ++i) {
    clients.push_back(std::make_unique<RawClient>(test.port()));
    clients.back()->send(str("GET /keep?", i, " HTTP/1.1\r\nHost: x\r\n\r\n"));
    exchanges.push_back(test.kept());
    ASSERT_NE(exchanges.back(), nullptr);
    exchanges.back()->start_stream(events());
  }
  std::thread engine([&] {
    for (int piece = 0; piece < kNumPieces; ++piece) {
      for (const auto& exchange : exchanges) {
        exchange->write(str(exchange->request().query, ":", piece, ";"));
      }
    }
    for (const auto& exchange : exchanges) exchange->finish();
  });
  for (int i = 0; i < kNumStreams; ++i) {
    std::string expected;
    for (int piece = 0; piece < kNumPieces; ++piece) expected += str(i, ":", piece, ";");
    const RawAnswer answer = clients[static_cast<size_t>(i)]->receive();
    EXPECT_TRUE(answer.is_complete);
    EXPECT_EQ(answer.body, expected);
  }
  engine.join();
}

// How a client disconnects, and the server's state then.
struct Departure {
  const char* name;
  bool is_streaming;
  void (RawClient::*go)();
};

TEST(HttpDisconnect, IsToldToTheRoute) {
  TestServer test;
  size_t num = 0;
  for (const Departure& departure :
       {Departure{"end, no answer yet", false, &RawClient::close},
        Departure{"reset, no answer yet", false, &RawClient::reset},
        Departure{"end of sending, no answer yet", false, &RawClient::close_sending},
        Departure{"end, in a stream", true, &RawClient::close},
        Departure{"reset, in a stream", true, &RawClient::reset}}) {
    ++num;
    RawClient client(test.port());
    client.send(kKeep);
    const auto exchange = test.kept();
    Flag gone;
    exchange->on_disconnect([&] { gone.set(); });
    if (departure.is_streaming) {
      exchange->start_stream(events("a"));
      client.receive_until("\r\n1\r\na\r\n");
    }
    (client.*departure.go)();
    EXPECT_TRUE(gone.wait()) << departure.name;
    EXPECT_FALSE(test.logged(num).at(num - 1).is_complete) << departure.name;
    if (!departure.is_streaming) exchange->start_stream(events());
    EXPECT_FALSE(exchange->write("b")) << departure.name;
    exchange->finish();
    EXPECT_EQ(gone.count(), 1) << departure.name;
  }
}

TEST(HttpDisconnect, IsToldAtOnceWhereItHasHappenedAlready) {
  TestServer test;
  RawClient client(test.port());
  client.send(kKeep);
  const auto exchange = test.kept();
  client.close();
  test.logged(1);
  bool is_gone = false;
  // The log comes a moment before: until both have run, either order is right.
  Flag gone;
  exchange->on_disconnect([&] { gone.set(); });
  is_gone = gone.wait();
  EXPECT_TRUE(is_gone);
  exchange->respond({});
}

TEST(HttpDisconnect, IsNotReportedAfterTheAnswer) {
  TestServer test;
  Flag gone;
  {
    RawClient client(test.port());
    client.send(kKeep);
    const auto exchange = test.kept();
    const auto token = std::make_shared<int>(1);
    exchange->on_disconnect([&gone, token] { gone.set(); });
    EXPECT_EQ(token.use_count(), 2);
    exchange->respond({});
    EXPECT_EQ(token.use_count(), 1);  // the callback may own the exchange: it is not kept
    EXPECT_EQ(client.receive().status, 200);
  }
  test.logged(1);
  test.server.reset();
  EXPECT_EQ(gone.count(), 0);
}

TEST(HttpDisconnect, HappensToAClientThatDoesNotReadAStream) {
  HttpServerConfig config;
  config.limits.unsent_bytes_max = 100'000;
  TestServer test(config);
  RawClient client(test.port(), /*receive_buffer_bytes=*/4096);
  client.send(kKeep);
  const auto exchange = test.kept();
  Flag gone;
  exchange->on_disconnect([&] { gone.set(); });
  exchange->start_stream(events());
  // The system's own buffers of a few MB do not count.
  size_t num_bytes = 0;
  while (exchange->write(std::string(10'000, 'z')) && num_bytes < 200'000'000) num_bytes += 10'000;
  EXPECT_LT(num_bytes, 200'000'000u);
  EXPECT_TRUE(gone.wait());
  EXPECT_FALSE(exchange->write("more"));
}

TEST(HttpDisconnect, HappensToAClientThatDoesNotReadAnAnswer) {
  HttpServerConfig config;
  config.limits.write_timeout = milliseconds(100);
  TestServer test(config);
  RawClient client(test.port(), /*receive_buffer_bytes=*/4096);
  client.send("GET /sized?50000000 HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_FALSE(test.logged(1).at(0).is_complete);
  EXPECT_FALSE(client.receive().is_complete);
}

TEST(HttpDisconnect, OfOneStreamLeavesTheOthers) {
  TestServer test;
  for (int i = 0; i < 50; ++i) {
    RawClient stays(test.port());
    RawClient goes(test.port());
    stays.send(kKeep);
    const auto kept = test.kept();
    goes.send(kKeep);
    const auto left = test.kept();
    kept->start_stream(events());
    left->start_stream(events());
    if (i % 2 == 0) {
      goes.close();
    } else {
      goes.reset();
    }
    for (int piece = 0; piece < 20; ++piece) {
      left->write("a");
      EXPECT_TRUE(kept->write("b"));
    }
    kept->finish();
    left->finish();
    EXPECT_EQ(stays.receive().body, std::string(20, 'b'));
  }
}

TEST(HttpLifecycle, SaysWhyItCannotListen) {
  TestServer test;
  HttpServerConfig config;
  config.port = test.port();
  HttpServer second(config, {});
  try {
    second.start();
    FAIL();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr(str("cannot listen on 127.0.0.1 port ", test.port(),
                                            ": Address already in use. Choose another port")));
  }
  for (const char* host : {"no.such.host.invalid", "1.2.3.4.5"}) {
    config.host = host;
    HttpServer third(config, {});
    try {
      third.start();
      FAIL() << host;
    } catch (const InputError& error) {
      EXPECT_THAT(error.what(), HasSubstr(str("HTTP server: host \"", host, "\""))) << host;
    }
  }
}

std::string rejection_of(const HttpServerConfig& config) {
  try {
    HttpServer server(config, {});
  } catch (const InputError& error) {
    return error.what();
  }
  return "not rejected";
}

TEST(HttpLifecycle, RejectsAConfigurationThatIsNone) {
  HttpServerConfig config;
  config.limits.num_headers_max = 0;
  EXPECT_EQ(rejection_of(config), "HTTP server: num_headers_max: expected at least 1, got 0.");
  config = {};
  config.host = "";
  EXPECT_EQ(rejection_of(config),
            "HTTP server: host: expected an address or a name, got \"\". Use 127.0.0.1.");
  config = {};
  config.num_threads = 257;
  EXPECT_EQ(rejection_of(config), "HTTP server: num_threads: expected at most 256, got 257.");
}

TEST(HttpLifecycle, DrainsAfterAnswersAndClosesIdleConnections) {
  TestServer test;
  RawClient idle(test.port());
  idle.send(kHealth);
  idle.receive();
  RawClient busy(test.port());
  busy.send(kKeep);
  const auto exchange = test.kept();
  exchange->start_stream(events("a"));
  busy.receive_until("\r\n1\r\na\r\n");
  std::atomic<bool> is_drained{false};
  std::thread drain([&] { is_drained = test.server->drain(seconds(20)); });
  EXPECT_TRUE(idle.is_closed_by_server());
  EXPECT_FALSE(RawClient(test.port()).is_open());
  EXPECT_TRUE(exchange->write("b"));
  exchange->finish();
  EXPECT_EQ(busy.receive_until("0\r\n\r\n"), "1\r\nb\r\n0\r\n\r\n");
  EXPECT_TRUE(busy.is_closed_by_server());
  drain.join();
  EXPECT_TRUE(is_drained);
  EXPECT_EQ(test.server->num_connections(), 0u);
}

TEST(HttpLifecycle, CutsWhatDoesNotEndInTime) {
  TestServer test;
  RawClient client(test.port());
  client.send(kKeep);
  const auto exchange = test.kept();
  Flag gone;
  exchange->on_disconnect([&] { gone.set(); });
  EXPECT_FALSE(test.server->drain(milliseconds(10)));
  EXPECT_TRUE(gone.wait());
  EXPECT_TRUE(client.is_closed_by_server());
}

TEST(HttpLifecycle, ExchangesMayOutliveTheServer) {
  auto test = std::make_unique<TestServer>();
  RawClient first(test->port());
  first.send(kKeep);
  auto unanswered = test->kept();
  RawClient second(test->port());
  second.send(kKeep);
  auto streaming = test->kept();
  Flag gone;
  unanswered->on_disconnect([&] { gone.set(); });
  streaming->start_stream(events());
  test.reset();
  EXPECT_EQ(gone.count(), 1);
  EXPECT_FALSE(streaming->write("a"));
  bool is_told = false;
  streaming->on_disconnect([&] { is_told = true; });
  EXPECT_TRUE(is_told);
  unanswered.reset();
  streaming.reset();
}

TEST(HttpLifecycle, EndsWhileOthersWrite) {
  for (int i = 0; i < 20; ++i) {
    auto test = std::make_unique<TestServer>();
    RawClient client(test->port());
    client.send(kKeep);
    const auto exchange = test->kept();
    exchange->start_stream(events());
    Flag is_writing;
    std::thread engine([&] {
      while (exchange->write("a")) is_writing.set();
    });
    EXPECT_TRUE(is_writing.wait());
    test.reset();
    engine.join();
  }
}

TEST(HttpLifecycle, TellsClientsAboveTheLimitThatItIsBusy) {
  HttpServerConfig config;
  config.limits.num_connections_max = 2;
  TestServer test(config);
  RawClient first(test.port());
  first.send(kHealth);
  EXPECT_EQ(first.receive().status, 200);
  RawClient second(test.port());
  second.send(kHealth);
  EXPECT_EQ(second.receive().status, 200);
  {
    RawClient third(test.port());
    third.send(kHealth);
    const RawAnswer answer = third.receive();
    EXPECT_EQ(answer.status, 503);
    EXPECT_EQ(answer.headers.at("retry-after"), "1");
    EXPECT_TRUE(third.is_closed_by_server());
  }
  first.close();
  EXPECT_EQ(ask_until(test.port(), kHealth, 200).status, 200);
}

TEST(HttpLifecycle, AcceptsAgainAfterFileDescriptorsHadRunOut) {
  TestServer test;
  RawClient waiting(test.port());
  waiting.send(kHealth);
  EXPECT_EQ(waiting.receive().status, 200);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{256, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  std::vector<int> all;
  for (int fd = 0; (fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0;) all.push_back(fd);
  ASSERT_FALSE(all.empty());
  ::close(all.back());
  all.pop_back();
  RawClient late(test.port());  // takes the last one: nothing is left for accept()
  late.send(kHealth);
  waiting.send(kHealth);
  EXPECT_EQ(waiting.receive().status, 200);  // the server runs on
  EXPECT_FALSE(late.has_input(250));
  for (const int fd : all) ::close(fd);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(late.receive().status, 200);
}

}  // namespace
}  // namespace halley
