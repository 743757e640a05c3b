#include "halley/cli/named_model.h"

#include <cstdint>
#include <cstdio>

#include <unistd.h>

#include "halley/cli/progress.h"

namespace halley::cli {
namespace {

class PullDisplay {
 public:
  hub::PullEvents events() {
    return {.on_line = [this](const std::string& line) { print(line); },
            .on_bytes =
                [this](uint64_t num_bytes, uint64_t num_bytes_total, const std::string& file) {
                  bar_.update(static_cast<double>(num_bytes), static_cast<double>(num_bytes_total),
                              file);
                }};
  }

 private:
  void print(const std::string& line) const {
    // Over the bar, which is drawn again below.
    std::fprintf(stderr, "%s%s\n", is_terminal_ ? "\r\033[K" : "", line.c_str());
  }

  bool is_terminal_ = ::isatty(STDERR_FILENO) == 1;
  ProgressBar bar_{"pulling"};
};

}  // namespace

void add_lookup_options(CLI::App& app, hub::LookupOptions& lookup, bool downloads) {
  lookup.downloads = downloads;
  app.add_option("--revision", lookup.revision, "Of a model ORG/NAME: a branch, a tag or a commit")
      ->capture_default_str();
  app.add_flag(
      "--download,!--no-download", lookup.downloads,
      std::string("Download a model ORG/NAME that is not in the cache, as halley pull does "
                  "(default: ") +
          (downloads ? "on)" : "off)"));
}

std::filesystem::path pull_shown(const hub::ModelName& model, const hub::PullOptions& options) {
  PullDisplay display;
  return hub::pull_model(model, options, display.events());
}

std::string find_model(const std::string& model, const hub::LookupOptions& lookup) {
  PullDisplay display;
  return hub::find_model(model, lookup, display.events()).string();
}

void find_model(ModelOptions& options) {
  options.model = find_model(options.model, options.lookup);
}

}  // namespace halley::cli
