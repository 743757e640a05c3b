#include "halley/cli/flag_hints.h"

#include <algorithm>
#include <array>
#include <vector>

#include "halley/base/nearest_name.h"
#include "halley/base/str.h"

namespace halley::cli {
namespace {

constexpr std::string_view kVllm = "vLLM", kSglang = "SGLang", kLlamaCpp = "llama.cpp";
constexpr std::string_view kBoth = "vLLM and SGLang";

constexpr std::string_view kOneGpu = "A server runs on one GPU; run one for each.";
constexpr std::string_view kLocal = "All files are read from the directory MODEL.";
constexpr std::string_view kNoSuchMode = "There is no such mode; leave it out.";
constexpr std::string_view kField =
    "It is a field of requests; the model's generation_config.json "
    "has the defaults.";
constexpr std::string_view kAlways = "That is always so; leave it out.";
constexpr std::string_view kNoOffload = "Nothing is moved between the memories of CPU and GPU.";
constexpr std::string_view kTextAlone = "Models read and write text alone.";
constexpr std::string_view kTls = "TLS is what a proxy in front is for.";
constexpr std::string_view kNoLora = "Adapters are not supported; merge them into the checkpoint.";
constexpr std::string_view kNoSpeculation = "There is no speculative decoding; leave it out.";
constexpr std::string_view kOwnGrammars = "There is one implementation; leave it out.";

constexpr auto kHints = std::to_array<FlagHint>({
    // The model's files.
    {"--model,-m", "vLLM and llama.cpp", {}, "Give the directory as the argument MODEL."},
    {"--model-path", kSglang, {}, "Give the directory as the argument MODEL."},
    {"--tokenizer,--tokenizer-path,--tokenizer-mode", kBoth, {}, kLocal},
    {"--revision,--hf-token,--download-dir,--hf-config-path", kBoth, {}, kLocal},
    {"-hf,--hf-repo,-hff,--hf-file,-mu,--model-url", kLlamaCpp, {}, kLocal},
    {"--trust-remote-code", kBoth, {}, "Code of a checkpoint is never run; leave it out."},
    {"--quantization,-q", kBoth, {}, "The checkpoint declares its format; leave it out."},
    {"--task,--runner,--convert,--is-embedding", kBoth, {}, "Models generate text; leave it out."},
    {"--hf-overrides,--json-model-override-args", kBoth, {}, "Change the model's config.json."},
    {"--rope-scaling,--rope-theta", kBoth, {}, "Change the model's config.json."},
    {"--rope-freq-base,--rope-freq-scale,--override-kv",
     kLlamaCpp,
     {},
     "Change the model's config.json."},
    {"--enable-lora,--lora-modules,--max-loras,--max-lora-rank,--lora-paths", kBoth, {}, kNoLora},
    {"--lora,--lora-scaled", kLlamaCpp, {}, kNoLora},
    {"--limit-mm-per-prompt,--mm-processor-kwargs,--enable-multimodal", kBoth, {}, kTextAlone},
    {"--mmproj,-mm", kLlamaCpp, {}, kTextAlone},
    {"--alias,-a", kLlamaCpp, "--served-model-name"},
    {"--chat-template-file", kLlamaCpp, "--chat-template"},
    {"--jinja", kLlamaCpp, {}, kAlways},
    // Devices and memory.
    {"--tensor-parallel-size,-tp,--tp,--tp-size", kBoth, "--device", kOneGpu},
    {"--pipeline-parallel-size,-pp,--pp-size", kBoth, "--device", kOneGpu},
    {"--data-parallel-size,-dp,--dp,--dp-size", kBoth, "--device", kOneGpu},
    {"--enable-expert-parallel,--ep,--ep-size,--nnodes,--node-rank,--dist-init-addr", kBoth,
     "--device", kOneGpu},
    {"--distributed-executor-backend,--worker-use-ray", kVllm, "--device", kOneGpu},
    {"-sm,--split-mode,-ts,--tensor-split,-mg,--main-gpu", kLlamaCpp, "--device", kOneGpu},
    {"-ngl,--n-gpu-layers,--gpu-layers", kLlamaCpp, "--device", "All layers are on one device."},
    {"--base-gpu-id", kSglang, "--device"},
    {"--mem-fraction-static", kSglang, "--gpu-memory-utilization"},
    {"--num-gpu-blocks-override", kVllm, "--kv-cache-memory-bytes"},
    {"--max-total-tokens", kSglang, "--kv-cache-memory-bytes"},
    {"--swap-space,--cpu-offload-gb,--kv-offloading-size", kVllm, {}, kNoOffload},
    {"--mlock,--no-mmap,--mmap", kLlamaCpp, {}, kNoSuchMode},
    {"--numa", kLlamaCpp, {}, "Use numactl in front of the command."},
    {"-t,--threads-batch,-tb", kLlamaCpp, "--threads"},
    {"--kv-cache-dtype", kBoth, "--kv-dtype"},
    {"-ctk,--cache-type-k,-ctv,--cache-type-v", kLlamaCpp, "--kv-dtype"},
    // Lengths and batches.
    {"--context-length", kSglang, "--max-model-len"},
    {"-c,--ctx-size", kLlamaCpp, "--max-model-len", "It is that of one sequence."},
    {"--max-running-requests", kSglang, "--max-num-seqs"},
    {"-np,--parallel", kLlamaCpp, "--max-num-seqs"},
    {"--max-queued-requests", kSglang, "--max-num-queued-reqs"},
    {"--chunked-prefill-size,--max-prefill-tokens", kSglang, "--max-num-batched-tokens"},
    {"--enable-chunked-prefill,--no-enable-chunked-prefill", kVllm, "--max-num-batched-tokens",
     "Prompts are always computed in chunks."},
    {"-b,--batch-size,-ub,--ubatch-size", kLlamaCpp, "--max-num-batched-tokens"},
    {"--long-prefill-token-threshold,--max-num-partial-prefills,--max-long-partial-prefills", kVllm,
     "--itl-target"},
    {"--page-size", kSglang, "--block-size"},
    {"--disable-radix-cache", kSglang, "--no-enable-prefix-caching"},
    {"--no-cache-prompt,--cache-reuse", kLlamaCpp, "--no-enable-prefix-caching"},
    {"--schedule-policy", kSglang, "--scheduling-policy"},
    {"--num-scheduler-steps,--preemption-mode,--schedule-conservativeness", kBoth, {}, kNoSuchMode},
    {"--async-scheduling,--enable-overlap-schedule", kBoth, {}, kAlways},
    {"-cb,--cont-batching", kLlamaCpp, {}, kAlways},
    {"--enable-deterministic-inference", kSglang, "--batch-invariant"},
    {"--enforce-eager,--max-seq-len-to-capture,--compilation-config", kVllm, {}, kNoSuchMode},
    {"--disable-cuda-graph,--cuda-graph-max-bs,--enable-torch-compile", kSglang, {}, kNoSuchMode},
    {"--attention-backend,--sampling-backend", kBoth, "--require-kernel",
     "Kernels are chosen by the weights' format and the device."},
    {"-fa,--flash-attn", kLlamaCpp, {}, kAlways},
    {"--speculative-config,--speculative-model,--num-speculative-tokens",
     kVllm,
     {},
     kNoSpeculation},
    {"--speculative-algorithm,--speculative-num-steps,--speculative-draft-model-path",
     kSglang,
     {},
     kNoSpeculation},
    {"-md,--model-draft,--draft,--draft-max", kLlamaCpp, {}, kNoSpeculation},
    // Requests and answers.
    {"--seed,--random-seed", kBoth, {}, kField},
    {"-n,--n-predict,--predict", kLlamaCpp, {}, "It is the field max_tokens of requests."},
    {"--temp,--top-k,--top-p,--min-p,--repeat-penalty", kLlamaCpp, {}, kField},
    {"--generation-config,--override-generation-config", kVllm, {}, kField},
    {"--max-logprobs", kVllm, {}, "It is 20; leave it out."},
    {"--enable-auto-tool-choice", kVllm, "--tool-call-parser",
     "Tools are always on; the default parser follows the chat template."},
    {"--reasoning-parser", kBoth, {}, "Thoughts are a part of the answer's text; leave it out."},
    {"--reasoning-format,--reasoning-budget",
     kLlamaCpp,
     {},
     "Thoughts are a part of the answer's text; leave it out."},
    {"--chat-template-content-format,--response-role", kVllm, {}, kNoSuchMode},
    {"--guided-decoding-backend,--structured-outputs-config,--grammar-backend",
     kBoth,
     {},
     kOwnGrammars},
    {"--stream-interval", kBoth, {}, "Each token is sent at once; leave it out."},
    {"-to,--timeout", kLlamaCpp, "--request-timeout"},
    // The server.
    {"--allow-credentials,--allowed-methods,--allowed-headers", kVllm, "--allowed-origins"},
    {"--ssl-keyfile,--ssl-certfile,--ssl-ca-certs", kBoth, {}, kTls},
    {"--ssl-key-file,--ssl-cert-file", kLlamaCpp, {}, kTls},
    {"--root-path,--fastapi-root-path,--api-prefix",
     "other servers",
     {},
     "A proxy in front may serve it below a path."},
    {"--api-server-count", kVllm, "--http-threads"},
    {"--threads-http", kLlamaCpp, "--http-threads"},
    {"--disable-log-requests,--no-enable-log-requests,--disable-uvicorn-access-log", kVllm,
     "--disable-access-log"},
    {"--enable-log-requests,--log-requests", kBoth, "--access-log"},
    {"--uvicorn-log-level,--log-level-http", kBoth, "--log-level"},
    {"-v,--verbose,-lv,--log-verbosity,--log-disable", kLlamaCpp, "--log-level"},
    {"--disable-log-stats", kVllm, {}, "The log has no statistics; /metrics has them."},
    {"--enable-metrics,--metrics", "SGLang and llama.cpp", {}, "/metrics is always there."},
    {"--slots,--no-webui,--props", kLlamaCpp, {}, kNoSuchMode},
    {"--watchdog-timeout", kSglang, {}, kNoSuchMode},
});

// "--ctx-size" of "--ctx-size=4096".
std::string_view flag_of(std::string_view argument) {
  return argument.substr(0, argument.find('='));
}

bool has_flag(std::string_view flags, std::string_view flag) {
  while (!flags.empty()) {
    const size_t end = std::min(flags.find(','), flags.size());
    if (flags.substr(0, end) == flag) return true;
    flags.remove_prefix(std::min(end + 1, flags.size()));
  }
  return false;
}

// "--ctx-size is a flag of llama.cpp. Use --max-model-len. It is that of one sequence."
std::string sentence_of(const FlagHint& hint, std::string_view flag) {
  std::string text = str(flag, " is a flag of ", hint.program, ".");
  if (!hint.ours.empty()) text += str(" Use ", hint.ours, ".");
  if (!hint.advice.empty()) text += str(" ", hint.advice);
  return text;
}

}  // namespace

std::span<const FlagHint> flag_hints() { return kHints; }

const FlagHint* find_flag_hint(std::string_view argument) {
  const std::string_view flag = flag_of(argument);
  for (const FlagHint& hint : kHints) {
    if (flag.size() > 1 && has_flag(hint.flags, flag)) return &hint;
  }
  return nullptr;
}

std::string advice_for_flags(const CLI::App& command, std::span<const std::string> arguments) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  const std::vector<std::string_view> known(names.begin(), names.end());
  for (const std::string& argument : arguments) {
    const std::string_view flag = flag_of(argument);
    if (flag.size() < 2 || flag.front() != '-') continue;
    if (std::find(known.begin(), known.end(), flag) != known.end()) continue;
    if (const FlagHint* hint = find_flag_hint(flag); hint && command.get_name() == "serve") {
      return sentence_of(*hint, flag);
    }
    const std::string_view nearest = nearest_name(flag, known);
    if (!nearest.empty()) return str("Did you mean ", nearest, "?");
  }
  return {};
}

}  // namespace halley::cli
