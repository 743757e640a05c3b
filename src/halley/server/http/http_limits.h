// The HTTP server's limits: sizes, counts and timeouts.
#pragma once

#include <chrono>
#include <cstddef>

namespace halley {

struct HttpLimits {
  size_t header_bytes_max = size_t{32} << 10;  // request line and headers; a chunk's line; trailers
  size_t num_headers_max = 100;
  size_t target_bytes_max = size_t{8} << 10;
  size_t body_bytes_max = size_t{16} << 20;
  /// The bytes of the bodies of all requests that have arrived and are not answered yet, without
  /// the first `free_body_bytes` of each: long bodies leave the short ones of others their memory.
  size_t all_bodies_bytes_max = size_t{256} << 20;
  size_t free_body_bytes = size_t{64} << 10;
  /// The unsent bytes of one stream at which its client is disconnected.
  size_t unsent_bytes_max = size_t{1} << 20;
  size_t num_connections_max = 1024;

  std::chrono::milliseconds header_timeout{10'000};  // from the first byte to the last header
  std::chrono::milliseconds body_timeout{60'000};    // from the last header to the end of the body
  std::chrono::milliseconds idle_timeout{75'000};    // between two requests of a connection
  std::chrono::milliseconds write_timeout{30'000};   // without the client taking any byte
};

}  // namespace halley
