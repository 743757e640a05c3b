// `halley pull`: downloads a model into the Hugging Face cache.
#include "halley/hub/pull.h"

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/cli/command.h"
#include "halley/cli/named_model.h"
#include "halley/hub/hub_client.h"

namespace halley::cli {
namespace {

struct PullCommand {
  std::string model;
  hub::PullOptions pull;
};

int run_pull(const PullCommand& command) {
  const std::optional<hub::ModelName> name = hub::parse_model_name(command.model);
  if (!name) {
    throw InputError(str("pull: expected ORG/NAME, or ORG/NAME/FILE.gguf, got ",
                         quote(command.model), ". Take the name from the model's page."));
  }
  std::printf("%s\n", pull_shown(*name, command.pull).c_str());
  return kExitOk;
}

}  // namespace

Run add_pull(CLI::App& parent) {
  CLI::App& app = *parent.add_subcommand(
      "pull", "Download a model into the Hugging Face cache, which other programs share");
  auto command = std::make_shared<PullCommand>();
  app.add_option("MODEL", command->model,
                 "ORG/NAME, or ORG/NAME/FILE.gguf for one GGUF file with the parts of it")
      ->required();
  app.add_option("--revision", command->pull.revision, "A branch, a tag or a commit")
      ->capture_default_str();
  app.add_option("--include", command->pull.include,
                 "Files to take instead of those that running the model needs; * matches any text. "
                 "Repeat for several. Only data is taken, never pickles or code")
      ->allow_extra_args(false);
  app.add_option("--endpoint", command->pull.endpoint,
                 str("URL of the hub, or of a mirror of it; default: HF_ENDPOINT, else ",
                     hub::kDefaultEndpoint));
  app.add_option("--max-bytes", command->pull.limits.num_bytes_max,
                 "Largest sum of the files' sizes, 20GB for example")
      ->transform(CLI::AsSizeValue(true))
      ->capture_default_str();
  app.footer(
      R"(Prints the folder of the model. A pull that was interrupted goes on where it was; every
file's checksum is verified. HF_TOKEN has the token for gated and private models, HF_HOME or
HF_HUB_CACHE the folder of the cache.
Examples:
  halley pull Qwen/Qwen2.5-0.5B-Instruct
  halley pull ORG/NAME --revision v1.0 --include '*.json' --include 'model*.safetensors'
  halley serve Qwen/Qwen2.5-0.5B-Instruct)");
  return [command] { return run_pull(*command); };
}

}  // namespace halley::cli
