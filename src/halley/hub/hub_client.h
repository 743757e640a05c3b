// A hub of models over HTTPS: the routes that are used, redirects, the token and what errors mean.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "halley/hub/http_transport.h"
#include "halley/hub/repo_listing.h"

namespace halley::hub {

/// The hub that is asked where neither HF_ENDPOINT nor an option names a mirror.
inline constexpr const char* kDefaultEndpoint = "https://huggingface.co";

/// Takes bytes of a file that begin at `first_byte`.
using FileSink = std::function<void(uint64_t first_byte, std::string_view bytes)>;

/// The token goes to the endpoint's own scheme, host and port alone, and never over plain HTTP but
/// on this machine. Redirects may not lead from HTTPS to HTTP. Methods throw DeviceError where the
/// network or the hub fails, InputError where the hub rejects the model or the token, and
/// CheckpointError where its answer makes no sense.
class HubClient {
 public:
  /// Throws InputError for an endpoint that is no URL, or that the token may not go to.
  HubClient(std::string endpoint, std::string token);

  const std::string& endpoint() const { return endpoint_; }

  /// `repo` and `revision` as repo_name.h accepts them.
  RepoListing list(const std::string& repo, const std::string& revision);

  /// Asks for the checksum and the size of a file where the listing did not say. Throws
  /// CheckpointError where the hub does not know them either.
  void complete(const std::string& repo, const std::string& commit, RepoFile& file);

  /// Sends the file's bytes from `first_byte` on to `sink`, from 0 again where the hub cannot
  /// begin in the middle. Returns early where the connection was cut: ask for the rest.
  void read(const std::string& repo, const std::string& commit, const RepoFile& file,
            uint64_t first_byte, const FileSink& sink);

 private:
  HttpAnswer follow(HttpRequest request, const BodySink& sink);
  HttpAnswer ask(const HttpRequest& request, const std::string& repo, const std::string& what,
                 const BodySink& sink);
  std::string file_url(const std::string& repo, const std::string& commit,
                       const RepoFile& file) const;

  HttpTransport transport_;
  std::string endpoint_, origin_, token_;
};

}  // namespace halley::hub
