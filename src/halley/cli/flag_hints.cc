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
constexpr std::string_view kNamed = "Give ORG/NAME, or ORG/NAME/FILE.gguf, as the argument MODEL.";
constexpr std::string_view kEnvironment =
    "HF_TOKEN and HF_HUB_CACHE in the environment have the token and the folder of downloads.";
constexpr std::string_view kNoSuchMode = "There is no such mode; leave it out.";
constexpr std::string_view kField =
    "It is a field of requests; the model's generation_config.json "
    "has the defaults.";
constexpr std::string_view kAlways = "That is always so; leave it out.";
constexpr std::string_view kNoOffload = "Nothing is moved between the memories of CPU and GPU.";
constexpr std::string_view kTextAlone = "Models read and write text alone.";
constexpr std::string_view kTls = "TLS is what a proxy in front is for.";
constexpr std::string_view kEmbeds =
    "Every model generates and gives embeddings and scores; leave it out. --pooling and --scoring "
    "say how.";
constexpr std::string_view kAdapters =
    "Adapters of any rank, any number of them in a batch, are taken by --lora-modules NAME=FOLDER.";
constexpr std::string_view kNoPromptAdapters =
    "Adapters of prompts and of embeddings are not supported; merge them into the checkpoint.";
constexpr std::string_view kNoSpeculation = "There is no speculative decoding; leave it out.";
constexpr std::string_view kConfig = "Change the model's config.json.";
constexpr std::string_view kNoPlugins = "Code of others is not loaded; leave it out.";
constexpr std::string_view kOnMetrics = "/metrics is always there; leave it out.";
constexpr std::string_view kNoTexts = "Texts are never logged; leave it out.";
constexpr std::string_view kOwnGrammars = "There is one implementation; leave it out.";

