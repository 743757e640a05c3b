#include "halley/cli/gemm_report.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/cli/gemm_problems.h"
#include "halley/cli/svg_plot.h"

namespace halley::cli {
namespace {

constexpr const char* kPdl = ", PDL";

std::string fixed(double number, int digits) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.*f", digits, number);
  return text.data();
}

/// The time of the launch that models use: with PDL if the kernel supports it.
double model_microseconds(const cuda::GemmTime& time) {
  return time.time.early_microseconds.value_or(time.time.microseconds);
}

OrderedJson json_of(const std::optional<double>& number) {
  return number.has_value() ? OrderedJson(*number) : OrderedJson(nullptr);
}

/// A line of a table with a column for each M.
struct Line {
  std::string name;
  std::map<int64_t, double> numbers = {};

  void add(int64_t M, const std::optional<double>& number) {
    if (number.has_value()) numbers[M] = *number;
  }
};

void print_lines(const char* title, const std::vector<Line>& lines) {
  std::set<int64_t> rows;
  for (const Line& line : lines) {
    for (const auto& [M, number] : line.numbers) rows.insert(M);
  }
  std::printf("\n%s\n%-46s", title, "M");
  for (const int64_t M : rows) std::printf(" %7lld", static_cast<long long>(M));
  for (const Line& line : lines) {
    if (line.numbers.empty()) continue;
    std::printf("\n%-46s", line.name.c_str());
    for (const int64_t M : rows) {
      const auto found = line.numbers.find(M);
      std::printf(" %7s", found == line.numbers.end() ? "-" : fixed(found->second, 3).c_str());
    }
  }
  std::printf("\n");
}

void print_means(const std::vector<ProblemMean>& means) {
  if (means.empty()) return;
  const auto by_rows = [](const ProblemMean& a, const ProblemMean& b) { return a.M < b.M; };
  const int64_t least = std::min_element(means.begin(), means.end(), by_rows)->M;
  std::vector<Line> over, above;
  for (const GemmBenchProblem& problem : gemm_bench_problems()) {
    const std::string name(problem.name);
    Line apart = {name}, pdl = {name + kPdl}, peer = {name + ", best cuBLASLt"};
    Line above_apart = {name}, above_pdl = {name + kPdl};
    for (const ProblemMean& mean : means) {
      if (mean.problem != name) continue;
      apart.add(mean.M, mean.over_floor);
      pdl.add(mean.M, mean.pdl_over_floor);
      peer.add(mean.M, mean.peer_over_floor);
      if (mean.M != least) continue;
      above_apart.add(mean.M, mean.above_floor);
      above_pdl.add(mean.M, mean.pdl_above_floor);
    }
    over.insert(over.end(), {apart, pdl, peer});
    above.insert(above.end(), {above_apart, above_pdl});
  }
  print_lines("Time / floor, geometric mean over the shapes", over);
  print_lines("Time - floor in us, mean over the shapes", above);
}

void print_ratios(const std::vector<RatioMean>& means) {
  if (means.empty()) return;
  std::vector<Line> lines;
  for (const ProblemRatio& ratio : gemm_bench_ratios()) {
    const std::string name = name_of(ratio);
    Line apart = {name}, pdl = {name + kPdl};
    for (const RatioMean& mean : means) {
      if (mean.name != name) continue;
      apart.add(mean.M, mean.ratio);
      pdl.add(mean.M, mean.pdl_ratio);
    }
    lines.insert(lines.end(), {apart, pdl});
  }
  print_lines("Time / time of another problem, geometric mean over the shapes", lines);
}

}  // namespace

GemmSummary summarize(const std::vector<cuda::GemmTime>& times) {
  std::vector<GemmTiming> gemms;
  for (const cuda::GemmTime& time : times) {
    gemms.push_back({.problem = time.problem,
                     .is_chosen = time.is_chosen,
                     .is_cublaslt = time.kernel.find("cublaslt") != std::string::npos,
                     .N = time.N,
                     .K = time.K,
                     .M = time.M,
                     .time = time.time.microseconds,
                     .pdl_time = time.time.early_microseconds,
                     .floor = time.floor_microseconds});
  }
  std::vector<ProblemPeers> problems;
  for (const GemmBenchProblem& problem : gemm_bench_problems()) {
    problems.push_back({problem.name, problem.peers});
  }
  return {.means = means_of(gemms, problems), .ratios = ratios_of(gemms, gemm_bench_ratios())};
}

OrderedJson json_of(const cuda::GemmTime& time) {
  const double best = model_microseconds(time);
  const double operations =
      2 * static_cast<double>(time.M) * static_cast<double>(time.N) * static_cast<double>(time.K);
  return {{"problem", time.problem},
          {"kernel", time.kernel},
          {"is_chosen", time.is_chosen},
          {"rejected", time.rejections},
          {"refused", time.rejections},  // alias for readers of 0.1.0
          {"N", time.N},
          {"K", time.K},
          {"M", time.M},
          {"us", time.time.microseconds},
          {"us_early", json_of(time.time.early_microseconds)},
          {"floor_us", time.floor_microseconds},
          {"roofline_share", time.floor_microseconds / best},
          {"tera_operations_per_s", operations / best * 1e-6},
          {"weight_tera_bytes_per_s", time.weight_bytes / best * 1e-6}};
}

