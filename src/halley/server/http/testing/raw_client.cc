#include "halley/server/http/testing/raw_client.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cstdlib>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "halley/base/check.h"

namespace halley {
namespace {

constexpr int kWaitMs = 20'000;

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

}  // namespace

RawClient::RawClient(uint16_t port, int receive_buffer_bytes) {
  socket_ = ::socket(AF_INET, SOCK_STREAM, 0);
  HALLEY_CHECK(socket_ >= 0, errno);
  if (receive_buffer_bytes > 0) {
    setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_buffer_bytes, sizeof receive_buffer_bytes);
  }
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) close();
}

RawClient::~RawClient() { close(); }

bool RawClient::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t num = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (num <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(num));
  }
  return true;
}

bool RawClient::receive_some() {
  pollfd waiting{socket_, POLLIN, 0};
  if (::poll(&waiting, 1, kWaitMs) != 1) return false;
  std::array<char, 65536> buffer;
  const ssize_t num = ::recv(socket_, buffer.data(), buffer.size(), 0);
  if (num <= 0) return false;
  inbox_.append(buffer.data(), static_cast<size_t>(num));
  return true;
}

std::optional<std::string> RawClient::take(size_t num_bytes) {
  while (inbox_.size() < num_bytes) {
    if (!receive_some()) return std::nullopt;
  }
  std::string bytes = inbox_.substr(0, num_bytes);
  inbox_.erase(0, num_bytes);
  return bytes;
}

std::string RawClient::receive_until(std::string_view end) {
  size_t at = std::string::npos;
  while ((at = inbox_.find(end)) == std::string::npos) {
    if (!receive_some()) return {};
  }
  return *take(at + end.size());
}

RawAnswer RawClient::receive(bool is_head) {
  RawAnswer answer;
  answer.head = receive_until("\r\n\r\n");
  if (answer.head.size() < 12) return answer;
  answer.status = std::atoi(answer.head.c_str() + 9);
  size_t begin = answer.head.find("\r\n") + 2;
  while (begin + 2 < answer.head.size()) {
    const size_t end = answer.head.find("\r\n", begin);
    const std::string line = answer.head.substr(begin, end - begin);
    const size_t colon = line.find(": ");
    HALLEY_CHECK(colon != std::string::npos, line);
    const bool is_new =
        answer.headers.emplace(lower(line.substr(0, colon)), line.substr(colon + 2)).second;
    HALLEY_CHECK(is_new, line);
    begin = end + 2;
  }
  if (is_head || answer.status == 204 || answer.status == 304) {
    answer.is_complete = true;
  } else if (answer.headers.contains("transfer-encoding")) {
    receive_chunks(answer);
  } else if (answer.headers.contains("content-length")) {
    auto body = take(static_cast<size_t>(std::atoll(answer.headers["content-length"].c_str())));
    answer.is_complete = body.has_value();
    answer.body = body.value_or(inbox_);
  } else {
    while (receive_some()) {
    }
    answer.body.swap(inbox_);
    answer.is_complete = true;
  }
  return answer;
}

void RawClient::receive_chunks(RawAnswer& answer) {
  for (;;) {
    const std::string line = receive_until("\r\n");
    if (line.empty()) return;
    const size_t size = std::strtoull(line.c_str(), nullptr, 16);
    const auto chunk = take(size + 2);
    if (!chunk.has_value()) return;
    HALLEY_CHECK(chunk->ends_with("\r\n"), *chunk);
    if (size == 0) {
      answer.is_complete = true;
      return;
    }
    answer.body += chunk->substr(0, size);
  }
}

bool RawClient::is_closed_by_server() {
  if (!inbox_.empty()) return false;
  pollfd waiting{socket_, POLLIN, 0};
  if (::poll(&waiting, 1, kWaitMs) != 1) return false;
  char byte = 0;
  return ::recv(socket_, &byte, 1, 0) <= 0;
}

bool RawClient::has_input(int wait_ms) {
  pollfd waiting{socket_, POLLIN, 0};
  return !inbox_.empty() || ::poll(&waiting, 1, wait_ms) == 1;
}

void RawClient::close_sending() { ::shutdown(socket_, SHUT_WR); }

void RawClient::close() {
  if (socket_ >= 0) ::close(socket_);
  socket_ = -1;
}

void RawClient::reset() {
  const linger at_once{1, 0};
  setsockopt(socket_, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  close();
}

RawAnswer ask(uint16_t port, std::string_view bytes) {
  RawClient client(port);
  client.send(bytes);
  return client.receive();
}

RawAnswer ask_until(uint16_t port, std::string_view bytes, int status) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(kWaitMs);
  RawAnswer answer = ask(port, bytes);
  while (answer.status != status && std::chrono::steady_clock::now() < end) {
    answer = ask(port, bytes);
  }
  return answer;
}

}  // namespace halley