constexpr auto kHints = std::to_array<FlagHint>({
    // The model's files.
    {"--model,-m", "vLLM and llama.cpp", {}, "Give the directory as the argument MODEL."},
    {"--model-path", kSglang, {}, "Give the directory as the argument MODEL."},
    {"--tokenizer,--tokenizer-path,--tokenizer-mode", kBoth, {}, kLocal},
    {"--hf-token,--download-dir", kBoth, {}, kEnvironment},
    {"--hf-config-path", kBoth, {}, kLocal},
    {"--tokenizer-revision,--code-revision,--ignore-patterns,--config-format", kVllm, {}, kLocal},
    {"-hf,--hf-repo,-hff,--hf-file", kLlamaCpp, {}, kNamed},
    {"-mu,--model-url", kLlamaCpp, {}, kLocal},
    {"--trust-remote-code", kBoth, {}, "Code of a checkpoint is never run; leave it out."},
    {"-q", kVllm, "--quantization", "A checkpoint that is quantized needs none."},
    {"--task,--runner,--convert,--is-embedding", kBoth, {}, kEmbeds},
    {"--hf-overrides,--json-model-override-args", kBoth, {}, kConfig},
    {"--rope-scaling,--rope-theta,--disable-sliding-window", kBoth, {}, kConfig},
    {"--rope-freq-base,--rope-freq-scale,--override-kv,--rope-scale", kLlamaCpp, {}, kConfig},
    {"--model-impl", kVllm, {}, kNoSuchMode},
    {"--embeddings,--embedding,--reranking,--rerank", kLlamaCpp, {}, kEmbeds},
    {"--override-pooler-config,--pooler-config", kVllm, {}, "Use --pooling last or mean."},
    {"--enable-lora,--max-loras,--max-lora-rank,--lora-paths", kBoth, {}, kAdapters},
    {"--lora-dtype,--max-cpu-loras,--fully-sharded-loras", kVllm, {}, kAdapters},
    {"--enable-prompt-adapter,--prompt-adapters", kVllm, {}, kNoPromptAdapters},
    {"--lora-extra-vocab-size,--enable-lora-bias", kVllm, {}, kNoPromptAdapters},
    {"--lora,--lora-scaled", kLlamaCpp, {}, kAdapters},
    {"--limit-mm-per-prompt,--mm-processor-kwargs,--enable-multimodal", kBoth, {}, kTextAlone},
    {"--allowed-local-media-path,--mm-processor-cache-gb,--language-model-only",
     kVllm,
     {},
     kTextAlone},
    {"--disable-mm-preprocessor-cache,--mm-encoder-tp-mode", kVllm, {}, kTextAlone},
    {"--mmproj,-mm", kLlamaCpp, {}, kTextAlone},
    {"--alias,-a", kLlamaCpp, "--served-model-name"},
    {"--chat-template-file", kLlamaCpp, "--chat-template"},
    {"--jinja", kLlamaCpp, {}, kAlways},
    // Devices and memory.
    {"-tp,--tp,--tp-size", kBoth, "--tensor-parallel-size"},
    {"-pp,--pp-size", kBoth, "--pipeline-parallel-size"},
    {"--data-parallel-size,-dp,--dp,--dp-size", kBoth, "--device", kOneGpu},
    {"-ep", kVllm, "--enable-expert-parallel"},
    {"--ep,--ep-size", kSglang, "--enable-expert-parallel"},
    {"--nnodes,--node-rank,--dist-init-addr", kBoth, "--device", kOneGpu},
    {"--distributed-executor-backend,--worker-use-ray", kVllm, "--device", kOneGpu},
    {"--data-parallel-backend,--decode-context-parallel-size,-dcp,--enable-eplb,--enable-dbo",
     kVllm, "--device", kOneGpu},
    {"--master-addr,--headless,--disable-custom-all-reduce,--max-parallel-loading-workers", kBoth,
     "--device", kOneGpu},
    {"--enable-dp-attention,--enable-p2p-check,--nccl-port", kSglang, "--device", kOneGpu},
    {"-sm,--split-mode,-ts,--tensor-split,-mg,--main-gpu", kLlamaCpp, "--device", kOneGpu},
    {"-ngl,--n-gpu-layers,--gpu-layers", kLlamaCpp, "--device", "All layers are on one device."},
    {"--base-gpu-id", kSglang, "--device"},
    {"--mem-fraction-static", kSglang, "--gpu-memory-utilization"},
    {"--num-gpu-blocks-override", kVllm, "--kv-cache-memory-bytes"},
    {"--max-total-tokens", kSglang, "--kv-cache-memory-bytes"},
    {"--swap-space,--cpu-offload-gb,--kv-offloading-size", kVllm, {}, kNoOffload},
    {"--cpu-moe,-cmoe,--n-cpu-moe,-ncmoe,-ot,--override-tensor", kLlamaCpp, {}, kNoOffload},
    {"-nkvo,--no-kv-offload,--cache-ram", kLlamaCpp, {}, kNoOffload},
    {"--enable-hierarchical-cache", kSglang, {}, kNoOffload},
    {"--mlock,--no-mmap,--mmap,--no-warmup,--prio,--poll", kLlamaCpp, {}, kNoSuchMode},
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
    {"--num-lookahead-slots,--scheduler-delay-factor", kVllm, {}, kNoSuchMode},
    {"--use-v2-block-manager,--multi-step-stream-outputs,--disable-async-output-proc",
     kVllm,
     {},
     kNoSuchMode},
    {"--disable-overlap-schedule,--enable-mixed-chunk,--skip-server-warmup",
     kSglang,
     {},
     kNoSuchMode},
    {"--prefix-caching-hash-algo,--kv-transfer-config,--calculate-kv-scales",
     kVllm,
     {},
     kNoSuchMode},
    {"--context-shift,--no-context-shift,--swa-full,-kvu,--kv-unified", kLlamaCpp, {}, kNoSuchMode},
    {"--async-scheduling,--enable-overlap-schedule", kBoth, {}, kAlways},
    {"-cb,--cont-batching", kLlamaCpp, {}, kAlways},
    {"--enable-deterministic-inference", kSglang, "--batch-invariant"},
    {"--enforce-eager,--max-seq-len-to-capture,--compilation-config", kVllm, {}, kNoSuchMode},
    {"--cudagraph-capture-sizes,--max-cudagraph-capture-size,--disable-cascade-attn",
     kVllm,
     {},
     kNoSuchMode},
    {"--disable-cuda-graph,--cuda-graph-max-bs,--enable-torch-compile", kSglang, {}, kNoSuchMode},
    {"--cuda-graph-bs,--disable-cuda-graph-padding,--torch-compile-max-bs",
     kSglang,
     {},
     kNoSuchMode},
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
    {"--temp,--top-k,--top-p,--min-p,--repeat-penalty,-s,--samplers", kLlamaCpp, {}, kField},
    {"--grammar,--grammar-file,--json-schema,-j", kLlamaCpp, {}, "It is a field of requests."},
    {"--default-chat-template-kwargs,--chat-template-kwargs",
     "vLLM and llama.cpp",
     {},
     "It is the field chat_template_kwargs of requests."},
    {"--trust-request-chat-template", kVllm, {}, "Templates of requests are not run."},
    {"--exclude-tools-when-tool-choice-none", kVllm, {}, kAlways},
    {"--enable-prompt-tokens-details,--enable-request-id-headers", kVllm, {}, kAlways},
    {"--enable-cache-report", kSglang, {}, kAlways},
    {"--enable-force-include-usage",
     kVllm,
     {},
     "It is the field stream_options.include_usage of requests."},
    {"--skip-tokenizer-init,--enable-prompt-embeds,--return-tokens-as-token-ids",
     kBoth,
     {},
     kNoSuchMode},
    {"--generation-config,--override-generation-config", kVllm, {}, kField},
    {"--max-logprobs", kVllm, {}, "It is 20; leave it out."},
    {"--enable-auto-tool-choice", kVllm, "--tool-call-parser",
     "Tools are always on; the default parser follows the chat template."},
    {"--enable-reasoning", kVllm, "--reasoning-parser",
     "The default parser follows the chat template."},
    {"--reasoning-format", kLlamaCpp, "--reasoning-parser"},
    {"--reasoning-config", kVllm, {}, "The parser's markers end reasoning; leave it out."},
    {"--reasoning-budget", kLlamaCpp, {}, "It is the field thinking_token_budget of requests."},
    {"--chat-template-content-format,--response-role", kVllm, {}, kNoSuchMode},
    {"--guided-decoding-backend,--structured-outputs-config,--grammar-backend",
     kBoth,
     {},
     kOwnGrammars},
    {"--stream-interval", kBoth, {}, "Each token is sent at once; leave it out."},
    {"-to,--timeout", kLlamaCpp, "--request-timeout"},
    {"--logits-processors,--logits-processor-pattern,--enable-custom-logit-processor",
     kBoth,
     {},
     kNoPlugins},
    {"--tool-parser-plugin,--io-processor-plugin,--worker-cls,--worker-extension-cls",
     kVllm,
     {},
     kNoPlugins},
    {"--scheduler-cls,--middleware", kVllm, {}, kNoPlugins},
    // The server.
    {"--allow-credentials,--allowed-methods,--allowed-headers", kVllm, "--allowed-origins"},
    {"--ssl-keyfile,--ssl-certfile,--ssl-ca-certs,--ssl-cert-reqs,--enable-ssl-refresh",
     kBoth,
     {},
     kTls},
    {"--uds", kVllm, "--host", "It listens on TCP alone."},
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
    {"--log-config-file", kVllm, "--log-level"},
    {"--log-file,--log-colors", kLlamaCpp, {}, "The log goes to standard error."},
    {"--max-log-len,--enable-log-outputs,--enable-log-deltas", kVllm, {}, kNoTexts},
    {"--disable-log-stats", kVllm, {}, "The log has no statistics; /metrics has them."},
    {"--enable-metrics,--metrics", "SGLang and llama.cpp", {}, kOnMetrics},
    {"--enable-server-load-tracking,--show-hidden-metrics-for-version", kVllm, {}, kOnMetrics},
    {"--otlp-traces-endpoint,--collect-detailed-traces", kVllm, {}, "There are no traces."},
    {"--slots,--no-slots,--no-webui,--props,--slot-save-path", kLlamaCpp, {}, kNoSuchMode},
    {"--disable-frontend-multiprocessing,--disable-fastapi-docs,--h11-max-header-count",
     kVllm,
     {},
     kNoSuchMode},
    {"--enable-tokenizer-info-endpoint,--enable-sleep-mode,--performance-mode,--additional-config",
     kVllm,
     {},
     kNoSuchMode},
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