std::vector<cuda::GemmTime> gemms_of(const OrderedJson& json, const std::string& file) {
  const auto is_time = [](double number) { return number > 0 && number < 1e12; };
  // Files of 0.1.0 have only the older name.
  const auto rejections_of = [](const OrderedJson& row) {
    return row.at(row.contains("rejected") ? "rejected" : "refused").get<std::string>();
  };
  try {
    std::vector<cuda::GemmTime> times;
    for (const OrderedJson& row : json.at("products")) {
      cuda::GemmTime time = {.problem = row.at("problem").get<std::string>(),
                             .kernel = row.at("kernel").get<std::string>(),
                             .rejections = rejections_of(row),
                             .is_chosen = row.at("is_chosen").get<bool>(),
                             .N = row.at("N").get<int64_t>(),
                             .K = row.at("K").get<int64_t>(),
                             .M = row.at("M").get<int64_t>(),
                             .time = {.microseconds = row.at("us").get<double>()},
                             .floor_microseconds = row.at("floor_us").get<double>()};
      const OrderedJson& pdl = row.at("us_early");
      if (!pdl.is_null()) time.time.early_microseconds = pdl.get<double>();
      const double best = model_microseconds(time);
      if (!is_time(time.time.microseconds) || !is_time(best) || !is_time(time.floor_microseconds)) {
        throw InputError(str(file, ": expected times above 0, got ", row.dump(), "."));
      }
      time.weight_bytes = row.at("weight_tera_bytes_per_s").get<double>() * best * 1e6;
      times.push_back(std::move(time));
    }
    return times;
  } catch (const OrderedJson::exception& error) {
    throw InputError(str(file, ": expected what `halley bench gemm --json` printed, got ",
                         quote(error.what()), "."));
  }
}

OrderedJson json_of(const GemmSummary& summary) {
  OrderedJson means = OrderedJson::array(), ratios = OrderedJson::array();
  for (const ProblemMean& mean : summary.means) {
    means.push_back({{"problem", mean.problem},
                     {"M", mean.M},
                     {"num_shapes", mean.num_shapes},
                     {"over_floor", mean.over_floor},
                     {"early_over_floor", json_of(mean.pdl_over_floor)},
                     {"cublaslt_over_floor", json_of(mean.peer_over_floor)},
                     {"above_floor_us", mean.above_floor},
                     {"early_above_floor_us", json_of(mean.pdl_above_floor)}});
  }
  for (const RatioMean& mean : summary.ratios) {
    ratios.push_back({{"name", mean.name},
                      {"M", mean.M},
                      {"num_shapes", mean.num_shapes},
                      {"ratio", mean.ratio},
                      {"early_ratio", json_of(mean.pdl_ratio)}});
  }
  return {{"problems", std::move(means)}, {"ratios", std::move(ratios)}};
}

std::string render_shares(const GemmSummary& summary) {
  constexpr std::pair<const char*, const char*> kLines[] = {
      {"u4_s8", "W4A8"},   {"u4_group_s8", "W4A8 groups"},  {"w4ax", "W4Ax"},
      {"u4_f16", "W4A16"}, {"nested_f16", "f16 in planes"}, {"fp8_tensor", "FP8"},
  };
  Plot plot;
  plot.title = "GEMMs of linear layers on a GPU";
  plot.x_label = "M";
  plot.y_label = "share of the roofline in percent, geometric mean of all layers";
  for (const auto& [problem, label] : kLines) {
    PlotLine line = {label, {}};
    for (const ProblemMean& mean : summary.means) {
      if (mean.problem != problem) continue;
      const double over_floor = mean.pdl_over_floor.value_or(mean.over_floor);
      line.points.emplace_back(static_cast<double>(mean.M), 100 / over_floor);
    }
    if (!line.points.empty()) plot.lines.push_back(std::move(line));
  }
  return render_svg(plot);
}

void print_gemms(const std::vector<cuda::GemmTime>& times) {
  std::printf("%-12s %7s %7s %6s %9s %9s %9s %9s  %s\n", "problem", "N", "K", "M", "us", "PDL us",
              "floor us", "roofline", "kernel");
  for (const cuda::GemmTime& time : times) {
    const std::optional<double>& pdl = time.time.early_microseconds;
    const double best = pdl.value_or(time.time.microseconds);
    std::printf("%-12s %7lld %7lld %6lld %9.2f %9s %9.2f %7.1f %%  %s%s\n", time.problem.c_str(),
                static_cast<long long>(time.N), static_cast<long long>(time.K),
                static_cast<long long>(time.M), time.time.microseconds,
                pdl.has_value() ? fixed(*pdl, 2).c_str() : "-", time.floor_microseconds,
                100 * time.floor_microseconds / best, time.is_chosen ? "" : "-",
                time.kernel.c_str());
  }
}

void print_summary(const GemmSummary& summary) {
  print_means(summary.means);
  print_ratios(summary.ratios);
}

}  // namespace halley::cli
