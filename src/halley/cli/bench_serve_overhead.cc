// `halley bench serve-overhead`: what the server itself costs, with a model that costs nothing.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/cli/bench.h"
#include "halley/cli/costless_model.h"
#include "halley/cli/file_limit.h"
#include "halley/cli/overhead_server.h"
#include "halley/client/http/http_client.h"
#include "halley/client/load/summary.h"
#include "halley/json/json.h"

namespace halley::cli {
namespace {

constexpr double kNsPerMs = 1e6;
constexpr double kNsPerSecond = 1e9;
constexpr int64_t kWarmupNs = 1'000'000'000;
constexpr int kClientThreadsMax = 8;
constexpr size_t kLatenciesMax = 4'000'000;  // of a client thread

struct OverheadOptions {
  OverheadServerOptions server;
  double rate = 25'000;  // tokens a second, of all clients
  double seconds = 5;    // of each phase
  int64_t output_len = 256;
  int num_server_cores = 2;
  std::string json_file;
};

// ---- cores

std::vector<int> usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  ::sched_getaffinity(0, sizeof set, &set);
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  return cores;
}

void stay_on(const std::vector<int>& cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) CPU_SET(core, &set);
  if (::sched_setaffinity(0, sizeof set, &set) != 0) {
    throw DeviceError(str("serve-overhead: cannot choose cores: ", std::strerror(errno), "."));
  }
}

struct Cores {
  std::vector<int> server, clients;
  bool are_shared = false;
};

Cores divide_cores(int num_server_cores) {
  Cores cores;
  cores.server = cores.clients = usable_cores();
  const auto num_server = static_cast<size_t>(num_server_cores);
  cores.are_shared = cores.clients.size() <= num_server;
  if (!cores.are_shared) {
    cores.clients.erase(cores.clients.begin(), cores.clients.begin() + num_server_cores);
    cores.server.resize(num_server);
  }
  return cores;
}

// ---- the server's process

struct UnmapTimes {
  void operator()(StepTimes* times) const { ::munmap(times, sizeof(StepTimes)); }
};
using SharedTimes = std::unique_ptr<StepTimes, UnmapTimes>;

