#include "halley/hub/hub_client.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <optional>
#include <thread>
#include <utility>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/hub/digest.h"
#include "halley/hub/repo_name.h"

namespace halley::hub {
namespace {

constexpr int kRedirectsMax = 5;
constexpr int kTriesMax = 5;  // of a request that the hub cannot answer now
constexpr std::chrono::seconds kRetryAfterMax{60};
constexpr size_t kListingBytesMax = 32 << 20;
constexpr size_t kErrorBytesMax = 1 << 20;  // pages for people, which are not shown

bool is_redirect(int status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

bool is_busy(int status) { return status == 429 || (status >= 500 && status <= 504); }

bool is_visible(char c) { return c > ' ' && c < '\x7f'; }

std::optional<uint64_t> number_of(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// How long to wait before another try: what the hub asks for, else 0.5, 1, 2, ... seconds.
std::chrono::milliseconds pause_before(int num_tries, const HttpAnswer& answer) {
  const auto asked = number_of(answer.header("retry-after"));
  if (!asked) return std::chrono::milliseconds(500 << (num_tries - 1));
  return std::min<std::chrono::milliseconds>(std::chrono::seconds(std::min<uint64_t>(*asked, 3600)),
                                             kRetryAfterMax);
}

/// `"0123"`, `W/"0123"`: the checksum in an entity tag, or nothing.
std::string checksum_of(std::string tag) {
  if (tag.starts_with("W/")) tag.erase(0, 2);
  std::erase(tag, '"');
  return is_checksum(tag) ? tag : std::string();
}

/// "bytes 100-199/200": the first number.
std::optional<uint64_t> first_byte_of(std::string_view range) {
  constexpr std::string_view kUnit = "bytes ";
  if (!range.starts_with(kUnit)) return std::nullopt;
  range.remove_prefix(kUnit.size());
  return number_of(range.substr(0, range.find('-')));
}

[[noreturn]] void reject_status(const HttpAnswer& answer, const std::string& endpoint,
                                const std::string& repo, const std::string& what, bool has_token) {
  // "GatedRepo", "RepoNotFound", "RevisionNotFound", "EntryNotFound"
  const std::string code = answer.header("x-error-code");
  const std::string got = str(", got HTTP status ", answer.status,
                              code.empty() ? "" : str(" (", halley::quote(code), ")"), ". ");
  const std::string where = str(endpoint, ": ", what, ": expected ");
  if (answer.status == 404) {
    throw InputError(str(where, "that it exists", got,
                         code == "RevisionNotFound" ? "Check --revision." : "Check the name.",
                         has_token ? "" : " A private model needs a token in HF_TOKEN."));
  }
  if (answer.status == 401 || answer.status == 403) {
    const std::string page = str(endpoint, "/", repo);
    throw InputError(str(where, "a model that may be read", got,
                         has_token ? str("The token in HF_TOKEN has no access: ask for it at ",
                                         page, ", or use the token of an account that has it.")
                                   : str("Check the name. A gated or private model needs the token "
                                         "of an account with access, which ",
                                         page, " gives, in HF_TOKEN.")));
  }
  throw DeviceError(str(where, "HTTP status 200", got, "Try again later, or name a mirror."));
}

}  // namespace

HubClient::HubClient(std::string endpoint, std::string token)
    : endpoint_(std::move(endpoint)), token_(std::move(token)) {
  while (endpoint_.ends_with('/')) endpoint_.pop_back();
  const bool is_plain = std::all_of(endpoint_.begin(), endpoint_.end(), is_visible) &&
                        endpoint_.find_first_of("?#") == std::string::npos;
  if (is_plain) origin_ = transport_.origin_of(endpoint_);
  if (origin_.empty()) {
    throw InputError(str("the endpoint (HF_ENDPOINT, --endpoint): expected a URL such as ",
                         kDefaultEndpoint, ", got ", halley::quote(endpoint_), "."));
  }
  // The message does not show it: it is a secret.
  if (!std::all_of(token_.begin(), token_.end(), is_visible)) {
    throw InputError("HF_TOKEN: expected visible ASCII characters alone, got others.");
  }
  if (!token_.empty() && origin_.starts_with("http:") && !is_loopback_origin(origin_)) {
    throw InputError(str(endpoint_,
                         ": expected https for an endpoint that the token in HF_TOKEN is sent to. "
                         "Use https, or unset HF_TOKEN."));
  }
}

/// Bytes of redirects and errors do not reach `sink`.
HttpAnswer HubClient::follow(HttpRequest request, const BodySink& sink) {
  size_t num_other_bytes = 0;
  const BodySink file_sink = [&](const HttpAnswer& answer, std::string_view bytes) {
    if (answer.status / 100 == 2) return sink(answer, bytes);
    num_other_bytes += bytes.size();
    if (num_other_bytes <= kErrorBytesMax) return;
    throw CheckpointError(str(endpoint_, ": expected at most ", kErrorBytesMax,
                              " bytes with HTTP status ", answer.status,
                              ", got more. Check the endpoint."));
  };
  for (int num_redirects = 0;; ++num_redirects) {
    const std::string origin = transport_.origin_of(request.url);
    request.token = origin == origin_ ? token_ : std::string();
    HttpAnswer answer = transport_.send(request, file_sink);
    // A HEAD is about the hub's own file, which the place that it is stored at knows nothing of.
    const bool is_answered = request.is_head && !answer.header("x-linked-etag").empty();
    if (!is_redirect(answer.status) || answer.redirect_url.empty() || is_answered) return answer;
    const std::string next = transport_.origin_of(answer.redirect_url);
    if (num_redirects == kRedirectsMax) {
      throw DeviceError(str(endpoint_, ": expected at most ", kRedirectsMax,
                            " redirects, got more. Check the endpoint."));
    }
    if (next.empty() || (origin.starts_with("https:") && !next.starts_with("https:"))) {
      throw CheckpointError(str(endpoint_, ": expected a redirect to an https URL, got ",
                                halley::quote(next.empty() ? answer.redirect_url : next),
                                ". Check the endpoint."));
    }
    request.url = answer.redirect_url;
  }
}

/// Asks until the hub is not busy. Throws for an answer without success, but not for one that was
/// cut. `what` is for messages.
HttpAnswer HubClient::ask(const HttpRequest& request, const std::string& repo,
                          const std::string& what, const BodySink& sink) {
  for (int num_tries = 1;; ++num_tries) {
    HttpAnswer answer = follow(request, sink);
    if (is_busy(answer.status) && num_tries < kTriesMax) {
      std::this_thread::sleep_for(pause_before(num_tries, answer));
      continue;
    }
    if (!answer.failure.empty() && !answer.was_cut) {
      throw DeviceError(str(endpoint_, ": ", what, ": expected an answer, got: ", answer.failure,
                            ". Check the network and the endpoint; without a network give the "
                            "folder of a model."));
    }
    const bool is_success = answer.status / 100 == 2 || (request.is_head && answer.status == 302);
    if (!is_success && answer.status != 0) {
      reject_status(answer, endpoint_, repo, what, !token_.empty());
    }
    return answer;
  }
}

RepoListing HubClient::list(const std::string& repo, const std::string& revision) {
  const HttpRequest request = {.url = str(endpoint_, "/api/models/", repo, "/revision/",
                                          percent_encode(revision, false), "?blobs=true")};
  const std::string what = str(repo, " at ", revision);
  for (int num_tries = 1;; ++num_tries) {
    std::string text;
    const auto take = [&](const HttpAnswer&, std::string_view bytes) {
      text += bytes;
      if (text.size() <= kListingBytesMax) return;
      throw CheckpointError(str(endpoint_, ": ", what, ": expected a list of files of at most ",
                                kListingBytesMax, " bytes, got more. Is this a hub of models?"));
    };
    const HttpAnswer answer = ask(request, repo, what, take);
    if (answer.failure.empty()) return parse_repo_listing(text, str(endpoint_, ": ", what));
    if (num_tries == kTriesMax) {
      throw DeviceError(str(endpoint_, ": ", what, ": expected the whole answer, got ",
                            answer.failure, ", ", kTriesMax, " times. Try again later."));
    }
    std::this_thread::sleep_for(pause_before(num_tries, answer));
  }
}

std::string HubClient::file_url(const std::string& repo, const std::string& commit,
                                const RepoFile& file) const {
  return str(endpoint_, "/", repo, "/resolve/", commit, "/", percent_encode(file.path, true));
}

void HubClient::complete(const std::string& repo, const std::string& commit, RepoFile& file) {
  if (!file.checksum.empty() && file.num_bytes) return;
  const std::string what = str(repo, "/", file.path);
  const HttpAnswer answer = ask({.url = file_url(repo, commit, file), .is_head = true}, repo, what,
                                [](const HttpAnswer&, std::string_view) {});
  const bool is_linked = !answer.header("x-linked-etag").empty();
  if (file.checksum.empty()) {
    file.checksum = checksum_of(answer.header(is_linked ? "x-linked-etag" : "etag"));
  }
  if (!file.num_bytes) {
    file.num_bytes = number_of(answer.header(is_linked ? "x-linked-size" : "content-length"));
  }
  if (!file.checksum.empty() && file.num_bytes.value_or(kFileBytesMax + 1) <= kFileBytesMax) return;
  throw CheckpointError(str(endpoint_, ": ", what,
                            ": expected a checksum and a size in the list of files or in X-Linked-"
                            "ETag and X-Linked-Size, got ",
                            file.checksum.empty() ? "no checksum" : "no size that makes sense",
                            ". A file that cannot be checked is not taken: use another endpoint."));
}

void HubClient::read(const std::string& repo, const std::string& commit, const RepoFile& file,
                     uint64_t first_byte, const FileSink& sink) {
  const std::string what = str(repo, "/", file.path);
  std::optional<uint64_t> next;  // where the next bytes belong, once an answer has begun
  const auto place = [&](const HttpAnswer& answer, std::string_view bytes) {
    if (!next) {
      const std::string range = answer.header("content-range");
      next = answer.status == 206 ? first_byte_of(range) : 0;
      if (answer.status == 206 && next != first_byte) {
        throw CheckpointError(str(endpoint_, ": ", what, ": expected bytes from ", first_byte,
                                  " on, got Content-Range ", halley::quote(range),
                                  ". Try again, or use another endpoint."));
      }
    }
    sink(*next, bytes);
    *next += bytes.size();
  };
  ask({.url = file_url(repo, commit, file), .first_byte = first_byte}, repo, what, place);
}

}  // namespace halley::hub
