#include "halley/client/http/http_url.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"

namespace halley {
namespace {

using testing::HasSubstr;

std::string error_of(const std::string& text) {
  try {
    parse_http_url(text);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(HttpUrl, SplitsHostPortAndPath) {
  const HttpUrl url = parse_http_url("http://localhost:8000/v1/");
  EXPECT_EQ(url.host, "localhost");
  EXPECT_EQ(url.port, "8000");
  EXPECT_EQ(url.path, "/v1");
  EXPECT_EQ(url.authority(), "localhost:8000");
}

TEST(HttpUrl, DefaultPortIsNotNamed) {
  const HttpUrl url = parse_http_url("http://example.org");
  EXPECT_EQ(url.port, "80");
  EXPECT_EQ(url.path, "");
  EXPECT_EQ(url.authority(), "example.org");
}

TEST(HttpUrl, KeepsTheBracketsOfIpv6OutOfTheHost) {
  const HttpUrl url = parse_http_url("http://[::1]:8000");
  EXPECT_EQ(url.host, "::1");
  EXPECT_EQ(url.authority(), "[::1]:8000");
}

TEST(HttpUrl, RejectsWhatIsNoUrlOfAServer) {
  EXPECT_THAT(error_of("localhost:8000"), HasSubstr("expected http://"));
  EXPECT_THAT(error_of("http://"), HasSubstr("expected a host, got none"));
  EXPECT_THAT(error_of("http://:80"), HasSubstr("expected a host, got none"));
  EXPECT_THAT(error_of("http://a:0"), HasSubstr("expected a port from 1 to 65535"));
  EXPECT_THAT(error_of("http://a:65536"), HasSubstr("expected a port from 1 to 65535"));
  EXPECT_THAT(error_of("http://a:8x"), HasSubstr("expected a port from 1 to 65535"));
  EXPECT_THAT(error_of("http://a:"), HasSubstr("expected a port from 1 to 65535"));
  EXPECT_THAT(error_of("http://[::1"), HasSubstr("expected ']'"));
  EXPECT_THAT(error_of("http://[x]"), HasSubstr("expected an IPv6 address"));
  EXPECT_THAT(error_of("http://[::1]8"), HasSubstr("expected a port"));
  EXPECT_THAT(error_of("http://a b/"), HasSubstr("printable ASCII"));
  EXPECT_THAT(error_of("http://a/\r\nX: y"), HasSubstr("printable ASCII"));
  EXPECT_THAT(error_of("http://me@a/"), HasSubstr("no credentials"));
  EXPECT_THAT(error_of("http://a/?x=1"), HasSubstr("no credentials, query"));
  EXPECT_THAT(error_of("http://a*b/"), HasSubstr("expected a host name"));
  EXPECT_THAT(error_of("http://" + std::string(2048, 'a')), HasSubstr("at most 2048 bytes"));
}

TEST(HttpUrl, SaysWhatToDoWithHttps) {
  EXPECT_THROW(parse_http_url("https://example.org"), UnsupportedError);
  EXPECT_THAT(error_of("https://example.org"), HasSubstr("behind the proxy"));
}

}  // namespace
}  // namespace halley