SharedTimes make_shared_times() {
  void* memory =
      ::mmap(nullptr, sizeof(StepTimes), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  return SharedTimes(new (memory) StepTimes);
}

/// Its process ends with this object, and with this process however that ends.
class ServerProcess {
 public:
  ServerProcess(const OverheadServerOptions& options, StepTimes& times,
                const std::vector<int>& cores) {
    int ready[2];
    int end[2];
    if (::pipe(ready) != 0 || ::pipe(end) != 0) {
      throw DeviceError("serve-overhead: cannot make a pipe.");
    }
    pid_ = ::fork();
    if (pid_ < 0) throw DeviceError("serve-overhead: cannot start a process.");
    if (pid_ == 0) {
      ::close(ready[0]);
      ::close(end[1]);
      ::_exit(run_child(options, times, cores, ready[1], end[0]));
    }
    ::close(ready[1]);
    ::close(end[0]);
    end_ = end[1];
    const bool is_ready = ::read(ready[0], &port_, sizeof port_) == sizeof port_;
    ::close(ready[0]);
    if (!is_ready) throw DeviceError("serve-overhead: the server did not start.");
  }
  ~ServerProcess() {
    ::close(end_);
    if (pid_ > 0) ::waitpid(pid_, nullptr, 0);
  }
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  uint16_t port() const { return port_; }

  /// CPU time of all its threads since its start.
  double cpu_seconds() const {
    clockid_t clock{};
    timespec time{};
    if (::clock_getcpuclockid(pid_, &clock) != 0 || ::clock_gettime(clock, &time) != 0) {
      throw DeviceError("serve-overhead: the server has ended.");
    }
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / kNsPerSecond;
  }

 private:
  static int run_child(const OverheadServerOptions& options, StepTimes& times,
                       const std::vector<int>& cores, int ready, int end) {
    try {
      stay_on(cores);
      const OverheadServer server(options, times);
      const uint16_t port = server.port();
      if (::write(ready, &port, sizeof port) != sizeof port) return kExitInternal;
      char byte = 0;
      static_cast<void>(::read(end, &byte, 1));  // returns when the parent has ended
      return kExitOk;
    } catch (const std::exception& error) {
      std::fprintf(stderr, "halley: serve-overhead: %s\n", error.what());
      return kExitInternal;
    }
  }

  pid_t pid_ = -1;
  int end_ = -1;
  uint16_t port_ = 0;
};

// ---- the clients

/// The time window in which tokens count.
struct Window {
  int64_t begin_ns = 0, end_ns = 0;
};

struct ClientCounts {
  int64_t num_tokens = 0, num_errors = 0;
  std::vector<double> latencies;  // ms, from the end of a token's step
  std::string error;              // the first one
};

// The text of a chunk's only choice. Its text has no escapes.
std::string_view text_of_chunk(std::string_view data) {
  constexpr std::string_view kKey = "\"text\":\"";
  const size_t key = data.find(kKey);
  if (key == std::string_view::npos) return {};
  const size_t start = key + kKey.size();
  return data.substr(start, data.find('"', start) - start);
}

/// Streams on one thread, each client one after the other until the window's end.
class ClientThread {
 public:
  ClientThread(uint16_t port, int64_t num_clients, int64_t output_len, const StepTimes& times,
               const Window& window)
      : num_clients_(num_clients),
        times_(times),
        window_(window),
        client_(parse_http_url(str("http://127.0.0.1:", port))) {
    request_.method = "POST";
    request_.target = "/v1/completions";
    request_.headers = {{"Content-Type", "application/json"}};
    const OrderedJson body = {{"prompt", std::vector<int32_t>(16, 1)},
                              {"max_tokens", output_len},
                              {"ignore_eos", true},
                              {"stream", true}};
    request_.body = body.dump();
  }

  ClientCounts run() {
    for (int64_t i = 0; i < num_clients_; ++i) start();
    client_.run();
    return std::move(counts_);
  }

 private:
  void start() {
    client_.start(request_, {.on_event = [this](const SseEvent& event) { take(event.data); },
                             .on_end = [this](const HttpClientResult& result) { end(result); }});
  }

  void take(std::string_view data) {
    const auto step = step_of_text(text_of_chunk(data));
    if (!step) return;
    const int64_t now = monotonic_ns();
    if (now < window_.begin_ns || now >= window_.end_ns) return;
    ++counts_.num_tokens;
    const int64_t end_ns = times_.end_ns[static_cast<size_t>(*step)];
    if (counts_.latencies.size() < kLatenciesMax) {
      counts_.latencies.push_back(static_cast<double>(now - end_ns) / kNsPerMs);
    }
  }

  void end(const HttpClientResult& result) {
    if (result.status != 200 || !result.error.empty()) {
      if (counts_.num_errors++ == 0) {
        counts_.error = str("status ", result.status, " ", result.error, " ", result.body);
      }
      return;
    }
    if (monotonic_ns() < window_.end_ns) start();
  }

  const int64_t num_clients_;
  const StepTimes& times_;
  const Window window_;
  HttpClientRequest request_;
  ClientCounts counts_;
  HttpClient client_;
};

struct PhaseResult {
  double seconds = 0, server_cpu_seconds = 0;
  int64_t num_tokens = 0;
  std::vector<double> latencies;  // ms

  double tokens_per_second() const { return static_cast<double>(num_tokens) / seconds; }
  double cpu_us_per_token() const {
    return 1e6 * server_cpu_seconds / static_cast<double>(std::max<int64_t>(num_tokens, 1));
  }
};

void sleep_to(int64_t ns) {
  std::this_thread::sleep_for(std::chrono::nanoseconds(std::max<int64_t>(0, ns - monotonic_ns())));
}

PhaseResult run_phase(const OverheadOptions& options, const ServerProcess& server, StepTimes& times,
                      size_t num_threads) {
  Window window;
  window.begin_ns = monotonic_ns() + kWarmupNs;
  window.end_ns = window.begin_ns + static_cast<int64_t>(options.seconds * kNsPerSecond);
  std::vector<ClientCounts> counts(num_threads);
  std::vector<std::thread> threads;
  const int64_t num_clients = options.server.num_clients;
  for (size_t i = 0; i < num_threads; ++i) {
    const auto index = static_cast<int64_t>(i);
    const auto count = static_cast<int64_t>(num_threads);
    const int64_t share = num_clients * (index + 1) / count - num_clients * index / count;
    threads.emplace_back([&, i, share] {
      ClientThread clients(server.port(), share, options.output_len, times, window);
      counts[i] = clients.run();
    });
  }
  sleep_to(window.begin_ns);
  const double cpu_before = server.cpu_seconds();
  sleep_to(window.end_ns);
  PhaseResult result;
  result.seconds = options.seconds;
  result.server_cpu_seconds = server.cpu_seconds() - cpu_before;
  for (std::thread& thread : threads) thread.join();
  for (const ClientCounts& part : counts) {
    if (part.num_errors > 0) {
      throw DeviceError(
          str("serve-overhead: ", part.num_errors, " streams failed; the first: ", part.error));
    }
    result.num_tokens += part.num_tokens;
    result.latencies.insert(result.latencies.end(), part.latencies.begin(), part.latencies.end());
  }
  return result;
}

// ---- the report

OrderedJson report_phase(const char* name, const PhaseResult& phase) {
  const Summary latency = summarize(phase.latencies, {50, 99, 99.9});
  std::printf("%s: %.0f tokens/s, server %.1f us of CPU a token (%.2f cores)", name,
              phase.tokens_per_second(), phase.cpu_us_per_token(),
              phase.server_cpu_seconds / phase.seconds);
  OrderedJson json = {{"tokens_per_second", phase.tokens_per_second()},
                      {"server_cpu_us_per_token", phase.cpu_us_per_token()},
                      {"server_cores", phase.server_cpu_seconds / phase.seconds}};
  std::printf("; added latency");
  for (const auto& [percent, value] : latency.percentiles) {
    std::printf(" p%g %.2f ms", percent, value);
    json[str("added_latency_ms_p", percent)] = value;
  }
  std::printf("\n");
  return json;
}

int run_overhead(const OverheadOptions& options) {
  raise_file_limit();
  const SharedTimes times = make_shared_times();
  const Cores cores = divide_cores(options.num_server_cores);
  const ServerProcess server(options.server, *times, cores.server);  // before any thread
  stay_on(cores.clients);
  const size_t num_threads = std::min<size_t>(
      {cores.clients.size(), kClientThreadsMax, static_cast<size_t>(options.server.num_clients)});
  std::printf("%lld clients on %zu cores, server on %zu%s\n",
              static_cast<long long>(options.server.num_clients), cores.clients.size(),
              cores.server.size(), cores.are_shared ? " (the same)" : "");
  OrderedJson json = {{"clients", options.server.num_clients},
                      {"output_len", options.output_len},
                      {"server_cores_allowed", cores.server.size()},
                      {"cores_are_shared", cores.are_shared}};
  const double steps_per_second = options.rate / static_cast<double>(options.server.num_clients);
  times->period_ns = static_cast<int64_t>(kNsPerSecond / steps_per_second);
  json["paced"] = report_phase("paced", run_phase(options, server, *times, num_threads));
  times->period_ns = 0;
  json["flat_out"] = report_phase("flat out", run_phase(options, server, *times, num_threads));
  if (!options.json_file.empty()) {
    std::ofstream file(options.json_file);
    file << json.dump(1) << "\n";
    if (!file.flush()) throw InputError(str(options.json_file, ": cannot write."));
  }
  return kExitOk;
}

}  // namespace

