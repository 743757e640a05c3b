#include "halley/hub/http_transport.h"

#include <gtest/gtest.h>

namespace halley::hub {
namespace {

TEST(HttpTransport, OriginsHaveSchemeHostAndPort) {
  const HttpTransport transport;
  EXPECT_EQ(transport.origin_of("https://Example.org/a?b#c"), "https://example.org:443");
  EXPECT_EQ(transport.origin_of("http://example.org:8080"), "http://example.org:8080");
  EXPECT_EQ(transport.origin_of("http://[::1]/x"), "http://[::1]:80");
  // Another port, scheme or host is another origin, however alike the texts are.
  EXPECT_NE(transport.origin_of("https://example.org:444/"), "https://example.org:443");
  EXPECT_EQ(transport.origin_of("https://example.org.other.net/"),
            "https://example.org.other.net:443");
  EXPECT_EQ(transport.origin_of("https://other.net/https://example.org/"), "https://other.net:443");
}

TEST(HttpTransport, OtherTextsHaveNoOrigin) {
  const HttpTransport transport;
  for (const char* url : {"", "example", "/path", "ftp://example.org/", "file:///etc/passwd",
                          "https://", "https://user@example.org/", "https://user:word@example.org/",
                          "https://exa mple.org/", "javascript:alert(1)"}) {
    EXPECT_EQ(transport.origin_of(url), "") << url;
  }
}

TEST(HttpTransport, KnowsThisMachine) {
  EXPECT_TRUE(is_loopback_origin("http://127.0.0.1:8000"));
  EXPECT_TRUE(is_loopback_origin("http://[::1]:80"));
  EXPECT_TRUE(is_loopback_origin("http://localhost:80"));
  EXPECT_FALSE(is_loopback_origin("http://localhost.example.org:80"));
  EXPECT_FALSE(is_loopback_origin("http://127.0.0.1.example.org:80"));
  EXPECT_FALSE(is_loopback_origin(""));
}

}  // namespace
}  // namespace halley::hub
