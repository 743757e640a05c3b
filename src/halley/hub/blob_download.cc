#include "halley/hub/blob_download.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/hub/digest.h"

namespace halley::hub {
namespace {

namespace fs = std::filesystem;

constexpr int kCutsMax = 5;  // in a row, without a byte between them
constexpr size_t kReadBytes = 1 << 20;

[[noreturn]] void fail(const fs::path& path, const char* what) {
  throw DeviceError(str(path.string(), ": cannot ", what, ": ", std::strerror(errno),
                        ". Check the disk, the permissions and the space of the cache's folder, or "
                        "set HF_HUB_CACHE to another one."));
}

/// An open file with an owner; made, with its folder, where it is not there.
class OwnFile {
 public:
  explicit OwnFile(const fs::path& path, mode_t mode) : path_(path) {
    std::error_code error;
    fs::create_directories(path.parent_path(), error);
    descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, mode);
    if (descriptor_ < 0) fail(path_, "open");
  }
  ~OwnFile() { ::close(descriptor_); }
  OwnFile(const OwnFile&) = delete;
  OwnFile& operator=(const OwnFile&) = delete;

  int get() const { return descriptor_; }
  const fs::path& path() const { return path_; }

  uint64_t size() const {
    struct stat info {};
    if (::fstat(descriptor_, &info) != 0) fail(path_, "stat");
    return static_cast<uint64_t>(info.st_size);
  }
  void truncate(uint64_t num_bytes) const {
    if (::ftruncate(descriptor_, static_cast<off_t>(num_bytes)) != 0) fail(path_, "truncate");
  }
  /// At its offset and not at the end: where flock() does nothing, as on some network file systems,
  /// two processes then write the same bytes to the same offsets.
  void write(uint64_t begin, std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t count =
          ::pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(begin));
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) fail(path_, "write");
      bytes.remove_prefix(static_cast<size_t>(count));
      begin += static_cast<uint64_t>(count);
    }
  }
  void sync() const {
    if (::fsync(descriptor_) != 0) fail(path_, "write");
  }

 private:
  fs::path path_;
  int descriptor_ = -1;
};

/// Held while this object lives, or until the process ends in any way. The file stays: to remove it
/// would give others a lock that nobody else has.
class BlobLock {
 public:
  BlobLock(const fs::path& path, const std::function<void()>& on_wait)
      : file_(path, 0664) {  // as huggingface_hub does, for caches that several users share
    if (::flock(file_.get(), LOCK_EX | LOCK_NB) == 0) return;
    if (errno == EWOULDBLOCK && on_wait) on_wait();
    while (::flock(file_.get(), LOCK_EX) != 0) {
      if (errno != EINTR) fail(path, "lock");
    }
  }

 private:
  OwnFile file_;
};

/// The bytes of an unfinished blob and the digest of those that are there.
class Partial {
 public:
  Partial(const fs::path& path, const RepoFile& file)
      : file_(path, 0666), wanted_(file), digest_(digest_for(file.checksum, *file.num_bytes)) {
    if (file_.size() > *wanted_.num_bytes) file_.truncate(0);
    std::vector<char> buffer(kReadBytes);
    while (true) {
      const ssize_t count =
          ::pread(file_.get(), buffer.data(), buffer.size(), static_cast<off_t>(num_bytes_));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) fail(path, "read");
      if (count == 0) break;
      digest_.update({buffer.data(), static_cast<size_t>(count)});
      num_bytes_ += static_cast<uint64_t>(count);
    }
  }

  /// Bytes stay for the next download; an empty file is of no use to it.
  ~Partial() {
    if (num_bytes_ == 0 && !is_finished_) remove();
  }
  Partial(const Partial&) = delete;
  Partial& operator=(const Partial&) = delete;

  uint64_t num_bytes() const { return num_bytes_; }
  bool is_whole() const { return num_bytes_ == *wanted_.num_bytes; }

  /// Bytes that begin at 0 again replace all.
  void take(uint64_t first_byte, std::string_view bytes) {
    if (first_byte == 0 && num_bytes_ > 0) {
      file_.truncate(0);
      num_bytes_ = 0;
      digest_ = digest_for(wanted_.checksum, *wanted_.num_bytes);
    }
    if (bytes.size() > *wanted_.num_bytes - num_bytes_) {
      reject(str("more than ", *wanted_.num_bytes, " bytes"));
    }
    file_.write(num_bytes_, bytes);
    digest_.update(bytes);
    num_bytes_ += bytes.size();
  }

  void finish(const fs::path& blob) {
    const std::string checksum = digest_.finish();
    if (checksum != wanted_.checksum) reject(str("the checksum ", checksum));
    file_.sync();
    if (::rename(file_.path().c_str(), blob.c_str()) != 0) fail(blob, "write");
    is_finished_ = true;
  }

 private:
  void remove() const {
    std::error_code ignored;
    fs::remove(file_.path(), ignored);
  }
  [[noreturn]] void reject(const std::string& got) {
    remove();
    throw CheckpointError(str(wanted_.path, ": expected ", *wanted_.num_bytes,
                              " bytes with the checksum ", wanted_.checksum, ", got ", got,
                              ". Nothing of the file was kept: pull again, from another endpoint "
                              "if it happens again."));
  }

  OwnFile file_;
  const RepoFile& wanted_;
  Digest digest_;
  uint64_t num_bytes_ = 0;
  bool is_finished_ = false;
};

bool is_there(const fs::path& blob, uint64_t num_bytes) {
  std::error_code error;
  return fs::is_regular_file(blob, error) && fs::file_size(blob, error) == num_bytes;
}

}  // namespace

void download_blob(HubClient& client, const CachedRepo& cached, const std::string& repo,
                   const std::string& commit, const RepoFile& file, const BlobEvents& events) {
  const fs::path blob = cached.blob(file.checksum);
  const BlobLock lock(cached.lock(file.checksum), events.on_wait);
  if (is_there(blob, *file.num_bytes)) {
    events.on_bytes(*file.num_bytes);
    return;
  }
  Partial partial(fs::path(blob.string() + ".incomplete"), file);
  events.on_bytes(partial.num_bytes());
  int num_cuts = 0;
  while (!partial.is_whole()) {
    const uint64_t num_before = partial.num_bytes();
    client.read(repo, commit, file, num_before, [&](uint64_t first_byte, std::string_view bytes) {
      partial.take(first_byte, bytes);
      events.on_bytes(partial.num_bytes());
    });
    if (partial.is_whole()) break;
    // An answer that is whole and too short counts as cut: the rest is asked for.
    num_cuts = partial.num_bytes() > num_before ? 1 : num_cuts + 1;
    if (num_cuts > kCutsMax) {
      throw DeviceError(str(client.endpoint(), ": ", repo, "/", file.path, ": expected ",
                            *file.num_bytes, " bytes, got ", partial.num_bytes(),
                            " before the connection was cut, ", num_cuts,
                            " times. Pull again: it goes on where it was."));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(250 << num_cuts));
  }
  partial.finish(blob);
}

}  // namespace halley::hub