Run add_bench_serve_overhead(CLI::App& bench) {
  CLI::App& app = *bench.add_subcommand(
      "serve-overhead", "Measure the overhead of the server, with a model that costs nothing");
  auto options = std::make_shared<OverheadOptions>();
  const auto add = [&](const std::string& name, auto& value, const std::string& text) {
    return app.add_option(name, value, text)->capture_default_str();
  };
  add("--clients", options->server.num_clients, "Concurrent streams")
      ->check(CLI::Range(int64_t{1}, int64_t{16384}));
  add("--rate", options->rate, "Tokens per second of all clients together, in the paced phase")
      ->check(CLI::Range(1.0, 1e7));
  add("--seconds", options->seconds, "Seconds of each phase, after one second of warm-up")
      ->check(CLI::Range(0.1, 3600.0));
  add("--output-len", options->output_len, "Output tokens per request")
      ->check(CLI::Range(int64_t{1}, int64_t{OverheadServerOptions::kLengthMax - 64}));
  add("--http-threads", options->server.num_http_threads, "As in `halley serve`")
      ->check(CLI::Range(1, 64));
  add("--server-cores", options->num_server_cores,
      "Cores that the server may use; clients take the others")
      ->check(CLI::Range(1, 1024));
  add("--json", options->json_file, "Write the report to a file");
  app.footer(
      R"(Starts the complete server in its own process and streams from it. In the first phase
the model paces its steps by --rate; in the second it does not wait. The added latency of a
token is the time from the end of its step to its arrival at the client.)");
  return [options] { return run_overhead(*options); };
}

}  // namespace halley::cli
